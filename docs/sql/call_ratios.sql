-- The call graph: calls of a class that one request of another class makes, over everything stored.
SELECT e.source_class AS source_class, e.class AS class,
       round(sum(e.adjusted_count) / any(c.requests), 4) AS calls_per_request,
       round(avg(e.network_us) / 1000, 2) AS network_ms, count() AS calls
FROM (SELECT * FROM edges FINAL) AS e
INNER JOIN (SELECT class AS source_class, sum(adjusted_count) AS requests FROM calls FINAL GROUP BY class) AS c USING (source_class)
GROUP BY source_class, class
ORDER BY source_class, class
