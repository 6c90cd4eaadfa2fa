-- A run has a row per application (a connected component of the call graph), named after its first entry service;
-- '' for what concerns the whole mesh, and for rows of versions before 0.2.0, which had one row per run.
ALTER TABLE solves ADD COLUMN IF NOT EXISTS application LowCardinality(String) DEFAULT '' AFTER ruleset_id;
