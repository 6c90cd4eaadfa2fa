-- How many pods a capacity was measured with, so that it can be scaled by the pods that are live.
-- pods: that served at the newest second of the input window, the larger of those that reported CPU use and of the
-- proxies that stamped requests; 0: unknown. evidence: what the capacity rests on; assumed: on another cluster's pods.
ALTER TABLE capacities
    ADD COLUMN IF NOT EXISTS pods UInt32 DEFAULT 0,
    ADD COLUMN IF NOT EXISTS evidence LowCardinality(String) DEFAULT '';
