-- Envoys that answered to the version in force of each cluster; the same answer may be stored twice.
SELECT cluster, version, uniqExactIf(envoy, outcome = 'ack') AS acks, uniqExactIf(envoy, outcome = 'nack') AS nacks
FROM acknowledgements
WHERE version IN %(versions)s
GROUP BY cluster, version
