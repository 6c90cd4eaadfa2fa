"""Load for experiments and tests: a profile from which curves are learned, and light load."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from spillway_lab.experiments.arrivals import Step
from spillway_lab.load import load, targets
from spillway_lab.load.background import Background
from spillway_lab.report.progress import Progress
from spillway_lab.stack.control import Control
from spillway_lab.stack.stack import LabStack

_LIMIT_S = 480.0  # after which the light load ends by itself
_WAITING_S = 5.0  # of load at least, even if the policy is in force at once


def profile(running: LabStack, control: Control, progress: Progress) -> list[Step]:
    """Runs the load profile step by step, so that the curves are learned at every load.

    What the clients see is not kept. Returns when each step began and ended.
    """
    found = []

    def show(_: load.Progress) -> None:
        progress.show(control.line())

    steps = running.scenario.document.load.profile
    for i, step in enumerate(steps, 1):
        progress.stage(f"profile {i} of {len(steps)}")
        generator = load.Generator(running.run / "load", sent_at_least=0.9)
        began = time.time()
        load.run(attacks(running, step.rps, step.seconds), generator, f"profile-{i}", on_progress=show)
        found.append(Step(began, time.time()))
    progress.end(control.line())
    return found


@contextmanager
def waiting_load(running: LabStack, name: str) -> Iterator[None]:
    """Sends the lightest load of the profile during the block.

    Without requests the boards become old, and the optimizer refuses to solve. Under a light load
    the pipeline catches up. Nobody looks at the samples, so a shortage of requests is no error.
    """
    document = running.scenario.document.load
    rates = [step.rps for step in document.profile if sum(step.rps.values()) > 0] or [
        document.measure.first_rps
    ]
    lightest = min(rates, key=lambda rps: sum(rps.values()))
    generator = load.Generator(running.run / "load", sent_at_least=0)
    asked = attacks(running, lightest, _WAITING_S)
    sent = Background(asked, generator, f"{name}-waiting", _LIMIT_S)
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
