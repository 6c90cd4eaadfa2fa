{{/* The path of a request to the relay's routes and back, within one sidecar (docs/adr/0035):

  Istio's listener, its routes -> spillway|<service> -> listener spillway-outbound, the relay's routes -> <service>|<cluster>
                                                  `-> Istio's own cluster of the service, until the relay has answered
*/}}

{{/* HTTP/2 stays HTTP/2, so gRPC works. */}}
{{- define "spillway.istio.sameProtocol" -}}
envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
  "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
  use_downstream_protocol_config: {http_protocol_options: {}, http2_protocol_options: {}}
{{- end }}

{{/* No limits here, because the limits of the destinations apply. */}}
{{- define "spillway.istio.unlimited" -}}
{max_connections: 4294967295, max_pending_requests: 4294967295, max_requests: 4294967295, max_retries: 4294967295}
{{- end }}

{{/* A cluster whose only endpoint is the listener with the relay's routes. It is healthy once the relay has sent its routes. */}}
{{- define "spillway.istio.hop" -}}
name: spillway-outbound
type: STATIC
connect_timeout: 1s
circuit_breakers: {thresholds: [{{ include "spillway.istio.unlimited" . }}]}
common_lb_config: {healthy_panic_threshold: {value: 0}}
typed_extension_protocol_options:
  {{- include "spillway.istio.sameProtocol" . | nindent 2 }}
health_checks:
  - timeout: 1s
    interval: 1s
    no_traffic_interval: 1s
    no_traffic_healthy_interval: 60s
    unhealthy_threshold: 1
    healthy_threshold: 1
    http_health_check: {path: /}
load_assignment:
  cluster_name: spillway-outbound
  endpoints:
    - lb_endpoints:
        - endpoint:
            address: {envoy_internal_address: {server_listener_name: spillway-outbound}}
            health_check_config: {address: {pipe: {path: "@spillway-ready"}}}
{{- end }}

{{/* The cluster that Istio's routes of a destination lead to. Istio's metrics take the name of the destination from its
metadata. Takes destination, host. */}}
{{- define "spillway.istio.way" -}}
name: {{ printf "spillway|%s" .destination.service | quote }}
connect_timeout: 1s
lb_policy: CLUSTER_PROVIDED
circuit_breakers: {thresholds: [{{ include "spillway.istio.unlimited" . }}]}
typed_extension_protocol_options:
  {{- include "spillway.istio.sameProtocol" . | nindent 2 }}
metadata:
  filter_metadata:
    istio: {services: [{host: {{ .host }}, name: {{ .destination.service }}, namespace: {{ .destination.namespace }}}]}
cluster_type:
  name: envoy.clusters.aggregate
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig
    clusters: [spillway-outbound, {{ printf "outbound|%v||%s" .destination.port .host | quote }}]
{{- end }}

{{/* An HTTP connection manager with routes from the relay. Takes root, name of the routes. */}}
{{- define "spillway.istio.relayed" -}}
"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
stat_prefix: {{ .name }}
stream_idle_timeout: 0s
generate_request_id: false
skip_xff_append: true
server_header_transformation: PASS_THROUGH
rds:
  route_config_name: {{ .name }}
  config_source:
    {{- include "spillway.istio.fromRelay" .root | nindent 4 }}
{{- end }}

{{/* The listener with the relay's routes. The service is the one whose route Istio chose, whatever name the caller used. The
caller's Host header is restored before the request leaves. Takes root, workload. */}}
{{- define "spillway.istio.listener" -}}
name: spillway-outbound
internal_listener: {}
traffic_direction: OUTBOUND
filter_chains:
  - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          {{- include "spillway.istio.relayed" (dict "root" .root "name" "spillway-outbound") | nindent 10 }}
          upgrade_configs: [{upgrade_type: websocket}]
          local_reply_config:
            mappers:
              - filter: {response_flag_filter: {flags: [NR]}}
                status_code: 503
                body: {inline_string: "spillway: no route to this service from the relay\n"}
          http_filters:
            - name: spillway-service
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
                default_source_code:
                  inline_string: |
                    function envoy_on_request(request)
                      local headers = request:headers()
                      headers:replace("x-spillway-authority", headers:get(":authority"))
                      headers:replace(":authority", headers:get("x-spillway-service"))
                      request:clearRouteCache()
                    end
            {{- with include "spillway.istio.plugins" . | trim }}
            {{- . | nindent 12 }}
            {{- end }}
            - name: spillway-authority
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
                clear_route_cache: false
                default_source_code:
                  inline_string: |
                    function envoy_on_request(request)
                      request:metadata() -- of the route: Envoy chooses it now, by the service
                      local headers = request:headers()
                      headers:replace(":authority", headers:get("x-spillway-authority"))
                      headers:remove("x-spillway-authority")
                      headers:remove("x-spillway-service")
                    end
            - name: envoy.filters.http.router
              typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
{{- end }}

{{/* Answers the health check of spillway-outbound once the relay has sent its routes. Takes root. */}}
{{- define "spillway.istio.ready" -}}
name: spillway-ready
address: {pipe: {path: "@spillway-ready"}}
traffic_direction: OUTBOUND
filter_chains:
  - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          {{- include "spillway.istio.relayed" (dict "root" .root "name" "spillway-ready") | nindent 10 }}
          http_filters:
            - name: envoy.filters.http.router
              typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
{{- end }}

{{/* Names of the filter's configuration in istiod, as JSON: the name in Istio 1.29 and before, and the name in 1.30 and later.
Empty for a workload without the filter. Takes root, workload. */}}
{{- define "spillway.istio.pluginNames" -}}
{{- $names := list -}}
{{- if .root.Values.istio.filter.url -}}
{{- range .root.Values.istio.filter.services -}}
{{- if and (eq .service $.workload.service) (eq .namespace $.workload.namespace) -}}
{{- $plugin := printf "%s.spillway-%s-outbound" $.workload.namespace $.workload.service -}}
{{- $names = list (printf "extensions.istio.io/wasmplugin/%s" $plugin) (printf "extensions.istio.io/trafficextension/%s~istio-translated-wasmplugin" $plugin) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson $names }}
{{- end }}

{{/* The filter in the listener with the relay's routes, so that its spans carry their class, cluster and version. istiod knows
only one of the two names. The filter of the other name keeps its default configuration, which does nothing. */}}
{{- define "spillway.istio.plugins" -}}
{{- range include "spillway.istio.pluginNames" . | fromJsonArray }}
- name: {{ . }}
  config_discovery:
    config_source: {ads: {}, initial_fetch_timeout: 0s, resource_api_version: V3}
    type_urls:
      - type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
      - type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC
    apply_default_config_without_warming: true
    default_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC}
{{- end }}
{{- end }}
