{{/* Envoy as a native sidecar: an entry of `initContainers`. Its listeners are open before the application starts, and it
ends after the application. Takes a dict:
  cluster, service   names; service may be empty if the pod has it as label spillway.dev/service
  image              of spillway-envoy, with its tag
  pullPolicy, concurrency, resources, ports {admin, inbound, outbound, ready}   optional
  drain              optional; false for an image without bash: clients are then not told to leave before it ends
  callsOthers        optional; false: the application calls no service, so it is ready before the relay has answered */}}
{{- define "spillway-sidecar.container" -}}
{{- $ports := .ports | default (dict "inbound" 15006 "ready" 15021) -}}
name: spillway-proxy
image: {{ required "spillway-sidecar.container: image is not given" .image }}
imagePullPolicy: {{ .pullPolicy | default "IfNotPresent" }}
restartPolicy: Always
args:
  - -c
  - /etc/spillway-envoy/envoy.yaml
  - --service-node
  - {{ required "spillway-sidecar.container: cluster is not given" .cluster }}/$(SPILLWAY_SERVICE)/$(SPILLWAY_POD)
  - --concurrency
  - {{ .concurrency | default 2 | quote }}
  - --disable-hot-restart
  - --drain-time-s
  - "5"
  - --log-level
  - warning
env:
  - name: SPILLWAY_POD
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: SPILLWAY_SERVICE
    {{- if .service }}
    value: {{ .service }}
    {{- else }}
    valueFrom: {fieldRef: {fieldPath: "metadata.labels['spillway.dev/service']"}}
    {{- end }}
ports:
  - {name: spillway, containerPort: {{ $ports.inbound }}}
# The listeners open when the relay has answered, or has been away for two seconds. From then on the application gets
# its requests. The pod is ready when its own calls also have routes. While relays are away, a rollout waits.
startupProbe:
  httpGet: {path: /live, port: {{ $ports.ready | default 15021 }}}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  httpGet: {path: {{ eq (toString .callsOthers) "false" | ternary "/live" "/ready" }}, port: {{ $ports.ready | default 15021 }}}
  periodSeconds: 5
# Callers' relays drop a terminating pod within a second or two. Until then it serves, and sends its last spans. Clients
# that keep connections and use no relay receive "connection: close" or GOAWAY, more of them each second. The hook waits
# even if Envoy's admin page, which listens on 127.0.0.1 only, has not answered.
lifecycle:
  preStop:
    {{- if eq (toString .drain) "false" }}
    sleep: {seconds: 5}
    {{- else }}
    exec:
      command:
        - bash
        - -c
        - >-
          (exec 3<>/dev/tcp/127.0.0.1/{{ $ports.admin | default 15000 }} &&
          printf 'POST /drain_listeners?graceful&skip_exit&inboundonly HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n' >&3 &&
          timeout 1 cat <&3); sleep 5
    {{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 10001
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
resources:
  {{- toYaml (.resources | default (dict "requests" (dict "cpu" "100m" "memory" "128Mi") "limits" (dict "memory" "1200Mi"))) | nindent 2 }}
volumeMounts:
  - {name: spillway-envoy, mountPath: /etc/spillway-envoy, readOnly: true}
  - {name: spillway-tls, mountPath: /etc/spillway-tls, readOnly: true}
{{- end }}

{{/* The sidecar's volumes: the ConfigMap and the Secret of an entry of spillway-cluster's sidecar.applications. Envoy's user
can read the Secret with any fsGroup of the pod. No other container mounts it. */}}
{{- define "spillway-sidecar.volumes" -}}
- name: spillway-envoy
  configMap: {name: spillway-envoy-{{ .service }}}
- name: spillway-tls
  secret: {secretName: spillway-envoy-{{ .service }}-tls, defaultMode: 0444}
{{- end }}
