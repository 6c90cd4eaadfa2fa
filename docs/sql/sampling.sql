-- How sampled are we, and what does that do to counts?
-- Use it before you compare counts with another system, or rely on figures of a rare class. Every
-- row carries the number of requests that it stands for. Sums of these numbers are right on
-- average, with an error from sampling.
--   spans, requests  stored rows, and the requests that they stand for
--   kept_percent     percentage of requests that have a row
--   least_weight, most_weight   requests that one row stands for: at 100, the count of a rare event
--                    changes in steps of 100
--   error_percent    one standard error of `requests`, from sampling alone
-- Parameters: start, end.
SELECT service, class, cluster, count() AS spans, round(sum(adjusted_count), 1) AS requests,
       round(100 * spans / sum(adjusted_count), 2) AS kept_percent,
       round(min(adjusted_count), 3) AS least_weight, round(max(adjusted_count), 3) AS most_weight,
       round(100 * sqrt(sum(adjusted_count * (adjusted_count - 1))) / sum(adjusted_count), 2) AS error_percent
FROM calls FINAL
WHERE started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
GROUP BY service, class, cluster
ORDER BY error_percent DESC, service, class, cluster
