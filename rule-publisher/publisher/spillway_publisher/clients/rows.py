"""Converts messages to rows of contracts/clickhouse (0011, 0012, 0013, 0031, 0033). Pure.

The columns are in the order of sql/.
"""

from datetime import UTC, datetime
from importlib import resources

from spillway.v1.acknowledgement_pb2 import OUTCOME_ACK, OUTCOME_NACK, Acknowledgement
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import traffic_class
from spillway_contracts.acts import Act

PUBLISHED, REFUSED = "published", "refused"
# States of table transitions, besides these two
PROPOSED, CHECKED, ACKNOWLEDGED = "proposed", "checked", "acknowledged"
CANARY, KEPT, ROLLED_BACK = "canary", "kept", "rolled_back"
OUTCOMES = {OUTCOME_ACK: "ack", OUTCOME_NACK: "nack"}


def sql(name: str) -> str:
    """Returns the statement in sql/<name>.sql."""
    return resources.files("spillway_publisher").joinpath("sql", f"{name}.sql").read_text()


def ruleset_row(ruleset: Ruleset, version: int, outcome: str, reason: str, at: datetime) -> tuple:
    """Returns the audit row of one proposal; the version is 0 when it was refused."""
    window = ruleset.input_window.id
    return at, ruleset.id, version, _origin(ruleset), ruleset.policy, window, outcome, reason


def transition_row(ruleset: Ruleset, version: int, state: str, reason: str, at: datetime) -> tuple:
    """Returns the row of a proposal that has reached a state; version 0: it has none yet."""
    return at, ruleset.id, version, state, _origin(ruleset), reason


def _origin(ruleset: Ruleset) -> str:
    known = ruleset.origin in Origin.values() and ruleset.origin
    return Origin.Name(ruleset.origin).removeprefix("ORIGIN_").lower() if known else ""


def act_row(
    act: Act,
    at: datetime,
    outcome: str,
    detail: str = "",
    before: str = "",
    after: str = "",
    proposal: str = "",
) -> tuple:
    """Returns the row of an outcome of an act."""
    who = act.actor, act.issuer, act.via
    expires = (act.expires or at).astimezone(UTC)
    values = before, after, act.reason, expires, proposal, outcome, detail
    return at, act.id, *who, act.act, act.target, *values


def unreadable_act_row(sequence: int, via: str, at: datetime, outcome: str, detail: str) -> tuple:
    """Returns the row of a message that is no act. Its number in the stream stands for an id."""
    return at, f"message-{sequence}", "", "", via, "", "", "", "", "", at, "", outcome, detail


def rule_rows(ruleset: Ruleset, version: int, at: datetime) -> list[tuple]:
    """Returns one row per rule and destination of a published ruleset."""
    return [
        (
            at,
            version,
            ruleset.id,
            rule.source_cluster,
            rule.source_service,
            traffic_class.format_id(rule.traffic_class),
            destination.cluster,
            destination.weight,
            destination.predicted_compute_ms,
            destination.predicted_network_ms,
            rule.reason,
        )
        for rule in ruleset.rules
        for destination in rule.destinations
    ]


def acknowledgement_row(message: Acknowledgement) -> tuple:
    """Returns the row. Raises ValueError when the time or the outcome is invalid."""
    if message.outcome not in OUTCOMES:
        raise ValueError(f"outcome: {message.outcome}; must be OUTCOME_ACK or OUTCOME_NACK")
    message.at.ToJsonString()  # raises ValueError outside of years 1 to 9999
    at = datetime.fromtimestamp(message.at.ToNanoseconds() / 1e9, UTC)
    if not 2000 <= at.year < 2200:
        raise ValueError(f"at: {message.at.ToJsonString()}; must lie in the years 2000 to 2199")
    return (
        at,
        message.cluster,
        message.service,
        message.envoy,
        message.ruleset_version,
        message.type_url,
        OUTCOMES[message.outcome],
        message.detail,
    )
