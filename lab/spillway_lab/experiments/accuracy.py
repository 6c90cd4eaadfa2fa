"""Compares learned models with the truth of an application whose queues are known.

Load that rises in steps is sent to the application. The contents of the tables curves, capacities
and call_ratios are then compared with the expected values. truth.py computes these values.
"""

import json
import time
from collections import defaultdict
from dataclasses import asdict, dataclass

from clickhouse_driver import Client

from spillway_lab.experiments import arrivals, profiling, truth
from spillway_lab.experiments.arrivals import Arrival
from spillway_lab.experiments.truth import Known, Learned
from spillway_lab.report import tables
from spillway_lab.report.progress import Progress
from spillway_lab.scenario.errors import LabError
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.stack import stack
from spillway_lab.stack.control import Control

_START_S, _SETTLE_S, _LEARN_S = 240.0, 15.0, 120.0
_CURVES = """SELECT class, service, argMax(a_ms, fitted_at), argMax(b_ms, fitted_at), argMax(a_se_ms, fitted_at),
    argMax(norm_weight, fitted_at), argMax(phase, fitted_at), max(fitted_at) FROM curves GROUP BY class, service"""
_CAPACITIES = """SELECT service, argMax(capacity_rps, measured_at), argMax(source, measured_at),
    argMax(reason, measured_at) FROM capacities GROUP BY service"""
# Windows overlap. Each is weighted by the number of its samples.
_RATIOS = """SELECT source_class, class, sum(calls_per_request * samples) / sum(samples) FROM call_ratios
    WHERE samples > 0 GROUP BY source_class, class"""

_ARRIVALS = "SELECT service, toUnixTimestamp64Micro(started_at) / 1e6, class FROM calls FINAL"
_CALM = """SELECT avg(exclusive_us) / 1000 FROM calls FINAL WHERE class = %(class)s AND NOT failed
    GROUP BY intDiv(toUnixTimestamp(started_at), 10) HAVING count() >= 10"""


@dataclass(frozen=True)
class Row:
    """One figure: its true and its learned value. `error` is relative."""

    kind: str
    of: str
    true: float
    learned: float
    error: float
    note: str = ""
    se: float = 0.0  # standard error of the learned value, where the model gives one


class Disturbed(LabError):
    """The machine was too busy for the `rows` to be meaningful."""

    def __init__(self, reason: str, rows: list[Row]) -> None:
        super().__init__(reason)
        self.rows = rows


def run(scenario: Scenario, name: str) -> list[Row]:
    """Runs the scenario's profile and returns the compared figures.

    Prints progress to stderr and the table to stdout. The last line is JSON with the rows and with
    the errors by kind. Raises Disturbed after it has printed the table.
    """
    progress = Progress()
    known = truth.known(scenario)
    prepared = stack.prepare(scenario, name, policy="local", partitions=stack.ONE_PARTITION)
    with stack.running(prepared):
        prepared.supervisor.wait_ready(_START_S, progress.starting)
        progress.end(f"{len(prepared.supervisor.processes())} processes ready")
        steps = profiling.profile(prepared, Control(prepared), progress)
        client = Client.from_url(prepared.clickhouse_url())
        learned = _learned(client, time.time(), known.calm, progress)
        seen = _arrivals(client)
    known = arrivals.given(known, scenario, seen, steps)
    rows = compare(known, learned)
    print(report(rows, known, learned), flush=True)
    if reason := known.disturbance(learned):
        raise Disturbed(reason, rows)
    return rows


def _learned(client: Client, ended: float, calm: str, progress: Progress) -> Learned:
    """Waits for models that were fitted after all traces of the load were closed.

    Raises LabError after _LEARN_S seconds.
    """
    progress.stage("models")
    deadline = time.time() + _LEARN_S
    while time.time() < deadline:
        curves = client.execute(_CURVES)
        newest = max((row[-1].timestamp() for row in curves), default=0.0)
        progress.show(f"{len(curves)} curves, the newest {newest - ended:+.0f} s after the load")
        if newest > ended + _SETTLE_S:
            progress.end(f"{len(curves)} curves")
            return Learned(
                curves={row[0]: row[2:7] for row in curves},
                capacities={row[0]: row[1:] for row in client.execute(_CAPACITIES)},
                ratios={(row[0], row[1]): row[2] for row in client.execute(_RATIOS)},
                calm_windows_ms=tuple(ms for (ms,) in client.execute(_CALM, {"class": calm})),
            )
        time.sleep(1)
    raise LabError(f"no curve was fitted later than {_SETTLE_S:.0f} s after the load within {_LEARN_S:.0f} s")


def _arrivals(client: Client) -> dict[str, list[Arrival]]:
    found: dict[str, list[Arrival]] = defaultdict(list)
    for service, at, class_id in client.execute(_ARRIVALS):
        found[service].append((at, class_id))
    return found


def compare(known: Known, learned: Learned) -> list[Row]:
    """Returns one row per known figure, sorted by name.

    The learned value of a class without a row is 0.
    """
    rows: list[Row] = []
    overhead = known.overhead_ms(learned)
    for service, expected in sorted(known.services.items()):
        rps, source, reason = learned.capacities.get(service, (0.0, "none", "no row"))
        weights = {k: learned.curves[k][3] for k in expected.shares if k in learned.curves}
        mix = sum(share * weights.get(k, 0.0) for k, share in expected.shares.items())
        rows.append(
            _row(
                "saturation",
                service,
                expected.saturation_rps,
                rps / mix if mix else 0.0,
                f"{source}: {reason}",
            )
        )
        for class_id in sorted(expected.shares)[1:]:
            rows.append(
                _row("weight", class_id, expected.weights[class_id], weights.get(class_id, 0.0), source)
            )
        for class_id, (a, b) in sorted(expected.curves.items()):
            got_a, got_b, a_se, _, phase = learned.curves.get(class_id, (0.0, 0.0, 0.0, 0.0, "none"))
            note = f"{source}, {phase}; a {got_a:.1f} +/- {a_se:.1f} (true {a:.1f}), b {got_b:.1f} (true {b:.1f})"
            rows.append(Row("a", class_id, a, got_a, got_a / a - 1, note, a_se))
            for u in known.judged_at:
                true, found = a / (1 - u) + b + overhead, got_a / (1 - u) + got_b
                rows.append(_row(f"L({u:g})", class_id, true, found, note))
    for (source_class, class_id), ratio in sorted(known.ratios.items()):
        rows.append(
            _row(
                "ratio",
                f"{source_class} -> {class_id}",
                ratio,
                learned.ratios.get((source_class, class_id), 0.0),
            )
        )
    return rows


def _row(kind: str, of: str, true: float, learned: float, note: str = "") -> Row:
    return Row(kind, of, true, learned, learned / true - 1, note)


def report(rows: list[Row], known: Known, learned: Learned) -> str:
    """Returns a table for people, followed by one line of JSON."""
    shown = [[r.kind, r.of, r.true, r.learned, f"{r.error:+.1%}", r.note] for r in rows]
    text = tables.text(["what", "of", "true", "learned", "error", "how"], shown)
    overhead = known.overhead_ms(learned)
    return (
        "\nTrue: workers / service time, and the application's queues simulated with the recorded arrivals.\n"
        f"Latencies are in ms and hold {overhead:.1f} ms that proxies and machine add, as seen where nobody ever\n"
        f"waits ({known.calm}).\n\n{text}\n\n"
        + json.dumps(
            {"errors": summary(rows), "overhead_ms": round(overhead, 3), "rows": [asdict(r) for r in rows]}
        )
    )


def summary(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Returns, by kind, the median and the largest absolute error."""
    found = {}
    for kind in dict.fromkeys(row.kind for row in rows):
        errors = sorted(abs(row.error) for row in rows if row.kind == kind)
        found[kind] = {"median": round(errors[len(errors) // 2], 4), "largest": round(errors[-1], 4)}
    return found
