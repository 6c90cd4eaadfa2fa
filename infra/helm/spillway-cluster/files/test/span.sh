# The collectors take a span over mutual TLS. A collector of this pod's own, as an agent, takes it in clear and hands it on.
# The span is of an inner function: Spillway counts no call by it.
set -u
/etc/spillway/run --config /etc/spillway/agent.yaml &
agent=$!
trap 'kill $agent' EXIT

ask() { # port, request: the answer
  exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
  printf '%s\r\n\r\n%s' "$2" "${3:-}" >&3
  cat <&3
  exec 3>&-
}

now=$(date +%s%N)
span='{"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "spillway-test"}}]},
  "scopeSpans": [{"spans": [{"traceId": "'$(printf %032x "$now")'", "spanId": "'$(printf %016x "$now")'", "name": "helm test",
  "kind": 1, "startTimeUnixNano": "'$now'", "endTimeUnixNano": "'$now'"}]}]}]}'
post=$(printf 'POST /v1/traces HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %s' ${#span})
sent=
for _ in $(seq 30); do
  kill -0 $agent || exit 1
  if [ -z "$sent" ]; then
    case $(ask "${SPILLWAY_OTLP_HTTP_LISTEN##*:}" "$post" "$span") in *" 200 "*) sent=yes ;; esac
  elif ask "${SPILLWAY_METRICS_LISTEN##*:}" 'GET /metrics HTTP/1.0' |
    grep -Eq '^otelcol_exporter_sent_spans(_total)?\{.*\} [1-9]'; then
    echo "collector: took the span"
    exit 0
  fi
  sleep 2
done 2>/dev/null
echo "collector: $SPILLWAY_GATEWAY took no span within a minute; see above" >&2
exit 1
