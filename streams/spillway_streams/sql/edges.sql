SELECT
    toUnixTimestamp(at), source_class, source_service, class, service, source_cluster, cluster,
    sum(calls), sum(failed), sum(request_bytes), sum(response_bytes), sum(samples), sum(callers),
    sum(known), sum(wait_calls)
FROM edge_parts FINAL
WHERE partition = %(partition)s
    AND sequence <= transform(toUInt32(source), %(sources)s, %(last)s, toUInt64(0))
    AND at > least((SELECT max(at) FROM edge_parts), now()) - %(seconds)s
GROUP BY at, source_class, source_service, class, service, source_cluster, cluster
ORDER BY at DESC LIMIT %(limit)s
