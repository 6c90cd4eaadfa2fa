-- Acts of operators and what came of them. One row per act, outcome and proposal; a row that is written again, because
-- a publisher was interrupted, replaces the first.
CREATE TABLE IF NOT EXISTS operator_acts
(
    at              DateTime64(3, 'UTC'),     -- when the act was sent, was ended, expired or led to the proposal
    id              String,
    actor           String,                   -- the person
    issuer          String,                   -- who vouches for the actor: a token's issuer, or os
    via             LowCardinality(String),   -- the program that sent it: operator (the command) or console
    act             LowCardinality(String),   -- freeze, kill, deny, maximum_shift, minimum_local_share or end
    target          String,                   -- a denial's JSON, parts of 10 000, or the act that it ends
    before          String,                   -- the value of what it changes, in the guardrails before this row ...
    after           String,                   -- ... and after it
    reason          String,
    expires         DateTime64(3, 'UTC'),     -- of an end: when it was sent
    proposal        String,                   -- of proposed: the ruleset that the publisher proposed because of it
    outcome         LowCardinality(String),   -- accepted, refused, proposed, ended or expired
    detail          String                    -- why it was refused, or who ended it
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (id, outcome, proposal)
SETTINGS non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
