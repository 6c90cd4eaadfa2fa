-- What became of ruleset X, step by step? One row per state, from the proposal to the last Envoy.
-- Use it after `status` or table rulesets has named a version or an id. A refused proposal ends in
-- `refused`. One without `acknowledged` was replaced before every connected Envoy had it.
--   ruleset_id, state         the proposal, and the state that it reached
--   version                   0: it had none yet
--   ms                        milliseconds since the first state
--   origin                    who proposed it: optimizer, papa or operator
--   reason                    why it was refused or changed, and by how many Envoys it was
--                             acknowledged
-- Parameters: ruleset (an id or a version).
SELECT ruleset_id, at, state, version,
       dateDiff('millisecond', min(at) OVER (PARTITION BY ruleset_id), at) AS ms,
       origin, reason
FROM transitions FINAL
WHERE ruleset_id = {ruleset:String}
   OR ruleset_id IN (SELECT ruleset_id FROM transitions WHERE version > 0 AND toString(version) = {ruleset:String})
ORDER BY ruleset_id, at,
         indexOf(['proposed', 'checked', 'refused', 'canary', 'published', 'acknowledged', 'kept', 'rolled_back'], state)
