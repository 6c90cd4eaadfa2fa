{{/* Labels of pods that Strimzi makes. Strimzi sets app.kubernetes.io/... itself, and accepts no such label from here. */}}
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
