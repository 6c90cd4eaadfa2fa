{{/* The roles of infra/clickhouse/grants.yaml, as XML of users.d. */}}
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

{{/* Pods of the operator: without a token, as their image's user 101. `image`, `container`, `resources`, `name`. */}}
{{- define "spillway.clickhousePod" -}}
metadata:
  labels:
    {{- include "spillway.labels" . | nindent 4 }}
spec:
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
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      resources:
        {{- toYaml .of.resources | nindent 8 }}
      {{- if .tls }}
      volumeMounts:
        - {name: tls, mountPath: /etc/clickhouse-server/tls, readOnly: true}
  volumes:
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
