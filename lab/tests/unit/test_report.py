"""The table, the JSON line and the plot agree with the samples."""

import json

import numpy as np
from spillway_lab.load.machine import Busyness
from spillway_lab.load.samples import Samples
from spillway_lab.report.report import Result, cdf, plot_cdf, policies_json, table


def result(latencies: list[float], failures: int = 0, egress: float = 0.5) -> Result:
    total = len(latencies) + failures
    return Result(
        Samples(
            at_s=np.zeros(total),
            latency_ms=np.array([*latencies, *[1.0] * failures]),
            code=np.array([200] * len(latencies) + [503] * failures),
            remote=np.zeros(total, int),
            reason=np.array([""] * len(latencies) + ["queue_full"] * failures),
            kind=np.zeros(total, int),
        ),
        egress,
    )


def test_table_has_a_line_per_policy_and_the_reasons() -> None:
    """Policies keep their order. Failures stand beside the latency, with their reasons."""
    lines = table({"one": result([10, 20]), "two": result([40], failures=1)}).splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["policy", lines[1].split()[0], "one", "two"]
    assert "15.0" in lines[2]
    assert "50.0%" in lines[3]
    assert lines[4] == "failed under two: queue_full 1"


def test_json_has_the_promised_keys_and_no_nan() -> None:
    """The last line of the demo is strict JSON, even when no request succeeded."""

    def refuse(value: str) -> None:
        raise AssertionError(value)

    policies = json.loads(policies_json({"a": result([10]), "b": result([], 3)}), parse_constant=refuse)[
        "policies"
    ]
    keys = {"mean_ms", "p50_ms", "p95_ms", "p99_ms", "failed_share", "remote_share", "egress_usd_per_hour"}
    assert set(policies["a"]) == set(policies["b"]) == keys
    assert policies["a"]["mean_ms"] == 10
    assert policies["b"]["mean_ms"] is None
    assert policies["b"]["failed_share"] == 1


def test_json_tells_how_busy_the_machine_was() -> None:
    """The demo's line has the machine and whether it disturbed; what is unknown is null."""
    found = json.loads(policies_json({"a": result([10])}, Busyness(2, 0.81234, None), True))
    assert found["machine"] == {"utilisation": 0.812, "pressure": None}
    assert found["disturbed"] is True
    assert set(json.loads(policies_json({"a": result([10])}))) == {"policies"}


def test_cdf_ends_at_the_share_that_succeeded(tmp_path) -> None:
    """Failures keep the curve below 1. The plot is a PNG, even without any success."""
    latency, share = cdf(result([30, 10], failures=2).samples)
    assert latency.tolist() == [10, 30]
    assert share.tolist() == [0.25, 0.5]
    for results in ({"a": result([1, 2, 3])}, {"a": result([], 2)}):
        plot_cdf(results, tmp_path / "cdf.png", "t")
        assert (tmp_path / "cdf.png").read_bytes().startswith(b"\x89PNG")
