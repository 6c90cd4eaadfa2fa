SELECT
    toUnixTimestamp(at), source_cluster, destination_cluster, bucket, sum(calls), sum(time_us)
FROM network_parts FINAL
WHERE partition = %(partition)s
    AND sequence <= transform(toUInt32(source), %(sources)s, %(last)s, toUInt64(0))
    AND at > least((SELECT max(at) FROM network_parts), now()) - %(seconds)s
GROUP BY at, source_cluster, destination_cluster, bucket
ORDER BY at DESC LIMIT %(limit)s
