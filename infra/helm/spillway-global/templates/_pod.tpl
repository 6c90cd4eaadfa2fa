{{/*
What users may say of pods: of all (root.Values), and of one workload, in its own values. A workload's word goes in place
of the chart's; labels and annotations are merged; variables, volumes and mounts add up. Both charts have this file.
*/}}
{{- define "spillway.scheduling" -}}
{{- $own := .values | default dict }}
{{- range $key := list "priorityClassName" "nodeSelector" "tolerations" "affinity" }}
{{- with hasKey $own $key | ternary (get $own $key) (get $.root.Values $key) }}
{{ $key }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Over zones and nodes, unless users say how. A constraint without a selector is about the workload's own pods. */}}
{{- define "spillway.spread" -}}
{{- $own := .values | default dict }}
{{- $said := hasKey $own "topologySpreadConstraints" | ternary (get $own "topologySpreadConstraints") .root.Values.topologySpreadConstraints }}
{{- if not (kindIs "slice" $said) }}
{{- $said = list }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
{{- $said = append $said (dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway") }}
{{- end }}
{{- end }}
{{- with $said }}
topologySpreadConstraints:
  {{- range . }}
  - {{ merge (dict) . (dict "labelSelector" (dict "matchLabels" (include "spillway.selector" $ | fromYaml))) | toJson }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "spillway.podLabels" -}}
{{- with merge (dict) ((.values | default dict).podLabels | default dict) .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "spillway.podAnnotations" -}}
{{- with merge (dict) ((.values | default dict).podAnnotations | default dict) .root.Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* `key`: extraEnv, extraVolumes or extraVolumeMounts. */}}
{{- define "spillway.extra" -}}
{{- with concat (get .root.Values .key) (get (.values | default dict) .key | default list) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* `probe`: its name; `default`: what the chart asks; users change times and counts. */}}
{{- define "spillway.probe" -}}
{{ .probe }}: {{ merge (dict) (get .values .probe | default dict) .default | toJson }}
{{- end }}

{{/* The name of a workload's account: an existing one where users name it, else the workload's own. */}}
{{- define "spillway.serviceAccountName" -}}
{{ (.values | default dict).serviceAccountName | default .root.Values.serviceAccountName | default .name }}
{{- end }}

{{/* Annotations of a workload's account, as JSON: of all, then of this one, then `annotations` (of hooks). */}}
{{- define "spillway.serviceAccountAnnotations" -}}
{{ merge (dict) (.annotations | default dict) ((.values | default dict).serviceAccountAnnotations | default dict) .root.Values.serviceAccountAnnotations | toJson }}
{{- end }}

{{/* The account of a workload, unless users named one. It mounts no token: a pod that asks the API server says so itself. */}}
{{- define "spillway.serviceAccount" -}}
{{- if not ((.values | default dict).serviceAccountName | default .root.Values.serviceAccountName) }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "spillway.labels" . | nindent 4 }}
  {{- with include "spillway.serviceAccountAnnotations" . | fromJson }}
  annotations: {{ toJson . }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- end }}

{{/* Labels of a pod: the chart's, and what users say of pods. */}}
{{- define "spillway.allPodLabels" -}}
{{ include "spillway.labels" . }}
{{- include "spillway.podLabels" . }}
{{- end }}

{{- define "spillway.disruption" -}}
{{- $all := .root.Values.podDisruptionBudget }}
{{- $own := .values.podDisruptionBudget | default dict }}
{{- if hasKey $own "enabled" | ternary $own.enabled $all.enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "spillway.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ hasKey $own "maxUnavailable" | ternary $own.maxUnavailable $all.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow # a pod that is broken anyway holds no drain of its node up
  selector:
    matchLabels:
      {{- include "spillway.selector" . | nindent 6 }}
{{- end }}
{{- end }}
