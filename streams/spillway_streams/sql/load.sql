-- Parts beyond the position are of batches that will come again. The positions are given, not joined: they must
-- be the very ones that the reader goes on from.
-- A clock that is ahead must not hide the rest: hence now().
SELECT
    toUnixTimestamp(at), service, class, cluster,
    sum(arrivals), sum(failed), sum(samples), sum(ok), sum(exclusive_ms), sum(exclusive_sq_ms2), sum(stamped),
    sum(rate), sum(class_stamped), sum(class_rate)
FROM load_parts FINAL
WHERE partition = %(partition)s
    AND sequence <= transform(toUInt32(source), %(sources)s, %(last)s, toUInt64(0))
    AND at > least((SELECT max(at) FROM load_parts), now()) - %(seconds)s
GROUP BY at, service, class, cluster
ORDER BY at DESC LIMIT %(limit)s
