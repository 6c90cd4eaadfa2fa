-- Who did what to the guardrails, and what came of it? One row per act and outcome, newest act first.
-- Use it when weights stay, or requests stay local, and nobody has changed the guardrail file.
--   at                        when the act was sent, led to a proposal, was ended, or expired
--   id, act, target           the act; an `end` names in target the act that it ended
--   actor, issuer, via        the person, who vouches for the person, and the program that sent it
--   reason                    why, in the person's words
--   outcome                   accepted, refused, proposed, ended or expired
--   before, after             the value of what it changes, in the guardrails before and after this row
--   expires                   when it expires by itself
--   detail                    why it was refused, or who ended it
--   proposal, became, version the ruleset that the publisher proposed to apply it, the last state of
--                             that, and its version; empty and 0 when the act alone was enough
-- Parameters: start, end.
WITH reached AS (
    SELECT ruleset_id, argMax(state, (at, version)) AS became, max(version) AS newest
    FROM transitions FINAL
    WHERE ruleset_id IN (SELECT proposal FROM operator_acts WHERE proposal != '')
    GROUP BY ruleset_id
)
SELECT acts.at AS at, id, act, target, actor, issuer, via, acts.reason AS reason, outcome, before, after, expires,
       detail, proposal, became, newest AS version
FROM (SELECT *, min(at) OVER (PARTITION BY id) AS sent FROM operator_acts FINAL) AS acts
LEFT JOIN reached ON reached.ruleset_id = acts.proposal
WHERE sent BETWEEN {start:DateTime64(3, 'UTC')} AND {end:DateTime64(3, 'UTC')}
ORDER BY sent DESC, id, at, indexOf(['accepted', 'refused', 'proposed', 'ended', 'expired'], outcome)
