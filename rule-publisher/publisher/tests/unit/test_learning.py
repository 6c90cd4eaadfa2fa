"""A publisher without trusted values in bucket and checkpoints: a stolen key was dropped."""

import asyncio
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Ruleset
from spillway_contracts import names
from spillway_contracts.guardrails import GuardrailFile
from spillway_publisher.bucket import checkpoints, signing
from spillway_publisher.bucket.keys import Keys
from spillway_publisher.commands import commands
from spillway_publisher.process.config import RunSettings
from spillway_publisher.process.telemetry import Telemetry
from spillway_publisher.rules.checks import Context
from spillway_publisher.rules.guardrails import decide
from spillway_publisher.service import service

HALF = {"north": {"north": 5000, "south": 5000}}
STOLEN = Ed25519PrivateKey.generate()
MANY = 5000


class Stream:
    """Replaces JetStream: checkpoints by sequence number, and what is proposed."""

    def __init__(self, messages: list[RawStreamMsg]) -> None:
        self.messages, self.reads, self.stuck, self.proposed = messages, 0, False, []

    async def stream_info(self, name: str):
        return SimpleNamespace(state=SimpleNamespace(first_seq=1, last_seq=len(self.messages)))

    async def get_msg(self, stream: str, seq: int, subject: str, next: bool) -> RawStreamMsg:
        self.reads += 1
        await asyncio.sleep(60 if self.stuck else 0)
        if not 0 < seq <= len(self.messages):
            raise NotFoundError
        return self.messages[seq - 1]

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        self.proposed.append(Ruleset.FromString(payload))


def signed(ruleset: Ruleset, by, sequence: int) -> RawStreamMsg:
    payload = ruleset.SerializeToString()
    headers = signing.sign(by, names.NATS_SUBJECT_CHECKPOINTS, payload)
    return RawStreamMsg(subject=names.NATS_SUBJECT_CHECKPOINTS, seq=sequence, data=payload, headers=headers)


@pytest.fixture
def stolen(make):
    """Thousands of checkpoints that the dropped key has signed."""
    forged = signed(make(HALF, version=7), STOLEN, 1)
    return Stream(
        [RawStreamMsg(forged.subject, seq, forged.data, headers=forged.headers) for seq in range(1, MANY + 1)]
    )


@pytest.fixture
def key(tmp_path):
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "signing.key").write_bytes(pem)
    return key


@pytest.fixture
def publisher(key, tmp_path, topology, monkeypatch):
    monkeypatch.setattr(service, "LEARN_S", 0.2)
    (tmp_path / "topology.yaml").write_text("")
    (tmp_path / "guardrails.yaml").write_text("{maximum_shift: 1000, kill: true}")
    settings = RunSettings(
        nats_url="nats://publisher:x@127.0.0.1:1",
        redis_url="redis://127.0.0.1:1",
        clickhouse_url="clickhouse://x:y@127.0.0.1:1/z",
        signing_key=tmp_path / "signing.key",
        topology=tmp_path / "topology.yaml",
        health_listen="127.0.0.1:1",
    )
    guardrails = GuardrailFile(tmp_path / "guardrails.yaml", topology)
    return service.Service(settings, topology, guardrails, Keys(settings.signing_key, None), Telemetry())


async def test_of_thousands_that_a_dropped_key_signed_a_few_are_read(stolen, key, tmp_path, make):
    """Only the last checkpoints are searched for the newest valid one, and it is found there."""
    telemetry = Telemetry()
    kept = checkpoints.Checkpoints(Keys(tmp_path / "signing.key", None), telemetry, 1, 1)
    assert await kept.newest(stolen) is None
    assert stolen.reads == checkpoints.REACH == telemetry.counters["malformed.checkpoint.unknown_key"]
    stolen.messages[-checkpoints.REACH] = signed(make(HALF, version=9), key, MANY - checkpoints.REACH + 1)
    assert (await kept.newest(stolen)).version == 9


async def test_the_kill_switch_and_the_operator_act_while_checkpoints_cannot_be_read(
    publisher, stolen, make, topology
):
    """The session is prepared without checkpoints.

    What is in force is then unknown, so the optimizer's proposal is held. Local-first is proposed,
    and it is published, as is an operator's ruleset. Once checkpoints can be read again, silent
    relays hold nothing back any more.
    """
    stolen.stuck = True
    await asyncio.wait_for(publisher._learn(stolen), 5)
    assert "the newest checkpoint cannot be read: no answer within 0.2 s" in publisher._unknown()
    await publisher._enforcing.enforce(stolen)
    (killed,) = stolen.proposed
    assert killed.origin == ORIGIN_OPERATOR and not killed.rules
    policy = publisher._enforcing._guardrails.current
    free = policy.model_copy(update={"kill": False})
    for proposal, chosen, refused_by in (
        (killed, policy, ""),
        (make(HALF, origin=ORIGIN_OPERATOR), free, ""),
        (make(HALF), free, "unknown"),
    ):
        now_ns = proposal.created_at.ToNanoseconds()
        context = Context(topology, chosen, {}, now_ns, unknown=publisher._unknown())
        assert decide(proposal, context).refused_by == refused_by
    stolen.stuck = False
    await publisher._learn(stolen)
    publisher._listening_since -= 3600
    assert publisher._unknown() is None


async def test_a_rollback_finds_its_checkpoint_beside_an_empty_bucket(key, tmp_path, make):
    """It finds the newest that a trusted key has signed.

    Nothing is in force that could differ from it.
    """
    (tmp_path / "keys.pem").write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    signed_by = commands._Signed(SimpleNamespace(ruleset_keys=tmp_path / "keys.pem"))
    js = Stream([signed(make(HALF, version=9), key, 1), signed(make(HALF, version=11), STOLEN, 2)])
    assert (await commands._earlier(js, signed_by, {}, None, None)).version == 9
    assert (await commands._earlier(js, signed_by, {}, 9, None)).version == 9
