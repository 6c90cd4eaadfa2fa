-- A curve's window begins where the samples that it rests on do: older ones have been forgotten.
SELECT service, class, argMax(input_window, fitted_at)
FROM curves
WHERE xxHash64(service) %% %(count)s = %(partition)s
    AND fitted_at > least((SELECT max(at) FROM load_parts), now()) - %(seconds)s
GROUP BY service, class
