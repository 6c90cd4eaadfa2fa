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

{{- define "spillway.image" -}}
{{ .root.Values.image.registry }}/{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- with get .root.Values.image.digests .image }}@{{ . }}{{ end }}
{{- end }}

{{/* Full DNS name of a service of this release. */}}
{{- define "spillway.host" -}}
{{ .name }}.{{ .root.Release.Namespace }}.svc.{{ .root.Values.cluster.dnsDomain }}
{{- end }}

{{/* Ports of the brokers, as a JSON list: networkPolicy.kafkaPorts, or the ports of the brokers' addresses. */}}
{{- define "spillway.kafkaPorts" -}}
{{- $ports := .Values.networkPolicy.kafkaPorts }}
{{- if not $ports }}{{ range splitList "," .Values.collector.kafka.brokers }}{{ $ports = append $ports (splitList ":" . | last | int) }}{{ end }}{{ end -}}
{{ $ports | uniq | toJson }}
{{- end }}

{{/* Port of a token endpoint. Takes its URL. */}}
{{- define "spillway.tokenPort" -}}
{{- (urlParse .).host | regexFind ":[0-9]+$" | trimPrefix ":" | default "443" -}}
{{- end }}

{{/* Where a program finds the authorities of a server. Takes the folder, and a key of the ConfigMap or system. */}}
{{- define "spillway.authority" -}}
{{- if eq (last .) "system" }}system{{ else }}{{ first . }}/{{ last . }}{{ end -}}
{{- end }}

{{/* SPILLWAY_XDS_MESH: the sidecars that may connect, by namespace of an Istio mesh. */}}
{{- define "spillway.mesh" -}}
{{- $all := list -}}
{{- range .Values.istio.namespaces }}{{ $all = append $all (printf "spiffe://%s/ns/%s/sa/{service}" $.Values.istio.trustDomain .) }}{{ end -}}
{{ join "," $all }}
{{- end }}

{{- define "spillway.annotations" -}}
{{- with .root.Values.credentialsRevision }}
spillway.dev/credentials-revision: {{ . | quote }}
{{- end }}
{{- include "spillway.podAnnotations" . }}
{{- end }}

{{/* The fields that every pod of the chart has. Takes root, values of the workload. */}}
{{- define "spillway.pod" -}}
{{- $root := .root }}
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

{{- define "spillway.volumeClaim" -}}
metadata: {name: state}
spec:
  accessModes: [ReadWriteOnce]
  {{- with .className }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests: {storage: {{ .size }}}
{{- end }}

{{/* `to` of a NetworkPolicy's rule. Without CIDRs it is omitted, which allows any address. */}}
{{- define "spillway.cidrs" -}}
{{- with . }}
to:
  {{- range . }}
  - {ipBlock: {cidr: {{ . }}}}
  {{- end }}
{{- end }}
{{- end }}

{{/* A value as a CEL literal. Each element is a `dyn`, because lists and maps in CEL hold values of one type. */}}
{{- define "spillway.cel" -}}
{{- if kindIs "map" . -}}
{{- $fields := list }}{{ range $key, $value := . }}{{ $fields = append $fields (printf "%s: dyn(%s)" ($key | toJson) (include "spillway.cel" $value)) }}{{ end -}}
{ {{- join ", " $fields -}} }
{{- else if kindIs "slice" . -}}
{{- $items := list }}{{ range . }}{{ $items = append $items (printf "dyn(%s)" (include "spillway.cel" .)) }}{{ end -}}
[ {{- join ", " $items -}} ]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{/* Namespaces of the applications, as a JSON list. */}}
{{- define "spillway.namespaces" -}}
{{- $all := list }}{{ range .Values.sidecar.applications }}{{ $all = append $all .namespace }}{{ end -}}
{{ $all | uniq | sortAlpha | toJson }}
{{- end }}

{{/* sample_ratio of the filters in a namespace, as JSON. Fails if sampling.namespaces names a namespace without filters.
Takes root, namespace. */}}
{{- define "spillway.sampleRatio" -}}
{{- $known := include "spillway.namespaces" .root | fromJsonArray -}}
{{- range .root.Values.istio.filter.services }}{{ $known = append $known .namespace }}{{ end -}}
{{- $known = $known | uniq | sortAlpha -}}
{{- $ratio := .root.Values.sampling.ratio -}}
{{- $wanted := .namespace -}}
{{- range $namespace, $value := .root.Values.sampling.namespaces -}}
{{- if not (has $namespace $known) -}}
{{- fail (printf "sampling.namespaces: %s: no entry of sidecar.applications or istio.filter.services is there; must be one of: %s" $namespace (join ", " $known)) -}}
{{- end -}}
{{- if eq $namespace $wanted }}{{ $ratio = $value }}{{ end -}}
{{- end -}}
{{ toJson $ratio }}
{{- end }}
