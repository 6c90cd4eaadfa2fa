"""The demo: one overloaded cluster under one load and several policies, and why the best won."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from clickhouse_driver import Client

from spillway_lab.load import load, targets
from spillway_lab.load.background import Background
from spillway_lab.load.samples import concatenate
from spillway_lab.report import report, tables
from spillway_lab.report.progress import Progress
from spillway_lab.report.report import Result
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.stack import egress, stack
from spillway_lab.stack.control import Control, InForce, describe
from spillway_lab.stack.stack import ROOT, LabStack

_START_S = 180.0
# A guard, not a claim: after an overload the pipeline may have to catch up first.
_POLICY_S = 240.0
_WAITING_S = 5.0  # of load at least, even if the policy is in force at once
WHY = ROOT / "docs/sql/why.sql"


def run(scenario: Scenario, name: str, policies: list[str]) -> None:
    """Prints progress to stderr and results to stdout. The last line is the JSON of report.py."""
    progress = Progress()
    # Profiling needs a known routing, whichever policies are compared afterwards.
    prepared = stack.prepare(scenario, name, policy="local")
    with stack.running(prepared):
        prepared.supervisor.wait_ready(_START_S, progress.starting)
        progress.end(f"{len(prepared.supervisor.processes())} processes ready")
        control = Control(prepared)
        profile(prepared, control, progress)
        results: dict[str, Result] = {}
        last: InForce | None = None
        for policy in policies:
            results[policy], last = _measure(prepared, control, policy, progress)
        assert last is not None  # a scenario has at least one policy
        _print(prepared, results, last)


def profile(running: LabStack, control: Control, progress: Progress) -> None:
    """Runs the load profile step by step, so that the curves are learned at every load.

    What the clients see is not kept.
    """

    def show(_: load.Progress) -> None:
        progress.show(control.line())

    steps = running.scenario.document.load.profile
    for i, step in enumerate(steps, 1):
        progress.stage(f"profile {i} of {len(steps)}")
        generator = load.Generator(running.run / "load", sent_at_least=0.9)
        load.run(attacks(running, step.rps, step.seconds), generator, f"profile-{i}", on_progress=show)
    progress.end(control.line())


def _measure(running: LabStack, control: Control, policy: str, progress: Progress) -> tuple[Result, InForce]:
    """Measures the load under one policy, starting when every Envoy has a ruleset of it."""
    measure = running.scenario.document.load.measure
    progress.stage(policy)
    with waiting_load(running, policy):
        control.set_policy(policy)
        control.wait_policy(policy, _POLICY_S, progress.show)
    before: list[dict[egress.Pair, float]] = []

    def watch(at: load.Progress) -> None:
        # Bytes are counted only over the measured part, like latencies.
        if at.elapsed_s >= measure.warm_up_seconds and not before:
            before.append(egress.read(running.plan.pods))
        phase = "measuring" if before else "warming up"
        progress.show(f"{phase} {at.elapsed_s:.0f}/{at.total_s:.0f} s · {control.line()}")

    seconds = measure.warm_up_seconds + measure.measured_seconds
    asked, generator = attacks(running, measure.rps, seconds), load.Generator(running.run / "load")
    samples = concatenate(load.run(asked, generator, policy, measure.warm_up_seconds, watch).values())
    price, after = egress.prices(running.scenario), egress.read(running.plan.pods)
    cost = egress.between(before[0], after, price, measure.measured_seconds)
    result = Result(samples, cost.usd_per_hour)
    progress.end(
        f"mean {result.summary.mean_ms:.1f} ms, {result.summary.failed_share:.1%} failed · {control.line()}"
    )
    in_force = control.in_force()
    assert in_force is not None, "a policy was in force before the load"
    return result, in_force


@contextmanager
def waiting_load(running: LabStack, name: str) -> Iterator[None]:
    """Sends the lightest load of the profile during the block.

    Without requests the boards become old, and the optimizer refuses to solve. Under a light load
    the pipeline catches up. Nobody looks at the samples, so a shortage of requests is no error.
    """
    document = running.scenario.document.load
    rates = [step.rps for step in document.profile if sum(step.rps.values()) > 0] or [document.measure.rps]
    lightest = min(rates, key=lambda rps: sum(rps.values()))
    generator = load.Generator(running.run / "load", sent_at_least=0)
    asked = attacks(running, lightest, _WAITING_S)
    sent = Background(asked, generator, f"{name}-waiting", 2 * _POLICY_S)
    try:
        yield
    except BaseException:
        sent.stop()  # an error of the load would hide the block's own
        raise
    sent.samples()


def attacks(running: LabStack, rps: Mapping[str, float], seconds: float) -> list[load.Attack]:
    """Returns the load for each cluster's entry: requests per second from `rps`, for `seconds`."""
    return [
        load.Attack(cluster, targets.targets(running.scenario, running.plan, cluster), rate, seconds)
        for cluster, rate in rps.items()
    ]


def _print(running: LabStack, results: Mapping[str, Result], last: InForce) -> None:
    plot = running.run / "latency-cdf.png"
    title = f"{running.scenario.name}: the same load under {len(results)} policies"
    report.plot_cdf(results, plot, title)
    print(f"\nMeasured at the clients; egress counted on the Envoys' connections.\n\n{report.table(results)}")
    print(f"\nLatency CDF: {plot}")
    print(f"\nRuleset {last.version} ({last.policy}), predicted mean {last.predicted_mean_ms:.1f} ms:\n")
    print(describe(last))
    print(f"\nWhy, in SQL ({_relative(WHY)}):\n\n{WHY.read_text().strip()}\n")
    client = Client.from_url(running.clickhouse_url())
    print(tables.answer(client, WHY))
    print(f"\n{report.policies_json(results)}", flush=True)


def _relative(path: Path) -> Path:
    return path.relative_to(ROOT)
