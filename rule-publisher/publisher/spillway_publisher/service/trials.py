"""Watches the ruleset on trial, and proposes its conclusion.

Nothing of a trial is kept in memory: the bucket says which version is on trial until when, relays
say which Envoys have it, and ClickHouse says which calls failed. So any publisher may conclude it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from spillway.v1.ruleset_pb2 import Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import names
from spillway_runtime.logs import fields
from spillway_runtime.status import describe

from spillway_publisher.clients import rows
from spillway_publisher.clients.clickhouse import TROUBLE, ClickHouse
from spillway_publisher.process.telemetry import log
from spillway_publisher.rules import canary
from spillway_publisher.rules.answers import Answers
from spillway_publisher.rules.canary import Trial
from spillway_publisher.service.acting import Overlay
from spillway_publisher.service.reports import Reports
from spillway_publisher.trials import conclusions
from spillway_publisher.trials.verdict import Calls, Evidence, Verdict, judge

LOOK_S = 1.0
ASK_S = 2.0  # between two questions to ClickHouse
STALE_S = 15.0  # an answer that is older says nothing any more
AGAIN_S = 3.0  # until a conclusion is proposed again, because another proposal came in between

Groups = Mapping[str, Calls]


class Trials:
    """Watches one trial after the other. `in_force`: returns the rulesets by cluster."""

    def __init__(
        self,
        topology: Topology,
        guardrails: Overlay,
        in_force: Callable[[], Mapping[str, Ruleset]],
        reports: Reports,
        answers: Answers,
        clickhouse: ClickHouse,
    ) -> None:
        self._topology, self._guardrails, self._in_force = topology, guardrails, in_force
        self._clusters = sorted(cluster.name for cluster in topology.clusters)
        self._reports, self._answers = reports, answers
        self._calls = ComparedCalls(clickhouse, prices(topology))
        self._proposed_at = float("-inf")

    async def run(self, propose: Callable[[Ruleset], Awaitable[None]]) -> None:
        """Watches for ever. Raises jetstream.TROUBLE."""
        while True:
            proposal = self.look(time.time_ns())
            if proposal is not None and time.monotonic() - self._proposed_at > AGAIN_S:
                self._proposed_at = time.monotonic()
                await propose(proposal)
                extra = fields(ruleset_version=proposal.concludes, id=proposal.id)
                log.info(proposal.reason, extra=extra)
            await asyncio.sleep(LOOK_S)

    def look(self, now_ns: int) -> Ruleset | None:
        """Returns the proposal that concludes the trial, or None while nothing is to conclude.

        In shadow mode nothing is published, and relays end the trial by themselves. The kill switch
        ends it with its own ruleset.
        """
        policy, in_force = self._guardrails.current, self._in_force()
        trial = canary.on(in_force, self._clusters)
        if trial is None or policy.shadow or policy.kill:
            return None
        verdict, why = Verdict.ROLL_BACK, "freeze: true"
        if not policy.freeze:
            compared = policy.canary is not None and policy.canary.compares
            verdict, why = judge(trial, self._evidence(trial, compared), policy.canary, now_ns)
        if verdict is Verdict.GO_ON:
            return None
        if verdict is Verdict.KEEP:
            return conclusions.kept(trial, why, now_ns)
        return conclusions.rolled_back(trial, in_force, policy, self._topology, why, now_ns)

    def _evidence(self, trial: Trial, compared: bool) -> Evidence:
        share = trial.whole.canary.share
        serving, connected = self._reports.trying(), self._reports.envoys()
        elected = {
            cluster: frozenset(envoy for envoy in connected.get(cluster, ()) if elects(envoy, share))
            for cluster in trial.clusters
        }
        return Evidence(
            self._answers.refused(trial.version),
            sorted(cluster for cluster in trial.clusters if serving.get(cluster) != trial.version),
            sum(map(len, elected.values())),
            self._answers.count(trial.version, elected),
            self._calls.of(trial, self._clusters) if compared else None,
        )


def elects(envoy: int, share: int) -> bool:
    """Returns whether relays elect the Envoy with this hash for a share in parts of 10 000."""
    return envoy % names.VALUE_WEIGHT_TOTAL < share


class ComparedCalls:
    """Asks ClickHouse, one question at a time, and never waits for the answer."""

    def __init__(self, clickhouse: ClickHouse, prices: Mapping[str, list]) -> None:
        self._clickhouse, self._prices = clickhouse, prices
        self._asking: asyncio.Task[list[tuple]] | None = None
        self._version, self._asked_at, self._answered_at = 0, float("-inf"), float("-inf")
        self._answer: Groups | None = None
        self._trouble = "not answered yet"

    def of(self, trial: Trial, clusters: list[str]) -> Groups | str:
        """Returns the newest answer about the trial, or why there is none. Asks again when due."""
        now = time.monotonic()
        if trial.version != self._version:
            self._version, self._answer, self._trouble = trial.version, None, "not answered yet"
            self._asked_at = float("-inf")
        self._take(now)
        if self._asking is None and now - self._asked_at >= ASK_S:
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask(trial, clusters))
        if self._answer is None or now - self._answered_at > STALE_S:
            return self._trouble
        return self._answer

    def _take(self, now: float) -> None:
        """Takes the answer, if it is there and about this version."""
        if self._asking is None or not self._asking.done():
            return
        done, self._asking = self._asking, None
        try:
            found = done.result()
        except TROUBLE as error:
            self._trouble = f"ClickHouse is away: {describe(error)}"
            return
        if done.get_name() == str(self._version):
            self._answered_at = now
            self._answer = {kind: Calls(*figures) for kind, *figures in found}

    async def _ask(self, trial: Trial, clusters: list[str]) -> list[tuple]:
        task = asyncio.current_task()
        assert task is not None  # it runs as one
        task.set_name(str(trial.version))
        return await self._clickhouse.select(
            rows.sql("tried"), {**parameters(trial, clusters), **self._prices}
        )


def parameters(trial: Trial, clusters: list[str]) -> dict:
    """Returns the parameters of tried.sql.

    Calls beside the trial are those of the Envoys that are not elected in the same clusters, or,
    where all are elected, those of the other clusters. A version is its Unix milliseconds.
    """
    whole = trial.whole.canary.share == names.VALUE_WEIGHT_TOTAL
    beside = sorted(set(clusters) - trial.clusters) if whole else sorted(trial.clusters)
    length_ms = max(trial.decided_at_ns // 1_000_000 - trial.version, 0)
    return {
        "since": trial.version,
        "from": trial.version - length_ms,
        "version": trial.version,
        "services": tuple(sorted({service for _, service, _ in trial.changed})) or ("",),
        "classes": tuple(sorted({class_id for *_, class_id in trial.changed})) or ("",),
        "tried": tuple(sorted(trial.clusters)),
        "beside": tuple(beside) or ("",),
    }


def prices(topology: Topology) -> dict[str, list]:
    """Returns the parameters of tried.sql that price egress, in ms per byte of a link."""
    usd_per_ms = topology.usd_per_ms_per_million_requests / 1e6
    found = {
        f"{link.source_cluster}>{link.destination_cluster}": link.egress_usd_per_gb / 1e9 / usd_per_ms
        for link in topology.links
        if usd_per_ms
    }
    return {"links": list(found) or [""], "ms_per_byte": list(found.values()) or [0.0]}
