"""Scenario and application files: what is accepted, and how errors name a mistake."""

from pathlib import Path

import pytest
import yaml
from spillway_lab.render import pods
from spillway_lab.scenario import application, scenario
from spillway_lab.scenario.errors import InvalidInput

LAB = Path(__file__).resolve().parents[2]
SHIPPED = sorted((LAB / "scenarios").glob("*.yaml"), key=lambda path: path.stem != "two-clusters")


def changed(tmp_path: Path, change) -> Path:
    """Writes a copy of a shipped scenario with one change and returns its path."""
    document = yaml.safe_load(SHIPPED[0].read_text())
    document["application"] = str((SHIPPED[0].parent / document["application"]).resolve())
    change(document)
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenarios_are_valid(path: Path) -> None:
    """Every scenario of the repository loads, and its ports can be assigned."""
    loaded = scenario.load(path)
    assert pods.plan(loaded, 20_000).pods


def _set(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(document):
        for key in keys:
            document = document[key]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set("links", 0, "source_cluster", "north"), "links[0].source_cluster: unknown cluster 'north'"),
        (
            _set("load", "measure", "rps", {"north": 1}),
            "load.measure.rps: unknown cluster 'north'; clusters: ",
        ),
        (_set("placement", "backend", "north", {}), "placement.backend: unknown cluster 'north'"),
        (
            _set("policies", ["local", "random"]),
            "policies.1: Input should be 'local', 'failover', 'waterfall'",
        ),
        (_set("policies", ["local", "local"]), "a policy is listed twice"),
        (_set("polices", ["local"]), "polices: unknown key; got ['local']"),
        (
            _set("links", 0, "rtt_ms", -1),
            "links.0.rtt_ms: Input should be greater than or equal to 0; got -1",
        ),
        (_set("links", 0, "rtt_ms", float("nan")), "links.0.rtt_ms: Input should be a finite number"),
        (
            _set("placement", "cache", {}),
            "placement.cache: unknown service 'cache'; services: gateway, frontend",
        ),
        (_set("placement", "backend", {}), "placement.backend: placed nowhere"),
        (_set("requests", 0, "service", "cache"), "requests[0].service: unknown service 'cache'"),
        (
            _set("requests", 0, "path", "/nothing"),
            "requests[0]: GET /nothing is not an endpoint of 'gateway'",
        ),
        (_set("requests", 0, "method", "get"), "requests[0]: traffic class 'gateway get /items/{id}'"),
        (_set("application", "missing.yaml"), "missing.yaml: cannot be read"),
        (
            _set("load", "measure", "measured_seconds", 0),
            "load.measure.measured_seconds: Input should be greater",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change, expected: str) -> None:
    """Each wrong key is reported with the file, the key, the value and what is allowed."""
    with pytest.raises(InvalidInput) as raised:
        scenario.load(changed(tmp_path, change))
    assert expected in str(raised.value)
    assert ".yaml: " in str(raised.value)


def test_load_needs_a_placed_entry(tmp_path: Path) -> None:
    """Load at a cluster without the entry service is refused, not silently dropped."""
    clusters = scenario.load(SHIPPED[0]).clusters
    path = changed(tmp_path, lambda document: document["placement"]["gateway"].pop(clusters[0]))
    with pytest.raises(InvalidInput, match="'gateway' is not placed there"):
        scenario.load(path)


def test_no_yaml_at_all(tmp_path: Path) -> None:
    """A file that is not YAML or not a mapping gives an error that names the file."""
    for content in ("a: [1", "", "- 1"):
        path = tmp_path / "broken.yaml"
        path.write_text(content)
        with pytest.raises(InvalidInput, match="broken.yaml"):
            scenario.load(path)


def test_overrides_apply_to_one_cluster_only(tmp_path: Path) -> None:
    """A cluster's override changes workers and speed there, and leaves other clusters unchanged."""
    first, second = scenario.load(SHIPPED[0]).clusters[:2]
    override = {"backend": {"workers": 2, "speed": 0.5}}
    path = changed(tmp_path, _set("clusters", first, {"region": "r", "services": override}))
    loaded = scenario.load(path)
    slow, normal = loaded.application_of(first), loaded.application_of(second)
    assert normal == loaded.application
    assert slow.services["backend"].workers == 2
    ratio = (
        slow.services["backend"].endpoints[0].service_time.mean_ms
        / normal.services["backend"].endpoints[0].service_time.mean_ms
    )
    assert ratio == pytest.approx(2)
    assert slow.services["frontend"] == normal.services["frontend"]


def test_written_application_reads_back_the_same() -> None:
    """The file that emulators read gives the same application as the scenario."""
    original = scenario.load(SHIPPED[0]).application
    written = yaml.safe_load(application.to_yaml(original))
    assert application.parse(Path("written.yaml"), written) == original
