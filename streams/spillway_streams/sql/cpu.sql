-- A service's partition is the hash of its name, as the collector and `exclusive` compute it.
SELECT toUnixTimestamp(at), cluster, service, pod, utilisation
FROM cpu_1s FINAL
WHERE xxHash64(service) %% %(count)s = %(partition)s AND at > least((SELECT max(at) FROM cpu_1s), now()) - %(seconds)s
