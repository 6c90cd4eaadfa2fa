{{/* The rest of a container that serves a server's metrics, at /metrics of `port`. It is no part of the pod's readiness. */}}
{{- define "spillway.exporter" -}}
securityContext:
  {{- include "spillway.confined" . | nindent 2 }}
ports: [{name: metrics, containerPort: {{ .port }}}]
livenessProbe: {tcpSocket: {port: metrics}, periodSeconds: 20, failureThreshold: 6}
readinessProbe: {tcpSocket: {port: metrics}, periodSeconds: 10}
resources:
  {{- toYaml .resources | nindent 2 }}
{{- end }}

{{/* A rule of a NetworkPolicy: Prometheus may reach the metrics of a server. */}}
{{- define "spillway.scraped" -}}
{{- if .root.Values.monitoring.serviceMonitors -}}
- from: [{namespaceSelector: {{ toJson .root.Values.networkPolicy.metricsNamespaces }}}]
  ports: [{port: {{ .port }}}]
{{- end }}
{{- end }}
