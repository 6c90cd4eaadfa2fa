SELECT topic, partition, source, max(sequence)
FROM positions
WHERE job = %(job)s AND partition IN %(partitions)s
GROUP BY topic, partition, source
