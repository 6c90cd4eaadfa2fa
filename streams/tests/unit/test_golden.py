"""The golden chain: the code makes each file from the one before."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "contracts" / "golden"


def _module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


golden = _module(ROOT / "streams" / "golden.py")
source = _module(ROOT / "contracts" / "generate" / "golden_spans.py")


def test_the_spans_are_what_the_script_makes():
    """1_spans.json is reproducible."""
    script = ROOT / "contracts" / "generate" / "golden_spans.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["2_calls.json", "3_model.json"])
def test_the_derived_links_are_fresh(name):
    """Regenerating gives the committed file. Last digits may differ between machines."""

    def rounded(value):
        if isinstance(value, float):
            return pytest.approx(value, rel=1e-4)
        if isinstance(value, dict):
            return {key: rounded(item) for key, item in value.items() if key != "reason"}
        return [rounded(item) for item in value] if isinstance(value, list) else value

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if key != "reason"}
        return [plain(item) for item in value] if isinstance(value, list) else value

    assert plain(golden.documents(GOLDEN)[name]) == rounded(json.loads((GOLDEN / name).read_text()))


def test_the_model_is_what_the_spans_were_made_from():
    """Curves and capacities are within 10 % of the constants of the spans, network times exact."""
    model = json.loads((GOLDEN / "3_model.json").read_text())
    for row in model["curves"]:
        a, b = source.A_MS[row["service"]], source.B_MS[row["service"]]
        for u in (0.2, 0.5, 0.7):
            assert row["a_ms"] / (1 - u) + row["b_ms"] == pytest.approx(a / (1 - u) + b, rel=0.1)
    for row in model["capacities"]:
        assert row["capacity_rps"] == pytest.approx(source.CAPACITY_RPS[row["service"]], rel=0.1)
    for row in model["network_times"]:
        local = row["source_cluster"] == row["destination_cluster"]
        assert row["mean_ms"] == pytest.approx(source.RTT_MS[local])
    assert [row["calls_per_request"] for row in model["call_ratios"]] == [1.0, 1.0]
