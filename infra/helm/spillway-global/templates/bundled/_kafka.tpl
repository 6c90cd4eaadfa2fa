{{/* Of pods that Strimzi makes. It gives them app.kubernetes.io/... itself, and takes no such label from here. */}}
{{- define "spillway.kafkaPod" -}}
metadata:
  labels: {{ merge (dict) .root.Values.podLabels .root.Values.commonLabels | toJson }}
  annotations: {{ toJson .root.Values.podAnnotations }}
securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
{{- end }}

{{- define "spillway.kafkaContainer" -}}
securityContext:
  {{- include "spillway.confined" . | nindent 2 }}
{{- end }}
