{{/* The roles of infra/clickhouse/grants.yaml, as XML for users.d. */}}
{{- define "spillway.clickhouseRoles" -}}
{{- $of := .Files.Get "files/grants.yaml" | fromYaml -}}
<clickhouse>
  <roles>
    {{- range $role, $rights := $of.roles }}
    <{{ $role }}>
      <grants>
        {{- if $rights.owns }}
        <query>GRANT {{ join ", " $rights.owns }} ON {{ $of.database }}.*</query>
        {{- if ne $.Values.clickhouse.variant "single" }}
        <query>GRANT CLUSTER ON *.*</query>
        {{- end }}
        {{- end }}
        {{- range $right := list "select" "insert" }}
        {{- range get $rights $right | default list }}
        <query>GRANT {{ upper $right }} ON {{ $of.database }}.{{ . }}</query>
        {{- end }}
        {{- end }}
      </grants>
    </{{ $role }}>
    {{- end }}
  </roles>
</clickhouse>
{{- end }}

{{- define "spillway.clickhouseTls" -}}
<clickhouse>
  <openSSL>
    <server>
      <certificateFile>/etc/clickhouse-server/tls/tls.crt</certificateFile>
      <privateKeyFile>/etc/clickhouse-server/tls/tls.key</privateKeyFile>
      <verificationMode>none</verificationMode>
      <disableProtocols>sslv2,sslv3,tlsv1,tlsv1_1</disableProtocols>
      <preferServerCiphers>true</preferServerCiphers>
    </server>
    <client>
      <caConfig>/etc/clickhouse-server/tls/ca.crt</caConfig>
      <loadDefaultCAFile>false</loadDefaultCAFile>
      <verificationMode>strict</verificationMode>
      <disableProtocols>sslv2,sslv3,tlsv1,tlsv1_1</disableProtocols>
    </client>
  </openSSL>
</clickhouse>
{{- end }}

{{/*
Pods that the operator makes: without a token, as user 101 of their image. Takes root, name, component, container, tls,
`of` (image and resources), `logs` (the folder of logs in /var/log), metrics (whether the server serves them).
*/}}
{{- define "spillway.clickhousePod" -}}
metadata:
  labels:
    {{- include "spillway.allPodLabels" . | nindent 4 }}
  {{- with include "spillway.podAnnotations" . | trim }}
  annotations:
    {{- . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "spillway.serviceAccountName" . }}
  automountServiceAccountToken: false
  securityContext:
    {runAsNonRoot: true, runAsUser: 101, runAsGroup: 101, fsGroup: 101, seccompProfile: {type: RuntimeDefault}}
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "spillway.selector" . | nindent 14 }}
  containers:
    - name: {{ .container }}
      image: {{ .of.image }}
      {{- if .metrics }}
      ports: [{name: metrics, containerPort: 9363}]
      {{- end }}
      securityContext:
        {{- include "spillway.confined" . | nindent 8 }}
      resources:
        {{- toYaml .of.resources | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: log, mountPath: /var/log/{{ .logs }}}
        {{- if .tls }}
        - {name: tls, mountPath: /etc/clickhouse-server/tls, readOnly: true}
        {{- end }}
  volumes:
    - {name: tmp, emptyDir: {sizeLimit: 256Mi}}
    - {name: log, emptyDir: {sizeLimit: 1Gi}}
    {{- if .tls }}
    - {name: tls, secret: {secretName: {{ .of.tlsSecret }}, defaultMode: 0440}}
    {{- end }}
{{- end }}

{{- define "spillway.clickhouseVolume" -}}
- name: data
  reclaimPolicy: Retain
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .className }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .size }}}}
{{- end }}
