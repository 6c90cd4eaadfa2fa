"""Expected curves are those of the queues that the recorded requests meet."""

import numpy as np
import pytest
from spillway_lab.experiments.arrivals import Step, given
from spillway_lab.experiments.truth import Known, KnownService
from spillway_lab.scenario.application import Application
from spillway_lab.scenario.scenario import Document, Scenario

CLASS = "a GET /x"
TIME = {"distribution": "constant", "mean_ms": 10}
STEPS = [Step(0.0, 100.0), Step(100.0, 200.0), Step(200.0, 300.0)]


def _scenario() -> Scenario:
    """One service with one class, in one cluster."""
    endpoint = {"method": "GET", "path": "/x", "service_time": TIME, "response_bytes": 1}
    service = {"workers": 1, "queue": 1024, "queue_timeout_ms": 10_000, "endpoints": [endpoint]}
    application = Application.model_validate({"call_timeout_ms": 1000, "services": {"a": service}})
    document = {
        "application": "a.yaml",
        "clusters": {"west": {"region": "west"}},
        "placement": {"a": {"west": {}}},
        "usd_per_ms_per_million_requests": 0.1,
        "requests": [{"service": "a", "method": "GET", "path": "/x"}],
        "load": {"measure": {"warm_up_seconds": 0, "measured_seconds": 1, "rps": {"west": 1}}},
        "policies": ["local"],
    }
    return Scenario(name="one", document=Document.model_validate(document), application=application)


def _known() -> Known:
    return Known(
        {"a": KnownService(100.0, {CLASS: 1.0}, {CLASS: 1.0}, {CLASS: (1.0, 2.0)})}, {}, "e GET /", 5.0
    )


def _curve(times: np.ndarray, steps: list[Step] = STEPS) -> tuple[float, float]:
    arrivals = {"a": [(float(at), CLASS) for at in times]}
    return given(_known(), _scenario(), arrivals, steps).services["a"].curves[CLASS]


def _poisson(seed: int, size: int) -> np.ndarray:
    """Batches of `size` requests; 30, 50 and 70 requests per second in the three steps."""
    chance = np.random.default_rng(seed)
    return np.concatenate([
        np.repeat(np.sort(step.start + 100 * chance.random(int(100 * rate / size))), size)
        for step, rate in zip(STEPS, (30, 50, 70), strict=True)
    ])  # fmt: skip


def test_poisson_arrivals_give_the_curve_of_pollaczek_and_khinchine():
    """A queue of constant service times s has waits of s / 2 * u / (1 - u), so a is s / 2."""
    a, b = np.mean([_curve(_poisson(seed, 1)) for seed in range(20)], axis=0)
    assert a == pytest.approx(5.0, rel=0.1) and a + b == pytest.approx(10.0, rel=0.05)


def test_bursts_make_a_curve_steeper():
    """Pairs of requests: M[2]/D/1 waits s / 2 longer at no load, and twice as much with load."""
    a, b = np.mean([_curve(_poisson(seed, 2)) for seed in range(20)], axis=0)
    assert a == pytest.approx(10.0, rel=0.15) and a + b == pytest.approx(15.0, rel=0.07)


def test_a_class_that_hardly_arrived_keeps_its_curve():
    """One step gives no curve, and a service without any arrival is left as it was."""
    assert _curve(_poisson(0, 1)[:100]) == (1.0, 2.0)
    assert given(_known(), _scenario(), {}, STEPS) == _known()


def test_a_step_that_overloads_the_workers_is_left_out():
    """A curve has no value at 150 % of the capacity, so the curve is that of the other steps."""
    calm = _poisson(0, 1)
    burst = np.linspace(301, 309, 1200)
    steps = [*STEPS, Step(300.0, 310.0)]
    assert _curve(np.concatenate([calm, burst]), steps) == pytest.approx(_curve(calm))
