{{/*
A Deployment with its Service and disruption budget. Given: root, name, component, image, arguments, port, values (of
the workload), servers, topology (whether it reads that file), guardrails, and `environment`, `mounts`, `volumes`.
No workload keeps anything on disk: what the jobs of streams remember is in Kafka and ClickHouse.
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
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      {{- include "spillway.selector" $of | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "spillway.labels" $of | nindent 8 }}
      {{- with include "spillway.annotations" $of | trim }}
      annotations:
        {{- . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "spillway.pod" .root | nindent 6 }}
      {{- include "spillway.spread" $of | nindent 6 }}
      terminationGracePeriodSeconds: 30
      containers:
        - name: {{ .component }}
          image: {{ include "spillway.image" $of }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{ .arguments | toJson }}
          securityContext:
            {{- include "spillway.confined" . | nindent 12 }}
          ports: [{name: health, containerPort: {{ .port }}}]
          env:
            - {name: SPILLWAY_HEALTH_LISTEN, value: "0.0.0.0:{{ .port }}"}
            {{- include "spillway.environment" $of | trim | nindent 12 }}
            {{- range $name, $value := .environment }}
            - {name: {{ $name }}, value: {{ $value | quote }}}
            {{- end }}
            {{- range $name, $value := .values.settings }}
            - {name: SPILLWAY_{{ $name }}, value: {{ $value | toString | quote }}}
            {{- end }}
          # /metrics answers while servers are away, /healthz does not: their absence restarts nothing.
          startupProbe: {httpGet: {path: /metrics, port: health}, periodSeconds: 2, failureThreshold: 60}
          livenessProbe: {httpGet: {path: /metrics, port: health}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
          readinessProbe: {httpGet: {path: /healthz, port: health}, periodSeconds: 5, timeoutSeconds: 3, failureThreshold: 3}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          volumeMounts:
            {{- include "spillway.mounts" $of | nindent 12 }}
            {{- range .mounts }}
            - {{ . | toJson }}
            {{- end }}
      volumes:
        {{- include "spillway.volumes" $of | nindent 8 }}
        {{- range .volumes }}
        - {{ . | toJson }}
        {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "spillway.metadata" $of | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true # a job that waits for a server is measured, too
  selector:
    {{- include "spillway.selector" $of | nindent 4 }}
  ports: [{name: health, port: {{ .port }}, targetPort: health}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "spillway.metadata" $of | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "spillway.selector" $of | nindent 6 }}
{{- end }}
