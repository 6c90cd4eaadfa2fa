"""What the stack costs: processor time of every process, idle and under a stated rate of spans."""

import json
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from clickhouse_driver import Client

from spillway_lab.experiments import freshness, profiling
from spillway_lab.experiments.freshness import Boards
from spillway_lab.load import load, meter
from spillway_lab.load.background import Background
from spillway_lab.load.meter import Measured
from spillway_lab.load.samples import Summary, summarise
from spillway_lab.report import tables
from spillway_lab.report.progress import Progress
from spillway_lab.scenario import flows
from spillway_lab.scenario.application import Application
from spillway_lab.scenario.errors import LabError
from spillway_lab.scenario.scenario import Request, Scenario
from spillway_lab.stack import stack
from spillway_lab.stack.stack import LabStack

_START_S, _QUIET_S, _IDLE_S = 240.0, 20.0, 30.0
_STORED_S, _STEADY_S = 90.0, 6.0  # a trace is stored up to 42 s after it
_POLL_S = 1.0
# The jobs that move and use telemetry and rulesets. Pods, their network and the lab are not theirs.
_PIPELINE = ("kafka", "clickhouse", "redis", "nats", "optimizer", "papa", "publisher")
_PIPELINE_OF_EACH = ("streams", "collector-", "relay-")
_SPANS = """SELECT (SELECT count() FROM calls FINAL WHERE started_at >= %(begin)s AND started_at < %(end)s)
    + (SELECT count() FROM edges FINAL WHERE started_at >= %(begin)s AND started_at < %(end)s)"""


@dataclass(frozen=True)
class Footprint:
    """The measurements of one run.

    `idle` is measured before any request. All other figures are of the time under load.
    """

    idle: Measured
    loaded: Measured
    boards: Boards
    spans_per_s: float
    requests: Summary


def run(scenario: Scenario, name: str, spans_per_s: float) -> Footprint:
    """Prints progress to stderr and results to stdout. The last line is JSON, see `document`."""
    progress = Progress()
    prepared = stack.prepare(
        scenario, name, policy=scenario.document.policies[0], partitions=stack.ONE_PARTITION
    )
    with stack.running(prepared):
        prepared.supervisor.wait_ready(_START_S, progress.starting)
        progress.end(f"{len(prepared.supervisor.processes())} processes ready")
        progress.stage("idle")
        _sleep(_QUIET_S, progress)
        with meter.measuring(prepared.supervisor) as idle:
            _sleep(_IDLE_S, progress)
        progress.end(f"{total(idle, idle.by_job()):.3f} cores")
        found = _loaded(prepared, idle, spans_per_s, progress)
    print(
        f"\n{table(found.idle, found.loaded)}\n\n{summary(found)}\n\n{json.dumps(document(found))}",
        flush=True,
    )
    return found


def _loaded(running: LabStack, idle: Measured, spans_per_s: float, progress: Progress) -> Footprint:
    scenario, measure = running.scenario, running.scenario.document.load.measure
    per_request = spans_per_request(scenario.application, scenario.document.requests)
    rps = scaled(measure.first_rps, spans_per_s / per_request)
    progress.stage("load")
    seconds = measure.warm_up_seconds + measure.seconds
    attacks = profiling.attacks(running, rps, seconds + 5)
    sent = Background(attacks, load.Generator(running.run / "load"), "footprint", seconds)
    try:
        _sleep(measure.warm_up_seconds, progress)
        begin = time.time()
        with ExitStack() as during:
            boards = during.enter_context(
                freshness.watching(running.redis_url("optimizer"), scenario.clusters)
            )
            loaded = during.enter_context(meter.measuring(running.supervisor))
            _sleep(measure.seconds, progress)
        end = time.time()
    except BaseException:
        sent.stop()
        raise
    requests = summarise(sent.samples())
    progress.end(f"{requests.requests} requests, {requests.failed} failed")
    with Client.from_url(running.clickhouse_url()) as client:
        spans = _stored(client, begin, end, progress)
    return Footprint(idle, loaded, boards, spans / (end - begin), requests)


def _sleep(seconds: float, progress: Progress) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        progress.show(f"{left:.0f} s left")
        time.sleep(min(left, 1.0))


def _stored(client: Client, begin: float, end: float, progress: Progress) -> int:
    """Returns how many spans that began in this time are stored, once their number is steady.

    Raises LabError when there are none, or still more of them, after _STORED_S seconds.
    """
    progress.stage("stored")
    found, since, deadline = -1, time.monotonic(), time.monotonic() + _STORED_S
    while True:
        [(now,)] = client.execute(_SPANS, {"begin": begin, "end": end})
        if now != found or not now:
            found, since = now, time.monotonic()
        elif time.monotonic() - since >= _STEADY_S:
            break
        if time.monotonic() > deadline:
            raise LabError(
                f"after {_STORED_S:.0f} s {found} spans are stored, and their number is not steady"
            )
        progress.show(f"{found} spans")
        time.sleep(_POLL_S)
    progress.end(f"{found} spans")
    return found


def spans_per_request(application: Application, requests: Iterable[Request]) -> float:
    """Returns the mean number of spans that the proxies make of one request of users.

    The entry makes one, and each call one at the caller and one at the callee.
    """
    calls = sum(flows.rates(application, list(requests)).values()) - 1
    return 1 + 2 * calls


def scaled(rps: Mapping[str, float], total_rps: float) -> dict[str, float]:
    """Returns the rates in the same proportions, with this sum."""
    share = total_rps / sum(rps.values())
    return {cluster: rate * share for cluster, rate in rps.items()}


def is_pipeline(job: str) -> bool:
    """Whether a process of the supervisor belongs to the pipeline."""
    return job in _PIPELINE or job.startswith(_PIPELINE_OF_EACH)


def total(measured: Measured, jobs: Iterable[str]) -> float:
    """Returns the cores of these jobs together. What the lab uses to measure is left out."""
    by_job = measured.by_job()
    return sum(by_job.get(job, 0.0) for job in jobs if job != meter.LAB)


def pipeline(measured: Measured) -> float:
    return total(measured, filter(is_pipeline, measured.by_job()))


def table(idle: Measured, loaded: Measured) -> str:
    """Returns cores by job and process, the pipeline first and the busiest first."""
    rows = []
    for job, processes in by_process(idle, loaded).items():
        for process, cores in processes.items():
            what = "pipeline" if is_pipeline(job) else "-"
            rows.append((job, process, what, round(cores["idle"], 4), round(cores["load"], 4)))
    rows.sort(key=lambda row: (row[2] == "-", -row[4], row[0]))
    return tables.text(["job", "process", "of", "idle cores", "cores at load"], rows)


def by_process(idle: Measured, loaded: Measured) -> dict[str, dict[str, dict[str, float]]]:
    """Returns job -> process -> {"idle", "load"}: cores, rounded."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for job, process in sorted({*idle.cores, *loaded.cores}):
        found.setdefault(job, {})[process] = {
            "idle": round(idle.cores.get((job, process), 0.0), 4),
            "load": round(loaded.cores.get((job, process), 0.0), 4),
        }
    return found


def summary(found: Footprint) -> str:
    """Returns the figures in words."""
    waits, ages = freshness.waits_s(found.boards.readings), freshness.ages_s(found.boards.readings)
    return (
        f"Idle: {total(found.idle, found.idle.by_job()):.3f} cores, of which the pipeline "
        f"{pipeline(found.idle):.3f}, over {found.idle.seconds:.0f} s.\n"
        f"At {found.spans_per_s:.0f} spans/s: the pipeline {pipeline(found.loaded):.3f} cores, everything "
        f"{total(found.loaded, found.loaded.by_job()):.3f}, over {found.loaded.seconds:.0f} s.\n"
        f"Boards: a batch's end to the board p50 {freshness.percentile_s(waits, 0.5):.2f} s, "
        f"p99 {freshness.percentile_s(waits, 0.99):.2f} s; age with the proxies' wait "
        f"p99 {freshness.percentile_s(ages, 0.99):.2f} s.\n"
        f"Requests: {found.requests.requests}, {found.requests.failed} failed, "
        f"mean {found.requests.mean_ms:.1f} ms.\n"
        f"Machine idle: {found.idle.machine}; under load: {found.loaded.machine}"
        f"{', which is disturbed' if found.loaded.machine.disturbed else ''}."
    )


def document(found: Footprint) -> dict:
    """Returns the JSON of the last line. Cores are processor seconds per second.

    What was not measured is None.
    """
    waits, ages = freshness.waits_s(found.boards.readings), freshness.ages_s(found.boards.readings)
    return {
        "benchmark": "footprint",
        "idle_cores": round(total(found.idle, found.idle.by_job()), 4),
        "idle_pipeline_cores": round(pipeline(found.idle), 4),
        "pipeline_cores_at_1k": round(pipeline(found.loaded), 4),
        "spans_per_s": round(found.spans_per_s, 1),
        "freshness_p50_s": _known(freshness.percentile_s(waits, 0.5)),
        "freshness_p99_s": _known(freshness.percentile_s(waits, 0.99)),
        "board_age_p99_s": _known(freshness.percentile_s(ages, 0.99)),
        "requests": found.requests.requests,
        "failed": found.requests.failed,
        "machine": {
            "utilisation": found.loaded.machine.utilisation,
            "pressure": found.loaded.machine.pressure,
        },
        "disturbed": found.loaded.machine.disturbed,
        "by_process": by_process(found.idle, found.loaded),
    }


def _known(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(seconds, 3)
