{{/* TLS from an Istio sidecar to the relay or the collector: with the workload's certificate of the mesh, which comes from
Istio's agent, and the authority of relay and collector. Takes root, identity (URI of the server). */}}
{{- define "spillway.istio.tls" -}}
name: envoy.transport_sockets.tls
typed_config:
  "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
  common_tls_context:
    tls_params: {tls_minimum_protocol_version: TLSv1_3, tls_maximum_protocol_version: TLSv1_3}
    alpn_protocols: [h2]
    tls_certificate_sds_secret_configs:
      - {{- include "spillway.istio.sds" "default" | nindent 8 }}
    validation_context:
      trusted_ca:
        inline_string: {{ required "istio.relayAuthority: not set; needed: PEM of the authority of relay and collector" .root.Values.istio.relayAuthority | quote }}
      match_typed_subject_alt_names:
        - {san_type: URI, matcher: {exact: {{ .identity | quote }}}}
{{- end }}

{{- define "spillway.istio.sds" -}}
name: {{ . }}
sds_config:
  resource_api_version: V3
  api_config_source:
    api_type: GRPC
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services: [{envoy_grpc: {cluster_name: sds-grpc}}]
  initial_fetch_timeout: 0s
{{- end }}

{{/* A cluster with one host name, which uses HTTP/2 over that TLS. Takes root, name, host, port, identity. */}}
{{- define "spillway.istio.server" -}}
name: {{ .name }}
type: STRICT_DNS
connect_timeout: 5s
transport_socket:
  {{- include "spillway.istio.tls" . | nindent 2 }}
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: {http2_protocol_options: {connection_keepalive: {interval: 10s, timeout: 5s}}}
load_assignment:
  cluster_name: {{ .name }}
  endpoints:
    - lb_endpoints:
        - endpoint: {address: {socket_address: {address: {{ .host }}, port_value: {{ .port }}}}}
{{- end }}

{{- define "spillway.istio.fromRelay" -}}
resource_api_version: V3
initial_fetch_timeout: 1s
api_config_source:
  api_type: DELTA_GRPC
  transport_api_version: V3
  set_node_on_first_message_only: true
  grpc_services:
    - envoy_grpc:
        cluster_name: spillway-xds
        retry_policy: {retry_back_off: {base_interval: 0.2s, max_interval: 3s}}
{{- end }}

{{/* A destination of the relay's routes: endpoints from the relay, with the mesh's own mutual TLS. An endpoint is ejected by
the same rules as in the relay's own clusters (rule-publisher/relay/internal/envoy/failover.go). Takes root, destination,
cluster. */}}
{{- define "spillway.istio.destination" -}}
{{- $d := .destination -}}
name: {{ printf "%s|%s" $d.service .cluster | quote }}
type: EDS
eds_cluster_config:
  eds_config:
    {{- include "spillway.istio.fromRelay" . | nindent 4 }}
connect_timeout: 1s
typed_extension_protocol_options:
  {{- include "spillway.istio.sameProtocol" . | nindent 2 }}
lb_policy: LEAST_REQUEST
common_lb_config: {healthy_panic_threshold: {value: 1}, update_merge_window: 0s}
transport_socket:
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    sni: outbound_.{{ $d.port }}_._.{{ $d.service }}.{{ $d.namespace }}.svc.{{ .root.Values.cluster.dnsDomain }}
    common_tls_context:
      alpn_protocols: [istio]
      tls_certificate_sds_secret_configs:
        - {{- include "spillway.istio.sds" "default" | nindent 10 }}
      combined_validation_context:
        default_validation_context:
          match_typed_subject_alt_names:
            - {san_type: URI, matcher: {exact: "spiffe://{{ .root.Values.istio.trustDomain }}/ns/{{ $d.namespace }}/sa/{{ $d.service }}"}}
        validation_context_sds_secret_config:
          {{- include "spillway.istio.sds" "ROOTCA" | nindent 10 }}
{{- end }}
