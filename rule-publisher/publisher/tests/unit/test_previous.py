"""One version of skew: the previous version's proposals, reports and bucket values."""

from pathlib import Path

from spillway.v1.acknowledgement_pb2 import OUTCOME_NACK, Acknowledgement
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import ORIGIN_OPTIMIZER, Ruleset
from spillway_contracts import names, slices, topology
from spillway_publisher.bucket import values
from spillway_publisher.clients.rows import acknowledgement_row
from spillway_publisher.rules.checks import contract_problems
from spillway_publisher.service.reports import read_report

GOLDEN = Path(__file__).resolve().parents[4] / "contracts" / "golden"
[PREVIOUS] = (GOLDEN / "previous").iterdir()
ADDED = b"\xfa\x3f\x01x"  # field 1023, which the next version may add


def read(name: str) -> bytes:
    return (PREVIOUS / name).read_bytes()


def test_a_proposal_of_the_previous_optimizer():
    """It decodes and is valid, even with a field of the next version."""
    declared = topology.load(GOLDEN / "topology.yaml")
    for payload in (read("proposal.binpb"), read("proposal.binpb") + ADDED):
        proposal = Ruleset.FromString(payload)
        assert contract_problems(proposal, declared) == []
        assert (proposal.version, proposal.origin, proposal.policy) == (0, ORIGIN_OPTIMIZER, "spillway")
        assert proposal.rules and proposal.fencing_token


def test_values_of_the_previous_publisher():
    """A new publisher continues from the previous bucket: it knows the versions and rules in it."""
    parts = {c: values.decode(read(f"ruleset_{c}.binpb")) for c in ("east", "west")}
    assert {part.version for part in parts.values()} == {7}
    whole, proposal = slices.join(parts.values()), Ruleset.FromString(read("proposal.binpb"))
    assert sorted(r.SerializeToString() for r in whole.rules) == sorted(
        r.SerializeToString() for r in proposal.rules
    )
    assert values.decode(read("ruleset_west.binpb") + ADDED).version == 7


def test_a_publisher_beside_a_previous_one_writes_what_it_would():
    """The same proposal, cut today, gives the previous publisher's rules and denials."""
    whole = slices.join(Ruleset.FromString(read(f"ruleset_{c}.binpb")) for c in ("east", "west"))
    for cluster, part in slices.cut(whole, ["east", "west"], 7).items():
        assert part == Ruleset.FromString(read(f"ruleset_{cluster}.binpb"))


def test_reports_of_the_previous_relay():
    """Its acknowledgement becomes a row and its heartbeat a placement.

    Fields of the next version are ignored.
    """
    for added in (b"", ADDED):
        ack = read_report(Acknowledgement, read("acknowledgement.binpb") + added, "spillway.acks.west",
                          names.NATS_SUBJECT_ACKS, {"west"})  # fmt: skip
        assert ack.outcome == OUTCOME_NACK
        assert acknowledgement_row(ack)[1:5] == ("west", "gateway", "west~gateway~1", 7)
        heartbeat = read_report(Heartbeat, read("heartbeat.binpb") + added, "spillway.heartbeats.west",
                                names.NATS_SUBJECT_HEARTBEATS, {"west"})  # fmt: skip
        assert (heartbeat.ruleset_version, heartbeat.ttl_seconds) == (7, 10)
        assert {s.service: s.connected_envoys for s in heartbeat.services} == {"gateway": 2, "frontend": 3}
