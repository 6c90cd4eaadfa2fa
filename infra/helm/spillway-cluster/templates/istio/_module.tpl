{{/* The pinned source from which Istio's agent fetches the filter's module. For an oci:// image, Istio compares `sha256` with
the digest of the manifest, not with the module. For these images the digest is therefore in the URL. Takes istio.filter. */}}
{{- define "spillway.istio.module" -}}
{{- if hasPrefix "oci://" .url }}
{{- if not (regexMatch "^oci://[^@]+@sha256:[0-9a-f]{64}$" .url) }}
{{- fail (printf "istio.filter.url: '%s' must end in @sha256:<digest of the image's manifest, 64 hex digits>" .url) }}
{{- end }}
{{- if .sha256 }}
{{- fail "istio.filter.sha256: only with http(s)://; of an oci:// image Istio compares it with the manifest's digest, which istio.filter.url has" }}
{{- end }}
{{- else if not .sha256 }}
{{- fail "istio.filter.sha256: not set; needed with an http(s):// istio.filter.url: SHA-256 of the module" }}
{{- end -}}
url: {{ .url | quote }}
{{- with .sha256 }}
sha256: {{ . | quote }}
{{- end }}
imagePullPolicy: {{ .imagePullPolicy }}
{{- with .imagePullSecret }}
imagePullSecret: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Labels of the pods of a workload, as JSON: `labels`, or app: <service> without them. Takes an entry of istio.filter.services or
istio.routes.workloads. */}}
{{- define "spillway.istio.labels" -}}
{{- .labels | default (dict "app" .service) | toJson -}}
{{- end }}
