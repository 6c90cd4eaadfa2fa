{{/*
A Deployment with its Service and disruption budget. Takes root, name, component, image, arguments, port, values (of
the workload), servers, topology (whether it reads that file), guardrails, and `environment`, `mounts`, `volumes`. Also
`variables` (entries of env), `ports` (further ones by name), and `served`: whether other Services than its own select it.
No workload keeps anything on disk: the state of the jobs of streams is in Kafka and ClickHouse.
*/}}
{{- define "spillway.workload" -}}
{{- $of := merge (dict "secret" .values.secret) . -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "spillway.metadata" $of | nindent 2 }}
spec:
  {{- if not .scaled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  revisionHistoryLimit: {{ .root.Values.revisionHistoryLimit }}
  selector:
    matchLabels:
      {{- include "spillway.selector" $of | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "spillway.allPodLabels" $of | nindent 8 }}
      {{- with include "spillway.annotations" $of | trim }}
      annotations:
        {{- . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "spillway.pod" $of | trim | nindent 6 }}
      {{- include "spillway.spread" $of | trim | nindent 6 }}
      terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds | default 30 }}
      containers:
        - name: {{ .component }}
          image: {{ include "spillway.image" $of }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{ .arguments | toJson }}
          securityContext:
            {{- include "spillway.confined" . | nindent 12 }}
          ports:
            - {name: health, containerPort: {{ .port }}}
            {{- range $name, $port := .ports }}
            - {name: {{ $name }}, containerPort: {{ $port }}}
            {{- end }}
          env:
            - {name: SPILLWAY_HEALTH_LISTEN, value: "0.0.0.0:{{ .port }}"}
            {{- include "spillway.environment" $of | trim | nindent 12 }}
            {{- range $name, $value := .environment }}
            - {name: {{ $name }}, value: {{ $value | quote }}}
            {{- end }}
            {{- range .variables }}
            - {{ toJson . }}
            {{- end }}
            {{- range $name, $value := .values.settings }}
            - {name: SPILLWAY_{{ $name }}, value: {{ $value | toString | quote }}}
            {{- end }}
            {{- include "spillway.extra" (dict "root" .root "values" .values "key" "extraEnv") | trim | nindent 12 }}
          # /livez answers while servers are away, /readyz does not. So an absent server restarts no pod.
          {{- $live := dict "path" "/livez" "port" "health" }}
          {{- $ready := dict "path" "/readyz" "port" "health" }}
          {{- include "spillway.probe" (dict "values" .values "probe" "startupProbe" "default" (dict "httpGet" $live "periodSeconds" 2 "failureThreshold" 60)) | nindent 10 }}
          {{- include "spillway.probe" (dict "values" .values "probe" "livenessProbe" "default" (dict "httpGet" $live "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6)) | nindent 10 }}
          {{- include "spillway.probe" (dict "values" .values "probe" "readinessProbe" "default" (dict "httpGet" $ready "periodSeconds" 5 "timeoutSeconds" 3 "failureThreshold" 3)) | nindent 10 }}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          volumeMounts:
            {{- include "spillway.mounts" $of | nindent 12 }}
            {{- range .mounts }}
            - {{ . | toJson }}
            {{- end }}
            {{- include "spillway.extra" (dict "root" .root "values" .values "key" "extraVolumeMounts") | trim | nindent 12 }}
      volumes:
        {{- include "spillway.volumes" $of | nindent 8 }}
        {{- range .volumes }}
        - {{ . | toJson }}
        {{- end }}
        {{- include "spillway.extra" (dict "root" .root "values" .values "key" "extraVolumes") | trim | nindent 8 }}
{{- if not .served }}
---
{{ include "spillway.service" (merge (dict "of" .name "target" "health") $of) | trim }}
{{- end }}
---
{{ include "spillway.disruption" $of | trim }}
---
{{ include "spillway.serviceAccount" $of | trim }}
{{- end }}

{{/* A Service for health and metrics. Takes the workload that it selects (`of`), port, and the pod's port (`target`). */}}
{{- define "spillway.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "spillway.metadata" . | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true # Prometheus also scrapes a job that waits for a server
  selector:
    {{- include "spillway.selector" (dict "root" .root "name" .of) | nindent 4 }}
  ports: [{name: health, port: {{ .port }}, targetPort: {{ .target }}}]
{{- end }}
