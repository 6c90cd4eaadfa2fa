{{/*
Settings of pods, for all workloads (root.Values) or in the values of one workload. The value of a workload replaces the
chart's. Labels and annotations are merged, and variables, volumes and mounts are added. Both charts share this file.
*/}}
{{- define "spillway.scheduling" -}}
{{- $overrides := .values | default dict }}
{{- range $key := list "priorityClassName" "nodeSelector" "tolerations" "affinity" }}
{{- with hasKey $overrides $key | ternary (get $overrides $key) (get $.root.Values $key) }}
{{ $key }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Spreads pods over zones and nodes by default. A constraint without a selector selects the workload's own pods. */}}
{{- define "spillway.spread" -}}
{{- $overrides := .values | default dict }}
{{- $constraints := hasKey $overrides "topologySpreadConstraints" | ternary (get $overrides "topologySpreadConstraints") .root.Values.topologySpreadConstraints }}
{{- if not (kindIs "slice" $constraints) }}
{{- $constraints = list }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
{{- $constraints = append $constraints (dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway") }}
{{- end }}
{{- end }}
{{- with $constraints }}
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

{{/* `probe`: its name; `default`: the chart's probe. Users may change times and counts. */}}
{{- define "spillway.probe" -}}
{{ .probe }}: {{ merge (dict) (get .values .probe | default dict) .default | toJson }}
{{- end }}

{{/* The name of a workload's ServiceAccount: an existing one that users name, or the workload's own. */}}
{{- define "spillway.serviceAccountName" -}}
{{ (.values | default dict).serviceAccountName | default .root.Values.serviceAccountName | default .name }}
{{- end }}

{{/* Annotations of a workload's ServiceAccount, as JSON: those for all, then those of this one, then `annotations` (of hooks). */}}
{{- define "spillway.serviceAccountAnnotations" -}}
{{ merge (dict) (.annotations | default dict) ((.values | default dict).serviceAccountAnnotations | default dict) .root.Values.serviceAccountAnnotations | toJson }}
{{- end }}

{{/* The ServiceAccount of a workload, unless users name one. It mounts no token. A pod that needs the API server mounts it
itself. */}}
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

{{/* Labels of a pod: the chart's and the users'. */}}
{{- define "spillway.allPodLabels" -}}
{{ include "spillway.labels" . }}
{{- include "spillway.podLabels" . }}
{{- end }}

{{- define "spillway.disruption" -}}
{{- $all := .root.Values.podDisruptionBudget }}
{{- $budget := .values.podDisruptionBudget | default dict }}
{{- if hasKey $budget "enabled" | ternary $budget.enabled $all.enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "spillway.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ hasKey $budget "maxUnavailable" | ternary $budget.maxUnavailable $all.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow # a broken pod does not block the drain of its node
  selector:
    matchLabels:
      {{- include "spillway.selector" . | nindent 6 }}
{{- end }}
{{- end }}
