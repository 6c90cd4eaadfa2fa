{{/* infra/envoy/pod.yaml, filled in for one application. --service-node passes the name of the pod. */}}
{{- define "spillway.envoy.fill" -}}
{{- $v := .root.Values -}}
{{- $values := dict
  "SPILLWAY_CLUSTER" $v.cluster.name
  "SPILLWAY_SERVICE" .application.service
  "SPILLWAY_EDGE" .application.edge
  "SPILLWAY_SAMPLE_RATIO" (include "spillway.sampleRatio" (dict "root" .root "namespace" .application.namespace))
  "SPILLWAY_POD" "named-by-service-node"
  "SPILLWAY_FILTER_WASM" "/etc/spillway/spillway_filter.wasm"
  "SPILLWAY_TLS_DIR" "/etc/spillway-tls"
  "SPILLWAY_SDS_DIR" "/etc/spillway-envoy"
  "XDS_IDENTITY" (printf "spiffe://%s/cluster/%s/relay" $v.trustDomain $v.cluster.name)
  "COLLECTOR_IDENTITY" (printf "spiffe://%s/cluster/%s/collector" $v.trustDomain $v.cluster.name)
  "ENVOY_ADMIN_HOST" "127.0.0.1"
  "ENVOY_ADMIN_PORT" $v.sidecar.ports.admin
  "ENVOY_READY_HOST" "0.0.0.0"
  "ENVOY_READY_PORT" $v.sidecar.ports.ready
  "ENVOY_INBOUND_HOST" "0.0.0.0"
  "ENVOY_INBOUND_PORT" $v.sidecar.ports.inbound
  "ENVOY_OUTBOUND_HOST" "127.0.0.1"
  "ENVOY_OUTBOUND_PORT" $v.sidecar.ports.outbound
  "APP_HOST" "127.0.0.1"
  "APP_PORT" .application.appPort
  "XDS_ENDPOINTS" (printf "[{ endpoint: { address: { socket_address: { address: %s, port_value: 18000 } } } }]" (include "spillway.host" (dict "root" .root "name" "spillway-relay")))
  "COLLECTOR_HOST" (include "spillway.host" (dict "root" .root "name" "spillway-collector"))
  "COLLECTOR_PORT" 4317
-}}
{{- $text := .root.Files.Get (printf "files/envoy/%s" .file) -}}
{{- range $name, $value := $values }}{{ $text = replace (printf "${%s}" $name) (toString $value) $text }}{{ end -}}
{{- with regexFind "\\$\\{[A-Z_]+\\}" $text }}{{ fail (printf "files/envoy: placeholder %s has no value in the chart" .) }}{{ end -}}
{{ $text }}
{{- end }}

{{/* The bootstrap, with the listener for probes. Here the certificate of the collector may also have the name of its Service
instead of its URI. */}}
{{- define "spillway.envoy.bootstrap" -}}
{{- $config := include "spillway.envoy.fill" (merge (dict "file" "pod.yaml") .) | fromYaml -}}
{{- $name := dict "san_type" "DNS" "matcher" (dict "exact" (include "spillway.host" (dict "root" .root "name" "spillway-collector"))) -}}
{{- range $config.static_resources.clusters -}}
{{- if eq .name "spillway-collector" -}}
{{- $expected := .transport_socket.typed_config.common_tls_context.combined_validation_context.default_validation_context -}}
{{- $_ := set $expected "match_typed_subject_alt_names" (append $expected.match_typed_subject_alt_names $name) -}}
{{- end -}}
{{- end -}}
{{- $ready := include "spillway.envoy.fill" (merge (dict "file" "ready.yaml") .) | fromYaml -}}
{{- $_ := set $config.static_resources "listeners" (append $config.static_resources.listeners $ready) -}}
{{ toYaml $config }}
{{- end }}
