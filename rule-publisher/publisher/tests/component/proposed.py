"""What these tests propose, and the query for a proposal's row."""

SPREAD = {"north": {"north": 4000, "south": 6000}, "south": {"south": 10_000}}
LOCAL = {"north": {"north": 10_000}, "south": {"south": 10_000}}
RULESET = "SELECT version, outcome, origin, policy, reason FROM rulesets WHERE ruleset_id = %(id)s"
