"""Status rows, the version to go back to, and the rollback's proposal."""

from datetime import UTC, datetime

import pytest
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR
from spillway_contracts import slices
from spillway_publisher.commands import operator
from spillway_publisher.rules.checks import contract_problems

LOCAL, SPREAD = {"north": {"north": 10_000}}, {"north": {"north": 4000, "south": 6000}}


@pytest.fixture
def history(make):
    """Version 1 is local, 2 is spread, 3 is spread again (a renewal)."""
    parts = [
        slices.cut(make(rules), ["north", "south"], i + 1) for i, rules in enumerate((LOCAL, SPREAD, SPREAD))
    ]
    return {cluster: [part[cluster] for part in parts] for cluster in ("north", "south")}


def test_rollback_skips_renewals(history):
    """The default is the latest version with other rules, not the same rules renewed."""
    assert operator.choose_version(history, None) == 1
    assert operator.choose_version(history, 2) == 2


def test_versions_that_are_not_whole_cannot_be_rolled_back_to(history):
    """A version that some cluster never had, the one in force, and unknown ones are refused."""
    del history["south"][0]
    for version in (1, 3, 99):
        with pytest.raises(operator.OperatorError, match=f"--to {version}: .*; versions: 2"):
            operator.choose_version(history, version)
    with pytest.raises(operator.OperatorError, match="all have the rules in force"):
        operator.choose_version(history, None)
    with pytest.raises(operator.OperatorError, match="no earlier version"):
        operator.choose_version({}, None)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("14:05", "2026-01-31T14:05:00"),
        ("14:05:30", "2026-01-31T14:05:30"),
        ("23:00", "2026-01-30T23:00:00"),  # the last such time was yesterday
        ("2026-01-30T08:00", "2026-01-30T08:00:00"),
        ("2026-01-30T08:00+02:00", "2026-01-30T06:00:00"),
    ],
)
def test_moments_are_the_last_such_time_in_utc_unless_they_say_otherwise(text, at):
    """The result is a version: milliseconds of Unix time."""
    expected = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() * 1000
    assert operator.moment(text, datetime(2026, 1, 31, 15, 0, tzinfo=UTC)) == expected


@pytest.mark.parametrize("text", ["25:00", "yesterday", "2026-02-01", "14:05Z:"])
def test_moments_that_are_none_or_lie_ahead_are_refused(text):
    """The error names what is allowed."""
    with pytest.raises(operator.OperatorError, match=f"--before {text}: must be HH:MM"):
        operator.moment(text, datetime(2026, 1, 31, 15, 0, tzinfo=UTC))


def test_a_checkpoint_with_the_rules_in_force_is_no_way_back(make):
    """The newest checkpoint with other rules is chosen. Without one, the error says so."""
    spread, local = make(SPREAD, version=2), make(LOCAL, version=1)
    assert operator.choose_checkpoint([spread, local], make(SPREAD), "rollback") is local
    with pytest.raises(
        operator.OperatorError, match="--before 14:05: checkpoint 2 has the rules that are in force"
    ):
        operator.choose_checkpoint([spread], make(SPREAD), "--before 14:05")
    with pytest.raises(operator.OperatorError, match="--to 1: no checkpoint"):
        operator.choose_checkpoint([], make(SPREAD), "--to 1")


def test_rollback_is_a_valid_proposal_of_the_operator(history, topology):
    """It passes the contract, has the reason in every rule, and keeps the rules' input window."""
    old = operator.whole(history, 2)
    proposal = operator.rollback(old, 5, "checkout is slow", 600, 10**18)
    assert contract_problems(proposal, topology) == []
    assert proposal.origin == ORIGIN_OPERATOR and proposal.input_window == old.input_window
    assert proposal.rules[0].reason == "rollback to version 2: checkout is slow"
    assert proposal.rules[0].destinations == old.rules[0].destinations


def test_status_rows_tell_what_is_in_force(make):
    """A row has age, expiry and the Envoys' answers per cluster. Unknown answers stay unknown."""
    part = slices.cut(make(LOCAL, now_ns=10**18), ["north"], 5)
    (row,) = operator.status_rows(part, {("north", 5): (3, 1)}, 10**18 + 30 * 10**9)
    assert (row["version"], row["age_s"], row["expires_in_s"], row["acks"], row["nacks"]) == (5, 30, 90, 3, 1)
    assert operator.status_rows(part, None, 10**18)[0]["acks"] is None
    assert "north" in operator.format_table([row]).splitlines()[1]
    assert row["trial_until"] == ""
    part["north"].canary.until.FromNanoseconds(10**18)
    (row,) = operator.status_rows(part, None, 10**18)
    assert row["trial_until"] == "2001-09-09T01:46:40+00:00"
