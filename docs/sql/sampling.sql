-- How sampled are we, and what does that do to counts?
-- Use it before you compare counts with another system, or trust a rare class. Every row carries the number of
-- requests that it stands for; sums of that are right on average, and uncertain by sampling.
--   spans, requests     rows stored, and requests that they stand for
--   kept_percent        share of requests that have a row
--   least, most         requests that one row stands for: one of a hundred makes rare things jump
--   error_percent       one standard error of `requests`, from sampling alone
-- Parameters: start, end.
SELECT service, class, cluster, count() AS spans, round(sum(adjusted_count), 1) AS requests,
       round(100 * spans / sum(adjusted_count), 2) AS kept_percent,
       round(min(adjusted_count), 3) AS least_weight, round(max(adjusted_count), 3) AS most_weight,
       round(100 * sqrt(sum(adjusted_count * (adjusted_count - 1))) / sum(adjusted_count), 2) AS error_percent
FROM calls FINAL
WHERE started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
GROUP BY service, class, cluster
ORDER BY error_percent DESC, service, class, cluster
