"""Application files: caches, contention, errors and keys; and that errors name a mistake."""

import copy
from pathlib import Path

import pytest
import yaml
from spillway_lab.scenario import application
from spillway_lab.scenario.errors import InvalidInput

LAB = Path(__file__).resolve().parents[2]
SHARED = yaml.safe_load((LAB / "tests/data/application_mistakes.yaml").read_text())
SOURCE = Path("application.yaml")


def changed(at: list, value: object) -> dict:
    """Returns the shared application with one value replaced or added."""
    document = copy.deepcopy(SHARED["application"])
    *way, last = at
    inside = document
    for step in way:
        inside = inside[step]
    inside[last] = value
    return document


@pytest.mark.parametrize("path", sorted((LAB / "applications").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_applications_are_valid(path: Path) -> None:
    """Every application of the repository loads, and reads back the same after it is written."""
    loaded = application.load(path)
    assert application.parse(path, yaml.safe_load(application.to_yaml(loaded))) == loaded


@pytest.mark.parametrize(
    "mistake", SHARED["mistakes"], ids=lambda mistake: f"{mistake['at'][-1]}={mistake['value']}"
)
def test_mistakes_are_named_in_the_emulators_words(mistake: dict) -> None:
    """Each mistake of the shared file gives the message that the emulator gives."""
    with pytest.raises(InvalidInput) as raised:
        application.parse(SOURCE, changed(mistake["at"], mistake["value"]))
    assert mistake["says"] in str(raised.value)
    assert str(raised.value).startswith("application.yaml: ")


def test_behaviour_is_written_for_the_emulator() -> None:
    """Caches, contention, errors and keys are in the file that emulators read."""
    loaded = application.parse(SOURCE, SHARED["application"])
    assert application.parse(SOURCE, yaml.safe_load(application.to_yaml(loaded))) == loaded
    first, second = loaded.services["a"].endpoints
    assert (first.error_rate, first.cache and first.cache.capacity) == (0.25, 100)
    assert [rival.endpoint for rival in second.contention] == [str(first)]


def test_a_slow_cluster_has_slow_hits_too() -> None:
    """A cluster's speed divides the time of a hit as it divides every service time."""
    loaded = application.parse(SOURCE, SHARED["application"])
    slow = application.overridden(loaded, {"a": application.Override(speed=0.5)})
    cache = slow.services["a"].endpoints[0].cache
    assert cache and cache.hit and cache.hit.mean_ms == pytest.approx(1.0)


def work_ms(loaded: application.Application, service: str, name: str) -> float:
    """Returns the mean service time of all calls below an endpoint, without queueing, in ms."""
    endpoint = next(each for each in loaded.services[service].endpoints if str(each) == name)
    below = sum(
        (call.count or 1)
        * (call.probability or 1)
        * work_ms(loaded, call.service, f"{call.method} {call.path}")
        for stage in endpoint.calls
        for call in stage
    )
    return endpoint.service_time.mean_ms + below


@pytest.mark.parametrize(("name", "entry"), [("alibaba-20", "entry"), ("heavy-light", "gateway")])
def test_the_heavy_class_needs_ten_times_the_work(name: str, entry: str) -> None:
    """The factor between the classes is the one that the heads of the files state."""
    loaded = application.load(LAB / "applications" / f"{name}.yaml")
    light, heavy = (work_ms(loaded, entry, f"GET /{each}/{{id}}") for each in ("light", "heavy"))
    assert heavy == pytest.approx(10 * light)


def test_the_alibaba_graph_has_the_papers_services() -> None:
    """Eight services are stateless. Seven caches and five databases call nothing.

    The ingress gateway is none of them.
    """
    loaded = application.load(LAB / "applications" / "alibaba-20.yaml")
    caches = {name for name in loaded.services if name.endswith("-cache")}
    databases = {name for name in loaded.services if name.endswith("-db")}
    assert (len(loaded.services), len(caches), len(databases)) == (20 + len({"gateway"}), 7, 5)
    for name, service in loaded.services.items():
        assert all(bool(endpoint.calls) == (name not in caches | databases) for endpoint in service.endpoints)
