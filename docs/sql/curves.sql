-- The newest curve of each class, L(u) = a / (1 - u) + b, and the capacity that u is a share of, in
-- each cluster. `left_out`: clusters that the curve does not rest on, because only they have changed.
SELECT class, round(a_ms, 3) AS a_ms, round(b_ms, 3) AS b_ms, round(a_se_ms, 3) AS a_se_ms, round(capacity_rps, 1) AS capacity_rps,
       round(u_min, 2) AS u_min, round(u_max, 2) AS u_max, samples, phase, left_out, cluster, capacity_source
FROM
(
    SELECT service, class, argMax(a_ms, fitted_at) AS a_ms, argMax(b_ms, fitted_at) AS b_ms, argMax(a_se_ms, fitted_at) AS a_se_ms,
           argMax(u_min, fitted_at) AS u_min, argMax(u_max, fitted_at) AS u_max,
           argMax(samples, fitted_at) AS samples, argMax(phase, fitted_at) AS phase,
           extract(argMax(reason, fitted_at), 'as others have not changed: ([^;]*)') AS left_out
    FROM curves GROUP BY service, class
) AS newest
LEFT JOIN
(
    SELECT service, cluster, argMax(capacity_rps, measured_at) AS capacity_rps, argMax(source, measured_at) AS capacity_source
    FROM capacities GROUP BY service, cluster
) AS capacity USING (service)
ORDER BY class, cluster
