-- Where does the time of a request of class X go, down its tree of calls?
-- Use it when a class is slow and you want to know which class causes it. One row per class that X
-- reaches, computed from the calls that one request makes and the time of each call (SLATE 4.2). It
-- works for any class, not only for entry classes.
--   class              indented by its depth below X
--   calls_per_request  calls of the class that one request of X causes on this path
--   own_ms             exclusive time of one such call
--   own_ms_per_request, network_ms_per_request   time that one request of X spends in the class,
--                      and on the network
--   percent            of all that time; calls made at the same time each count in full
-- Parameters: class, start, end.
WITH RECURSIVE
    requests AS
    (
        SELECT class, sum(adjusted_count) AS requests, sum(exclusive_us * adjusted_count) / requests / 1000 AS own_ms
        FROM calls FINAL
        WHERE started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
        GROUP BY class
    ),
    made AS
    (
        SELECT source_class, class, sum(adjusted_count) AS calls,
               sum(ifNull(network_us, 0) * adjusted_count) / calls / 1000 AS network_ms
        FROM edges FINAL
        WHERE started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
        GROUP BY source_class, class
    ),
    steps AS
    (
        SELECT made.source_class AS source_class, made.class AS class, made.calls / requests.requests AS per_request,
               made.network_ms AS network_ms
        FROM made INNER JOIN requests ON requests.class = made.source_class
    ),
    (SELECT groupArray((CAST(source_class, 'String'), CAST(class, 'String'), per_request, network_ms)) FROM steps) AS graph,
    tree AS
    (
        SELECT [CAST({class:String}, 'String')] AS way, toFloat64(1) AS calls, toFloat64(0) AS network_ms
        UNION ALL
        SELECT arrayPushBack(tree.way, step.2), tree.calls * step.3, tree.calls * step.3 * step.4
        FROM tree ARRAY JOIN arrayFilter(one -> one.1 = tree.way[-1] AND NOT has(tree.way, one.2), graph) AS step
        WHERE length(tree.way) < 20
    )
SELECT concat(repeat('  ', length(tree.way) - 1), tree.way[-1]) AS class,
       round(tree.calls, 3) AS calls_per_request,
       round(requests.own_ms, 3) AS own_ms,
       round(tree.calls * requests.own_ms, 3) AS own_ms_per_request,
       round(tree.network_ms, 3) AS network_ms_per_request,
       round(100 * (tree.calls * requests.own_ms + tree.network_ms) / sum(tree.calls * requests.own_ms + tree.network_ms) OVER (), 1) AS percent
FROM tree INNER JOIN requests ON CAST(requests.class, 'String') = tree.way[-1]
ORDER BY tree.way
