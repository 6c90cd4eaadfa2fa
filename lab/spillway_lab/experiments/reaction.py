"""How long a change of the load takes to become weights at an Envoy: steps on a live stack.

Redis shows when the demand board changed and when a ruleset was made. ClickHouse has the solves and
publications, and Envoy's admin page says to the millisecond when it took its routes.
"""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from clickhouse_driver import Client
from google.protobuf import json_format
from redis import Redis
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry

from spillway_lab.experiments import steps
from spillway_lab.experiments.lab import Running
from spillway_lab.experiments.steps import Origin, Reaction, Seen, Shown, Taken
from spillway_lab.load import meter
from spillway_lab.load.kinds import kinds
from spillway_lab.load.meter import Measured
from spillway_lab.load.repeating import repeating
from spillway_lab.load.stream import Stream
from spillway_lab.render.pods import Pod
from spillway_lab.report import tables
from spillway_lab.report.progress import Progress
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.loads import segments
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.stack import envoys, stack
from spillway_lab.stack.control import Control
from spillway_lab.stack.stack import LabStack
from spillway_lab.stack.switching import Switching

_START_S = 240.0
_REDIS_S, _ENVOY_S, _LOOK_S = 0.02, 0.1, 0.5  # between two looks
_ROWS_S = 6.0  # after which the rows of the last solve and of its publication are stored
_ORIGINS = """
    SELECT
        version, trigger,
        toUnixTimestamp64Milli(solves.at) / 1000 AS solve_s,
        toUnixTimestamp64Milli(rulesets.at) / 1000 AS published_s
    FROM rulesets INNER JOIN solves ON solves.ruleset_id = rulesets.ruleset_id
    WHERE rulesets.outcome = 'published' AND solves.outcome != 'audited' AND solve_s >= %(begin)s
"""


@dataclass
class Watch:
    """What was seen during the steps. `proposed_s`: ruleset version -> when it was made."""

    shown: list[Shown] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    proposed_s: dict[int, float] = field(default_factory=dict)
    in_force: bytes = b""  # the last ruleset that was read


def run(scenario: Scenario, name: str) -> list[Reaction]:
    """Prints progress to stderr and results to stdout. The last line is JSON, see `document`.

    Raises InvalidInput when not exactly one cluster has steps.
    """
    cluster, progress = _cluster(scenario), Progress()
    prepared = stack.prepare(scenario, name, policy="local", partitions=stack.ONE_PARTITION)
    with stack.running(prepared):
        prepared.supervisor.wait_ready(_START_S, progress.starting)
        progress.end(f"{len(prepared.supervisor.processes())} processes ready")
        running, control = Running(scenario, prepared, progress), Control(prepared)
        with running.load() as load:
            running.profile(load)
            progress.stage("policy")
            Switching(prepared, control).bring(scenario.document.policies[0], progress.show)
            _wait(load, scenario.document.load.measure.warm_up_seconds, control, progress)
            progress.end(control.line())
            found, measured = _steps(prepared, load, cluster, control, progress)
            load.end(kinds(prepared.scenario, prepared.plan))
    print(f"\n{table(found)}\n\n{json.dumps(document(found, measured))}", flush=True)
    return found


def _cluster(scenario: Scenario) -> str:
    found = steps.stepping(scenario.document.load.measure.plan)
    if len(found) != 1:
        raise InvalidInput(
            [f"scenario {scenario.name}: load.measure.phases: {len(found)} clusters have steps; allowed: 1"]
        )
    return found[0]


def _steps(
    prepared: LabStack, load: Stream, cluster: str, control: Control, progress: Progress
) -> tuple[list[Reaction], Measured]:
    measure = prepared.scenario.document.load.measure
    entry = prepared.scenario.document.requests[0].service
    caller = next(pod for pod in prepared.plan.pods if (pod.cluster, pod.service) == (cluster, entry))
    plan = {each: segments(measure.plan, each) for each in prepared.scenario.clusters}
    progress.stage("steps")
    with watching(prepared, caller) as watch, meter.measuring(prepared.supervisor) as measured:
        began = load.follow(plan)
        _wait(load, measure.seconds, control, progress)
    progress.end(f"{len(watch.taken)} changes of routes, {measured.machine}")
    time.sleep(_ROWS_S)
    with Client.from_url(prepared.clickhouse_url()) as client:
        seen = Seen(watch.shown, watch.taken, _origins(client, began, watch))
    found = [steps.reaction(step, seen) for step in steps.steps(began, measure.plan, cluster)]
    return found, measured


def _wait(load: Stream, seconds: float, control: Control, progress: Progress) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        load.check()
        progress.show(f"{left:.0f} s left · {control.line()}")
        time.sleep(min(left, _LOOK_S))


@contextmanager
def watching(prepared: LabStack, caller: Pod) -> Iterator[Watch]:
    """Observes the demand of the caller's cluster, its rulesets and the caller's routes.

    Raises the error of a reading at the end of the block.
    """
    watch = Watch()
    with (
        closing(Redis.from_url(prepared.redis_url("optimizer"), socket_timeout=5)) as redis,
        repeating(lambda: _read_redis(redis, caller.cluster, watch), _REDIS_S, "boards"),
        repeating(lambda: _read_envoy(caller, watch), _ENVOY_S, "routes"),
    ):
        yield watch


def _read_redis(redis: Redis, cluster: str, watch: Watch) -> None:
    asked = redis.pipeline(transaction=False)
    asked.hgetall(names.REDIS_KEY_DEMAND.format(cluster=cluster))
    asked.get(names.REDIS_KEY_IN_FORCE.format(cluster=cluster))
    board, text = asked.execute()
    rps = sum(DemandEntry.from_json(entry).rps for entry in board.values())
    if not watch.shown or watch.shown[-1].rps != rps:
        watch.shown.append(Shown(time.time(), rps))
    if text is not None and text != watch.in_force:
        watch.in_force = text
        ruleset = json_format.Parse(text, Ruleset(), ignore_unknown_fields=True)
        watch.proposed_s.setdefault(ruleset.version, ruleset.created_at.ToNanoseconds() / 1e9)


def _read_envoy(caller: Pod, watch: Watch) -> None:
    routes = envoys.outbound(caller)
    if routes and (not watch.taken or watch.taken[-1].at_s != routes.since_s):
        away = envoys.share_away(routes.config, caller.cluster)
        watch.taken.append(Taken(routes.since_s, envoys.version(routes.config), away))


def _origins(client: Client, began: float, watch: Watch) -> dict[int, Origin]:
    rows = client.execute(_ORIGINS, {"begin": began})
    return {
        version: Origin(trigger, solve_s, watch.proposed_s[version], published_s)
        for version, trigger, solve_s, published_s in rows
        if version in watch.proposed_s
    }


def table(found: list[Reaction]) -> str:
    """Returns a line for each step: the load before and after, the whole time, and its stages."""
    rows = [
        (
            f"{each.step.before_rps:g} to {each.step.after_rps:g}",
            _shown(each.total_s),
            *(_shown(each.stages_s.get(stage)) for stage in steps.STAGES),
            each.trigger or "-",
        )
        for each in found
    ]
    return tables.text(["requests/s", "s", *steps.STAGES, "trigger"], rows)


def _shown(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"


def document(found: list[Reaction], measured: Measured) -> dict:
    """Returns the JSON of the last line: figures of all steps, what they cost, and the machine."""
    jobs = measured.by_job()
    return {
        **steps.document(found),
        "streams": stack.streams(),
        "cores": {job: round(cores, 4) for job, cores in sorted(jobs.items())},
        "machine": {"utilisation": measured.machine.utilisation, "pressure": measured.machine.pressure},
        "disturbed": measured.machine.disturbed,
    }
