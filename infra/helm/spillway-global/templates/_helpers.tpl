{{- define "spillway.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: spillway
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "spillway.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "spillway.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "spillway.labels" . | nindent 2 }}
{{- end }}

{{- define "spillway.image" -}}
{{ .root.Values.image.registry }}/{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- with get .root.Values.image.digests .image }}@{{ . }}{{ end }}
{{- end }}

{{/* The fields that every pod of the chart has. Takes root, name, values of the workload. */}}
{{- define "spillway.pod" -}}
{{- $root := .root }}
serviceAccountName: {{ include "spillway.serviceAccountName" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "spillway.scheduling" (dict "root" $root "values" .values) }}
{{- end }}

{{- define "spillway.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Servers that each workload connects to, as JSON: {component: [server, ..]}. */}}
{{- define "spillway.servers" -}}
{{- $boards := list "kafka" "clickhouse" "redis" }}
{{- $control := list "clickhouse" "redis" "nats" }}
{{- $streams := dict "admit" (list "kafka") "exclusive" (list "kafka" "clickhouse") "classify" (list "kafka" "clickhouse") "curves" $boards "graph" $boards }}
{{- merge $streams (dict "optimizer" $control "papa" $control "publisher" $control) | toJson }}
{{- end }}

{{/* An environment variable from a key of a Secret. */}}
{{- define "spillway.secret" -}}
- name: {{ .key }}
  valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}}
{{- end }}

{{/* Where a program finds the authorities of a server. Takes a key of the ConfigMap, or system. */}}
{{- define "spillway.authority" -}}
{{- if eq . "system" }}system{{ else }}/run/spillway/trust/{{ . }}{{ end -}}
{{- end }}

{{- define "spillway.brokers" -}}
{{ .Values.kafka.brokers | default "spillway-kafka-kafka-bootstrap:9093" }}
{{- end }}

{{/* Ports of the brokers' addresses, as a JSON list. */}}
{{- define "spillway.kafkaPorts" -}}
{{- $ports := list }}{{ range splitList "," (include "spillway.brokers" .) }}{{ $ports = append $ports (splitList ":" . | last | int) }}{{ end -}}
{{ $ports | uniq | toJson }}
{{- end }}

{{/* Whether clients of Kafka use a token endpoint. */}}
{{- define "spillway.kafkaTokens" -}}
{{- if and .Values.kafka.tls (eq .Values.kafka.sasl "OAUTHBEARER") }}yes{{ end -}}
{{- end }}

{{/* Port of a token endpoint. Takes its URL. */}}
{{- define "spillway.tokenPort" -}}
{{- (urlParse .).host | regexFind ":[0-9]+$" | trimPrefix ":" | default "443" -}}
{{- end }}

{{- define "spillway.kafkaEnvironment" -}}
- {name: SPILLWAY_KAFKA, value: {{ include "spillway.brokers" .root | quote }}}
{{- if .root.Values.kafka.tls }}
- {name: SPILLWAY_KAFKA_TLS, value: "on"}
- {name: SPILLWAY_KAFKA_TLS_CA, value: {{ include "spillway.authority" .root.Values.trust.kafka }}}
{{- with .root.Values.kafka.sasl }}
- {name: SPILLWAY_KAFKA_SASL, value: {{ . }}}
- {name: SPILLWAY_KAFKA_SASL_PASSWORD_FILE, value: /run/spillway/kafka/kafka-password}
{{ include "spillway.secret" (dict "secret" $.secret "key" "SPILLWAY_KAFKA_SASL_USER") }}
{{- end }}
{{- if include "spillway.kafkaTokens" .root }}
- {name: SPILLWAY_KAFKA_SASL_TOKEN_URL, value: {{ .root.Values.kafka.oauth.tokenUrl | quote }}}
- {name: SPILLWAY_KAFKA_SASL_TOKEN_CA, value: {{ include "spillway.authority" .root.Values.trust.kafkaToken }}}
{{- with .root.Values.kafka.oauth.scope }}
- {name: SPILLWAY_KAFKA_SASL_SCOPE, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- else }}
- {name: SPILLWAY_KAFKA_TLS, value: "off"}
{{- end }}
{{- end }}

{{/* Variables that workloads share: addresses of servers, with their authorities. `servers`: those that the workload needs. */}}
{{- define "spillway.environment" -}}
{{- if has "kafka" .servers }}
{{ include "spillway.kafkaEnvironment" . }}
{{- end }}
{{- range list "clickhouse" "redis" "nats" }}
{{- if has . $.servers }}
{{ include "spillway.secret" (dict "secret" $.secret "key" (printf "SPILLWAY_%s_URL" (upper .))) }}
{{- if not $.root.Values.plaintext }}
- {name: {{ printf "SPILLWAY_%s_CA" (upper .) }}, value: {{ include "spillway.authority" (get $.root.Values.trust .) }}}
{{- end }}
{{- end }}
{{- end }}
{{- if .root.Values.plaintext }}
- {name: SPILLWAY_PLAINTEXT, value: allow}
{{- end }}
{{- end }}

{{- define "spillway.kafkaPassword" -}}
{{- if and (has "kafka" .servers) .root.Values.kafka.tls .root.Values.kafka.sasl }}yes{{ end -}}
{{- end }}

{{- define "spillway.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: trust, mountPath: /run/spillway/trust, readOnly: true}
{{- if include "spillway.kafkaPassword" . }}
- {name: kafka, mountPath: /run/spillway/kafka, readOnly: true}
{{- end }}
{{- end }}

{{- define "spillway.volumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 256Mi}}
- name: trust
  configMap: {name: {{ .root.Values.trust.configMap }}, optional: {{ or (and .root.Values.plaintext (not .root.Values.kafka.tls)) (deepEqual (list "system") (uniq (values (omit .root.Values.trust "configMap")))) }}}
{{- if include "spillway.kafkaPassword" . }}
- name: kafka
  secret: {secretName: {{ .secret }}, defaultMode: 0440, items: [{key: kafka-password, path: kafka-password}]}
{{- end }}
{{- end }}

{{- define "spillway.annotations" -}}
{{- with .root.Values.credentialsRevision }}
spillway.dev/credentials-revision: {{ . | quote }}
{{- end }}
{{- if and .topology .root.Values.topologyRevision }}
spillway.dev/topology-revision: {{ .root.Values.topologyRevision | quote }}
{{- end }}
{{- include "spillway.podAnnotations" . }}
{{- end }}

{{/* Annotations of a hook that runs before any pod of a new version starts. In the first installation a bundled server does
not exist before the release, so its Jobs are no hooks then. Takes `weight` of the hook, and `bundled`: whether the server is bundled. */}}
{{- define "spillway.before" -}}
{{- if not (and .bundled .root.Release.IsInstall) -}}
annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-weight: {{ .weight | quote }}, helm.sh/hook-delete-policy: before-hook-creation}
{{- end }}
{{- end }}
