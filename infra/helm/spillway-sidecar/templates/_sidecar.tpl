{{/* Envoy as a native sidecar: an entry of `initContainers`. It is started, and has its listeners open, before the
application starts, and ends after it. Takes a dict:
  cluster, service   names; service may be empty where the pod's label spillway.dev/service tells it
  image              of spillway-envoy, with its tag
  pullPolicy, concurrency, resources, ports {admin, inbound, outbound, ready}   optional
  drain              optional; false: an image without bash, which then tells its clients nothing before it ends
  callsOthers        optional; false: the application calls no service, and is ready before the relay has answered */}}
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
# its requests. The pod is ready when its own calls have routes too: while relays are away a rollout waits.
startupProbe:
  httpGet: {path: /live, port: {{ $ports.ready | default 15021 }}}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  httpGet: {path: {{ eq (toString .callsOthers) "false" | ternary "/live" "/ready" }}, port: {{ $ports.ready | default 15021 }}}
  periodSeconds: 5
# Callers' relays drop a terminating pod within a second or two; until then it serves, and the last spans leave. Clients
# that keep connections, and ask no relay, are sent away: by "connection: close" or GOAWAY, more of them each second.
# The wait comes whether or not Envoy's admin page, which is on 127.0.0.1 only, has answered.
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

{{/* Its volumes: the ConfigMap and the Secret that spillway-cluster's sidecar.applications name. The Secret may be read
by Envoy's user whatever the pod's fsGroup is; no other container mounts it. */}}
{{- define "spillway-sidecar.volumes" -}}
- name: spillway-envoy
  configMap: {name: spillway-envoy-{{ .service }}}
- name: spillway-tls
  secret: {secretName: spillway-envoy-{{ .service }}-tls, defaultMode: 0444}
{{- end }}
