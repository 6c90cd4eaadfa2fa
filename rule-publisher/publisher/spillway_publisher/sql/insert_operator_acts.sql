INSERT INTO operator_acts (at, id, actor, issuer, via, act, target, before, after, reason, expires, proposal,
                           outcome, detail) VALUES
