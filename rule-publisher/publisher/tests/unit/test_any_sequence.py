"""No sequence of events publishes what breaks a guardrail, or takes an Envoy to a lower version.

Two publishers share one bucket. Events are proposals of every origin, writes that fail, publishers
that crash, changes of the guardrail file, acts of operators over it that are ended or expire,
trials that end either way (a NACK, failed calls, their time), and time that passes. The bucket is
in memory, and everything that decides is the real code.
"""

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from jetstream_in_memory import JetStreamInMemory
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, ORIGIN_OPTIMIZER, ORIGIN_PAPA, Origin, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import names, traffic_class
from spillway_contracts import ruleset as contract
from spillway_contracts.acts import Act, KeptAct
from spillway_contracts.bases import positive, rule_key
from spillway_contracts.guardrails import CanaryPolicy, Denial, Guardrails, Pin, check
from spillway_publisher.bucket.bucket import Bucket
from spillway_publisher.bucket.keys import Keys
from spillway_publisher.process.telemetry import Telemetry
from spillway_publisher.rules import acts, canary, denials, freeze, held
from spillway_publisher.service.proposals import Proposals
from spillway_publisher.trials import conclusions

CLASS = "shop GET /items/{id}"
TOTAL = 10_000
SECOND = 10**9
CLUSTERS = ["island", "north", "south"]
LINKS = {("north", "south"), ("south", "north"), ("north", "island")}
ORIGINS = [ORIGIN_OPTIMIZER, ORIGIN_PAPA, ORIGIN_OPERATOR]
CLOCKS = ("service.proposals", "bucket.bucket", "bucket.values")


def _topology() -> Topology:
    topology = Topology()
    for name in CLUSTERS:
        topology.clusters.add(name=name, region=name)
    for source, destination in sorted(LINKS):
        topology.links.add(source_cluster=source, destination_cluster=destination, rtt_ms=10)
    shop = topology.services.add(name="shop")
    for name in ("north", "south"):
        shop.placements.add(cluster=name)
    topology.services.add(name="web")
    return topology


TOPOLOGY = _topology()
_FOLDER = tempfile.TemporaryDirectory()
_KEY = Path(_FOLDER.name) / "signing.key"
_KEY.write_bytes(
    Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
)
KEYS = Keys(_KEY, None)

ACT = {"reason": "incident 42", "actor": "ada", "issuer": "os", "via": "operator"}
CANARY = CanaryPolicy(share=2500, seconds=30)
share = st.integers(0, TOTAL)
# {source: weight of south} and the same towards north; None: no rule
weights = st.fixed_dictionaries({"north": st.none() | share, "south": st.none() | share})
policies = st.builds(
    Guardrails,
    maximum_shift=st.none() | st.integers(1, 5000),
    minimum_local_share=st.sampled_from([0, 1000, 6000]),
    operator_hold=st.sampled_from([False, False, True]),
    kill=st.sampled_from([*[False] * 7, True]),
    freeze=st.sampled_from([*[False] * 5, True]),
    denied_destinations=st.lists(
        st.builds(Denial, source_cluster=st.sampled_from([None, "north"]), clusters=st.just(["south"])),
        max_size=1,
    ),
    pins=st.lists(
        st.builds(
            lambda local: Pin(
                source_cluster="north",
                source_service="web",
                traffic_class=CLASS,
                destinations={"north": local, "island": TOTAL - local},
            ),
            share,
        ),
        max_size=1,
    ),
    canary=st.sampled_from([None, CANARY, CANARY]),
).filter(lambda policy: check(policy, TOPOLOGY) == [])


def takes(highest: int, ruleset: Ruleset, now_ns: int) -> bool:
    """Returns whether a relay takes a ruleset, as internal/control/events.go decides."""
    ahead = now_ns // 1_000_000 + names.VALUE_VERSION_AHEAD_MS
    return highest < ruleset.version <= ahead and ruleset.expires_at.ToNanoseconds() > now_ns


class Recorded:
    """Replaces history, Redis and a message."""

    def __getattr__(self, name: str):
        return lambda *_, **__: None


class Publishing(RuleBasedStateMachine):
    """The two publishers, the bucket, and one relay per cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns, self.count = 1_800_000_000 * SECOND, 0
        clock = SimpleNamespace(time_ns=lambda: self.now_ns, time=lambda: self.now_ns / 1e9)
        self.patches = [mock.patch(f"spillway_publisher.{module}.time", clock) for module in CLOCKS]
        for patch in self.patches:
            patch.start()
        self.loop = asyncio.new_event_loop()
        self.policy = self.file = Guardrails(canary=CANARY, operator_hold=False)
        self.kept: dict[str, KeptAct] = {}
        self.js = JetStreamInMemory(self.written)
        self.values: dict[str, Ruleset] = {}
        self.ids: dict[int, str] = {}
        self.wrong: list[AssertionError] = []
        self.highest = dict.fromkeys(CLUSTERS, 0)
        # The version that a crash has interrupted, and the guardrails that it was decided under
        self.interrupted: int | None = None
        self.publishers = [self.started(), self.started()]

    def teardown(self) -> None:
        for patch in self.patches:
            patch.stop()
        self.loop.close()

    def started(self) -> Proposals:
        bucket = Bucket(CLUSTERS, KEYS, Telemetry())
        bucket.attach(self.js)
        self.loop.run_until_complete(bucket.load())
        return Proposals(TOPOLOGY, self.policy, bucket, Recorded(), Recorded(), Telemetry())

    # What is written

    def written(self, cluster: str, payload: bytes) -> None:
        """Checks a value as it reaches the bucket. The publisher handles failed assertions."""
        try:
            self.checked(cluster, payload)
        except AssertionError as error:
            self.wrong.append(error)

    def checked(self, cluster: str, payload: bytes) -> None:
        """Checks the value against the one before it, and against the guardrails."""
        value, before = Ruleset.FromString(payload), self.values.get(cluster)
        assert before is None or value.version > before.version, "a version goes backwards"
        assert self.ids.setdefault(value.version, value.id) == value.id, "one version for two proposals"
        self.values[cluster] = value
        assert contract.check(value, TOPOLOGY) == []
        wanted = [d for d in denials.of(self.policy, CLUSTERS) if d.source_cluster == cluster]
        assert list(value.denials) == wanted
        self.allowed(value, before, cluster)
        if value.HasField("canary"):
            tried = value.canary.ruleset
            assert contract.check(tried, TOPOLOGY) == [] and list(tried.denials) == wanted
            assert before is not None and not before.HasField("canary") and value.origin != ORIGIN_OPERATOR
            assert not self.policy.freeze or value.version == self.interrupted
            if not (self.policy.denied_destinations or self.policy.pins or self.policy.minimum_local_share):
                routed = {rule_key(r): positive(r) for r in self.routed(before)}
                assert {rule_key(r): positive(r) for r in value.rules} == routed, "a weight beside a trial"
            self.allowed(tried, before, cluster)

    def allowed(self, value: Ruleset, before: Ruleset | None, cluster: str) -> None:
        """Checks the guardrails, each as its key describes it."""
        policy = self.policy
        base = {rule_key(rule): positive(rule) for rule in self.routed(before)}
        pinned = {(p.source_cluster, p.source_service, p.traffic_class): p.destinations for p in policy.pins}
        rules = {rule_key(rule): positive(rule) for rule in value.rules}
        if policy.kill:
            assert all(set(to) == {cluster} for to in rules.values()), "the kill switch"
            return
        for key, pin in pinned.items():
            if key[0] == cluster:
                assert rules[key] == {c: w for c, w in pin.items() if w}, "a pin"
        for key, to in rules.items():
            assert not self.denied(key, to), "a denial"
            if key in pinned or self.denied(key, {cluster: 1}):
                continue
            start = base.get(key, {cluster: TOTAL})
            moved = sum(max(0, weight - start.get(c, 0)) for c, weight in to.items())
            bound = policy.maximum_shift
            if bound is None or value.origin == ORIGIN_OPERATOR or self.denied(key, start):
                bound = TOTAL
            assert moved <= bound, f"{moved} moved of {key}"
            # On the way to the least share, no step is longer than a shift may be.
            assert to.get(cluster, 0) >= policy.minimum_local_share or moved == bound, "the least local share"
        expired = before is not None and before.expires_at.ToNanoseconds() <= self.now_ns
        if (
            policy.freeze
            and value.origin != ORIGIN_OPERATOR
            and value.version != self.interrupted
            and not expired
        ):
            for key in (rules.keys() | base.keys()) - pinned.keys():
                start = base.get(key, {cluster: TOTAL})
                if not self.denied(key, start) and start.get(cluster, 0) >= policy.minimum_local_share:
                    assert rules.get(key, {cluster: TOTAL}) == start, "a frozen weight"

    def routed(self, before: Ruleset | None):
        parts = {} if before is None else {"": before}
        return held.rules(parts, TOPOLOGY, self.now_ns)

    def denied(self, key, to) -> bool:
        return any(self.policy.denies(key[0], key[2], cluster) for cluster in to)

    # Events

    def send(self, proposal: Ruleset, subject: str, first: int, fail: int | None, after: bool, then) -> None:
        """Delivers a proposal. A publisher whose write fails crashes, and the other one goes on.

        `then`: guardrails that come into effect in between, or None.
        """

        async def settled() -> None:
            pass

        message = SimpleNamespace(
            data=proposal.SerializeToString(),
            subject=names.NATS_SUBJECT_PROPOSALS.format(origin=subject),
            metadata=SimpleNamespace(
                timestamp=datetime.fromtimestamp(self.now_ns / 1e9, UTC), sequence=SimpleNamespace(stream=1)
            ),
            ack=settled,
            term=settled,
        )
        self.js.fail_at(fail, after)
        known = len(self.js.messages)
        try:
            self.loop.run_until_complete(self.publishers[first].handle(message))
        except TimeoutError:
            if then is not None:
                self.file = then
            self.publishers[first] = self.started()
            self.follow()
            if len(self.js.messages) > known:
                self.interrupted = Ruleset.FromString(self.js.messages[-1].data).version
            self.js.fail_at(None)
            self.loop.run_until_complete(self.publishers[1 - first].handle(message))
            self.interrupted = None
            if then is not None:
                self.enforce(first)
        finally:
            self.js.fail_at(None)

    def proposal(self, origin: Origin, rules: dict, window: str = "w") -> Ruleset:
        self.count += 1
        made = Ruleset(id=f"p-{self.count}", origin=origin, policy="spillway")
        made.input_window.id = window
        made.created_at.FromNanoseconds(self.now_ns)
        made.expires_at.FromNanoseconds(self.now_ns + 120 * SECOND)
        made.traffic_classes.append(traffic_class.parse(CLASS))
        for source, remote in sorted(rules.items()):
            if remote is None:
                continue
            added = made.rules.add(source_cluster=source, source_service="web", reason="test")
            added.traffic_class.CopyFrom(traffic_class.parse(CLASS))
            other = "south" if source == "north" else "north"
            added.destinations.add(cluster=source, weight=TOTAL - remote)
            added.destinations.add(cluster=other, weight=remote)
        return made

    @rule(
        origin=st.sampled_from(ORIGINS),
        rules=weights,
        based=st.booleans(),
        partial=st.booleans(),
        first=st.integers(0, 1),
        fail=st.none() | st.integers(0, 2),
        after=st.booleans(),
        then=st.none() | policies,
    )
    def propose(self, origin, rules, based, partial, first, fail, after, then) -> None:
        self.now_ns += SECOND
        made = self.proposal(origin, rules)
        if partial and self.values:
            made.partial = True
            for field in ("policy", "input_window"):
                made.ClearField(field)
        if based or origin == ORIGIN_PAPA:
            made.base_version = max((value.version for value in self.values.values()), default=0)
        subject = Origin.Name(origin).removeprefix("ORIGIN_").lower()
        self.send(made, subject, first, fail, after, then)

    @rule(first=st.integers(0, 1), origin=st.sampled_from(ORIGINS))
    def renew(self, first, origin) -> None:
        """Somebody proposes the weights in force again."""
        self.now_ns += SECOND
        made = self.proposal(origin, {})
        for _, value in sorted(self.values.items()):
            made.rules.extend(value.rules)
        made.base_version = max((value.version for value in self.values.values()), default=0)
        self.send(made, Origin.Name(origin).removeprefix("ORIGIN_").lower(), first, None, False, None)

    @rule(policy=policies, first=st.integers(0, 1))
    def edit(self, policy, first) -> None:
        """The operator changes the guardrail file, and a publisher enforces it."""
        self.now_ns += SECOND
        self.file = policy
        self.follow()
        self.enforce(first)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_ns / 1e9, UTC)

    def follow(self) -> None:
        """Composes the file and the acts in force now."""
        in_force = [kept.act for kept in self.kept.values() if kept.in_force(self.now())]
        self.policy = acts.compose(self.file, in_force, self.now(), CLUSTERS)
        for publisher in self.publishers:
            publisher.policy = self.policy

    def decided(self, act: Act, first: int) -> None:
        """Does what Acting does with an act, and enforces what it has changed."""
        ruling = acts.decide(act, act.via, acts.Situation(TOPOLOGY, self.file, self.kept, self.now()))
        if ruling.refused:
            return
        if ruling.ended is None:
            self.kept[act.id] = KeptAct(act=act, at=self.now(), before=ruling.before, after=ruling.after)
        else:
            ended = {"ended_by": act, "ended_at": self.now()}
            self.kept[ruling.ended.act.id] = ruling.ended.model_copy(update=ended)
        self.follow()
        self.enforce(first)

    @rule(
        asked=st.sampled_from([
            {"act": "freeze"}, {"act": "freeze"}, {"act": "kill"}, {"act": "maximum_shift", "parts": 300},
            {"act": "minimum_local_share", "parts": 7000},
            {"act": "deny", "denial": Denial(source_cluster="north", clusters=["south"])},
        ]),
        seconds=st.sampled_from([60, 3600]),
        first=st.integers(0, 1),
    )  # fmt: skip
    def act(self, asked, seconds, first) -> None:
        """An operator tightens what the file says, for a while."""
        self.now_ns += SECOND
        self.count += 1
        expires = self.now() + timedelta(seconds=seconds)
        self.decided(Act(**ACT, id=f"a-{self.count}", expires=expires, **asked), first)

    @rule(number=st.integers(0, 100), first=st.integers(0, 1))
    def end(self, number, first) -> None:
        """An operator ends an act before it expires."""
        self.now_ns += SECOND
        if self.kept:
            self.count += 1
            ended = sorted(self.kept)[number % len(self.kept)]
            self.decided(Act(**ACT, id=f"a-{self.count}", act="end", ends=ended), first)

    def enforce(self, first: int) -> None:
        """Does what Enforcing.enforce does."""
        in_force, fences = dict(self.values), self.publishers[first].fences()
        if self.policy.kill:
            made = self.proposal(ORIGIN_OPERATOR, {}, "none")
            made.policy = "kill"
        elif (made := denials.renewal(in_force, self.policy, TOPOLOGY, self.now_ns)) is not None:
            if canary.on(in_force, CLUSTERS):
                made.origin = ORIGIN_OPERATOR
        elif (made := freeze.renewal(in_force, self.policy, TOPOLOGY, fences, self.now_ns)) is None:
            return
        self.send(made, "operator", first, None, False, None)

    @rule(
        keep=st.booleans(), first=st.integers(0, 1), fail=st.none() | st.integers(0, 2), after=st.booleans()
    )
    def conclude(self, keep, first, fail, after) -> None:
        """A trial ends: its time has passed, an Envoy has refused it, or too many calls failed."""
        self.now_ns += SECOND
        trial = canary.on(self.values, CLUSTERS)
        if trial is None:
            return
        if keep and trial.complete:
            made = conclusions.kept(trial, "test", self.now_ns)
        else:
            made = conclusions.rolled_back(trial, self.values, self.policy, TOPOLOGY, "test", self.now_ns)
        self.send(made, "operator", first, fail, after, None)

    @rule(seconds=st.sampled_from([5, 100, 7200, 40_000]))
    def wait(self, seconds) -> None:
        self.now_ns += seconds * SECOND
        self.follow()

    @rule(first=st.integers(0, 1))
    def look(self, first) -> None:
        """A publisher enforces again, as it does every few seconds."""
        self.follow()
        self.enforce(first)

    @rule(cluster=st.sampled_from(CLUSTERS), number=st.integers(0, 1000))
    def read(self, cluster, number) -> None:
        """A relay reads the newest value, or is given an old one again."""
        given = [m for m in self.js.messages if m.subject.endswith(f".{cluster}")]
        if not given:
            return
        value = Ruleset.FromString(given[-1 if number % 2 else number % len(given)].data)
        if takes(self.highest[cluster], value, self.now_ns):
            self.highest[cluster] = value.version

    @invariant()
    def what_was_written_is_allowed(self) -> None:
        for error in self.wrong:
            raise error

    @invariant()
    def no_relay_is_ahead_of_the_bucket(self) -> None:
        """Else it would refuse what is published next, and its Envoys would stay behind."""
        for cluster, value in self.values.items():
            assert self.highest[cluster] <= value.version

    @invariant()
    def clusters_agree_after_every_event(self) -> None:
        """An interrupted version is completed or replaced: no cluster stays behind a published one.

        Where it was refused when it was delivered again, some clusters keep the version before.
        """
        if len(self.values) == len(CLUSTERS) and len({v.version for v in self.values.values()}) > 1:
            newest = max(value.version for value in self.values.values())
            assert self.values[CLUSTERS[0]].version == newest  # the key that claims it


TestPublishing = Publishing.TestCase
TestPublishing.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("policy", [None, Guardrails(freeze=True, canary=CANARY, operator_hold=False)])
def test_who_reads_the_bucket_late_completes_what_the_other_began(policy):
    """A crash leaves a conclusion half written, and the other publisher has not seen the trial yet.

    Under `freeze`, a proposal that says local-first with rules begins no trial.
    """
    machine = Publishing()
    try:
        machine.propose(ORIGIN_OPTIMIZER, {"north": None, "south": 0}, False, False, 0, None, False, None)
        machine.propose(ORIGIN_OPTIMIZER, {"north": 500, "south": 0}, False, False, 1, None, False, None)
        assert all(value.HasField("canary") for value in machine.values.values())
        machine.conclude(False, 1, 1, False)
        assert {value.HasField("canary") for value in machine.values.values()} == {False}
        if policy is not None:
            machine.edit(policy, 0)
            machine.propose(ORIGIN_OPTIMIZER, {"north": 0}, False, False, 0, None, False, None)
            assert not machine.values["north"].HasField("canary")
        machine.what_was_written_is_allowed()
    finally:
        machine.teardown()
