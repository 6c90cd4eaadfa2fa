{{/* The common part of a container that serves the metrics of a server, at /metrics of `port`. */}}
{{- define "spillway.exporter" -}}
securityContext:
  {{- include "spillway.confined" . | nindent 2 }}
ports: [{name: metrics, containerPort: {{ .port }}}]
livenessProbe: {tcpSocket: {port: metrics}, periodSeconds: 20, failureThreshold: 6}
readinessProbe: {tcpSocket: {port: metrics}, periodSeconds: 10}
resources:
  {{- toYaml .resources | nindent 2 }}
{{- end }}

{{/* A NetworkPolicy's rule that lets Prometheus reach the metrics of a server. */}}
{{- define "spillway.scraped" -}}
{{- if .root.Values.monitoring.serviceMonitors -}}
- from: [{namespaceSelector: {{ toJson .root.Values.networkPolicy.metricsNamespaces }}}]
  ports: [{port: {{ .port }}}]
{{- end }}
{{- end }}
