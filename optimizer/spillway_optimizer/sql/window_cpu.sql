-- Mean CPU share of every service in every cluster, over a window.
SELECT cluster, service, avg(utilisation) AS utilisation
FROM cpu_1s FINAL
WHERE cpu_1s.at >= toDateTime64(%(start)s, 3, 'UTC') AND cpu_1s.at < toDateTime64(%(end)s, 3, 'UTC')
GROUP BY cluster, service
