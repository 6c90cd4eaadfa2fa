# A relay answers at its Service and is ready. HOST and PORT are the Service's.
set -u
for _ in $(seq 30); do
  if exec 3<>"/dev/tcp/$HOST/$PORT"; then
    printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
    read -r _ status _ <&3
    exec 3>&-
    if [ "$status" = 200 ]; then echo "relay: ready"; exit 0; fi
    echo "relay: $HOST:$PORT answers /readyz with $status" >&2
  fi
  sleep 2
done
echo "relay: no relay was ready within a minute" >&2
exit 1
