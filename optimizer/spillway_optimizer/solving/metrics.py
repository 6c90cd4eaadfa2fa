"""GET /metrics of `run` and `papa`: counters, the result of the last solve, the leader.

REFERENCE.md contains the table.
"""

from collections.abc import Iterator, Sequence

from spillway_runtime.metrics import Exposition, Family, Sample

from spillway_optimizer.clients.lease import Lease
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.process.states import States
from spillway_optimizer.solving.application_result import ApplicationResult

_P = "spillway_optimizer_"
_MOST_APPLICATIONS = 50  # applications with a label of their own

FAMILIES = (
    Family(_P + "leader", "1 while this process holds the lease of its role.", ("role",)),
    Family(_P + "solves_total", "Runs: `proposed`, `renewed`, `unchanged`, `refused`, `rolled_back`.", ("outcome",)),
    Family(_P + "applications", "Applications in the last run."),
    Family(_P + "application_held", "1 while its rules are held; after the first 50: `others`.", ("application",)),
    Family(_P + "urgent_solves_total", "Solves before the next regular one, by what changed.", ("trigger",)),
    Family(_P + "audits_total", "Audits: `confirmed`, `better`, `wrong`, `unfinished`, `failed`, `too_large`.",
           ("outcome",)),
    Family(_P + "audit_relative_gap", "Gap that the last audit has proven, apart from destination limits and tail targets."),
    Family(_P + "audit_difference_ratio", "By how much that routing costs less than the audited one: 0.01 is 1 %."),
    Family(_P + "workers", "Worker processes that solve applications at the same time; 0 while none is needed."),
    Family(_P + "worker_solves_total", "Solves by worker processes: `solved`, `died`, `killed`, `memory`.", ("outcome",)),
    Family(_P + "papa_steps_total", "PAPA's steps: `kept`, `rolled_back`, `converged`, `superseded`.", ("outcome",)),
    Family(_P + "papa_refused_total", "Attempts of PAPA that ended without a step because data was missing or malformed."),
    Family(_P + "internal_errors_total", "Solves that ended with an internal error."),
    Family(_P + "server_away_total", "Attempts that failed because a server was away.", ("server",)),
    Family(_P + "malformed_input_total", "Rows and board entries that could not be read."),
    Family(_P + "history_rows_lost_total", "Rows of `solves` and `papa_steps` that ClickHouse never stored."),
    Family(_P + "counted_total", "All other counters, under their names in `/readyz`.", ("name",)),
    Family(_P + "input_timestamp_seconds", "Unix time of the newest entry of a board, as last read.", ("cluster", "board")),
    Family(_P + "last_solve_timestamp_seconds", "Unix time of the last run, whatever its outcome."),
    Family(_P + "solve_seconds", "Time that the solver took in the last run that had a problem, summed over applications."),
    Family(_P + "solve_relative_gap", "Proven relative gap of that solution; absent when none is known."),
    Family(_P + "demand_requests_per_second", "Entry requests per second in the last solve's demand."),
    Family(_P + "predicted_mean_latency_seconds", "Mean latency of entry requests by the rules in force at the last solve."),
    Family(_P + "observed_mean_latency_seconds", "Mean latency of entry requests on the demand boards at the last solve."),
    Family(_P + "prediction_error_ratio", "Observed over predicted mean latency, minus 1: 0.5 is 50 % slower."),
    Family(_P + "egress_usd_per_hour", "Cost of traffic between clusters by the rules of the last solve."),
    Family(_P + "egress_budget_usd_per_hour", "The guardrails' budget for this cost; absent without one."),
)  # fmt: skip

_SOLVES = ("proposed", "renewed", "unchanged", "refused", "rolled_back")
_STEPS = ("kept", "rolled_back", "converged", "superseded")
_PLAIN = {"internal_errors": "internal_errors_total", "malformed": "malformed_input_total",
          "history_rows_lost": "history_rows_lost_total"}  # fmt: skip


def exposition(role: str, states: States, lease: Lease) -> Exposition:
    """Returns the metrics of one process. `role`: `optimizer` or `papa`."""

    def read() -> Iterator[Sample]:
        yield Sample(_P + "leader", lease.held(), (role,))
        for name, value in dict(states.counters).items():
            yield _counted(role, name, value)
        for (name, *labels), gauge in dict(states.gauges).items():
            yield Sample(_P + name, gauge, tuple(labels))

    return Exposition(FAMILIES, read)


def _counted(role: str, name: str, value: int) -> Sample:
    kind, _, rest = name.partition(".")
    if role == "papa" and name == "refused":
        return Sample(_P + "papa_refused_total", value)
    if role == "optimizer" and name in _SOLVES:
        return Sample(_P + "solves_total", value, (name,))
    if name in _STEPS:
        return Sample(_P + "papa_steps_total", value, (name,))
    if kind == "audit":
        return Sample(_P + "audits_total", value, (rest,))
    if kind == "worker":
        return Sample(_P + "worker_solves_total", value, (rest,))
    if kind == "urgent":
        return Sample(_P + "urgent_solves_total", value, (rest,))
    if name.endswith("_away"):
        return Sample(_P + "server_away_total", value, (name.removesuffix("_away"),))
    if name in _PLAIN:
        return Sample(_P + _PLAIN[name], value)
    return Sample(_P + "counted_total", value, (name,))


def note_input(states: States, telemetry: Telemetry) -> None:
    """Records the time of each cluster's newest board entry.

    An empty board keeps its last value.
    """
    for board, by_cluster in (("load", telemetry.load), ("demand", telemetry.demand)):
        for cluster, entries in by_cluster.items():
            if entries:
                newest = max(entry.at for entry in entries.values())
                states.gauges["input_timestamp_seconds", cluster, board] = newest


def note_solve(
    states: States, at: float, results: Sequence[ApplicationResult], budget: float | None = None
) -> None:
    """Records the result of a run, all applications together.

    Without any solution, the values of the last solve stay. The gap is the worst of all
    applications, and absent if one of them is unknown. `budget`: the egress budget, USD/h.
    """
    gauges = states.gauges
    gauges["last_solve_timestamp_seconds",] = at
    _note_applications(states, results)
    solved = [result.solved for result in results if result.solved is not None]
    if not solved:
        return
    gauges["solve_seconds",] = sum(solve.duration_ms for solve in solved) / 1000
    gaps = [gap for solve in solved if (gap := solve.solution.relative_gap) is not None]
    _set(states, "solve_relative_gap", max(gaps) if len(gaps) == len(solved) else None)
    _set(states, "egress_budget_usd_per_hour", budget)
    evaluations = [result.part.evaluation for result in results if result.part is not None]
    if evaluations:
        gauges["demand_requests_per_second",] = sum(e.demand_rps for e in evaluations)
        gauges["egress_usd_per_hour",] = sum(e.egress_usd_per_hour for e in evaluations)


def _note_applications(states: States, results: Sequence[ApplicationResult]) -> None:
    named = sorted((result for result in results if result.name), key=lambda result: result.name)
    held: dict[str, int] = {}
    for n, result in enumerate(named):
        label = result.name if n < _MOST_APPLICATIONS else "others"
        held[label] = held.get(label, 0) + (result.refusal is not None)
    for key in [key for key in states.gauges if key[0] == "application_held"]:
        del states.gauges[key]
    states.gauges |= {("application_held", label): count for label, count in held.items()}
    states.gauges["applications",] = len(named)


def _set(states: States, name: str, value: float | None) -> None:
    """Sets a gauge. None removes it."""
    states.gauges.pop((name,), None)
    if value is not None:
        states.gauges[name,] = value


def note_audit(states: States, gap: float, difference: float) -> None:
    """Records the last audit: its proven gap, and its difference to the audited routing."""
    states.gauges["audit_relative_gap",] = gap
    states.gauges["audit_difference_ratio",] = difference


def note_prediction(states: States, predicted_ms: float, observed_ms: float) -> None:
    """Records predicted and observed latency of the same rules.

    These are the rules that were in force during the observation.
    """
    if predicted_ms <= 0 or observed_ms <= 0:
        return
    states.gauges["predicted_mean_latency_seconds",] = predicted_ms / 1000
    states.gauges["observed_mean_latency_seconds",] = observed_ms / 1000
    states.gauges["prediction_error_ratio",] = observed_ms / predicted_ms - 1


def observed_ms(telemetry: Telemetry, now: float, max_age_s: float) -> float:
    """Returns the mean latency of entry requests from fresh demand boards, weighted by demand.

    0 without any.
    """
    entries = [e for board in telemetry.demand.values() for e in board.values() if now - e.at <= max_age_s]
    total = sum(e.rps for e in entries)
    return sum(e.rps * e.duration_ms for e in entries) / total if total > 0 else 0.0
