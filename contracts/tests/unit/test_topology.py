"""Settings in a topology file for the requests to a service."""

from pathlib import Path

import pytest
from spillway_contracts import ContractError, topology


def load(tmp_path: Path, service: str):
    """Loads a topology of one cluster and this service."""
    path = tmp_path / "topology.yaml"
    path.write_text(f"clusters: [{{name: west}}]\nservices: [{service}]\n")
    return topology.load(path)


def test_timeouts_and_replay_of_a_service_are_read(tmp_path: Path):
    loaded = load(tmp_path, "{name: a, replay: any, timeouts: {request: 30s, idle: 300s, per_try: 0.5s}}")
    (service,) = loaded.services
    assert (service.replay, service.timeouts.request.seconds, service.timeouts.idle.seconds) == (
        "any",
        30,
        300,
    )
    assert service.timeouts.per_try.nanos == 500_000_000


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("{name: a, replay: always}", "services[0].replay: 'always' must be absent or one of never, idempotent, any"),
        ("{name: a, check: tcp}", "services[0].check: 'tcp' must be absent or one of http1, http2, off"),
        ("{name: a, load_report: yes-please}", "services[0].load_report: 'yes-please' must be absent or one of orca"),
        ("{name: a, timeouts: {idle: -1s}}", "services[0].timeouts.idle: -1s must be 0.001s..86400s, or 0s for none"),
        ("{name: a, timeouts: {request: 90000s}}", "services[0].timeouts.request: 90000s must be 0.001s..86400s"),
        ("{name: a, timeouts: {request: 1s, per_try: 2s}}", "services[0].timeouts.per_try: 2s must be at most request, 1s"),
        ("{name: a, timeouts: {total: 1s}}", "total"),
        ("{name: a, timeouts: {request: 1 minute}}", "request"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_them_is_named(tmp_path: Path, service: str, expected: str):
    with pytest.raises(ContractError) as refused:
        load(tmp_path, service)
    assert expected in str(refused.value)


def test_an_autoscaler_of_a_placement_is_read(tmp_path: Path):
    """Without one, none is declared: 0 would be a target."""
    scaled = "{cluster: west, autoscaler: {target_utilisation: 0.6, max_pods: 10}}"
    [service] = load(tmp_path, f"{{name: a, placements: [{scaled}]}}").services
    found = service.placements[0].autoscaler
    assert (found.target_utilisation, found.max_pods) == (0.6, 10)
    [service] = load(tmp_path, "{name: a, placements: [{cluster: west}]}").services
    assert not service.placements[0].HasField("autoscaler")


@pytest.mark.parametrize(
    ("autoscaler", "expected"),
    [
        ("{max_pods: 3}", "autoscaler.target_utilisation: 0 must be above 0 and at most 1"),
        ("{target_utilisation: 60, max_pods: 3}", "autoscaler.target_utilisation: 60 must be above 0"),
        ("{target_utilisation: .nan, max_pods: 3}", "target_utilisation"),
        ("{target_utilisation: 0.6}", "services[0].placements[0].autoscaler.max_pods: 0 must be at least 1"),
        ("{target_utilisation: 0.6, max_pods: -1}", "max_pods"),
    ],
)
def test_what_is_wrong_with_an_autoscaler_is_named(tmp_path: Path, autoscaler: str, expected: str):
    with pytest.raises(ContractError) as refused:
        load(tmp_path, f"{{name: a, placements: [{{cluster: west, autoscaler: {autoscaler}}}]}}")
    assert expected in str(refused.value)


@pytest.mark.parametrize("text", ["5", "2020-01-01", "[west]", "west", "false"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str):
    """Whatever YAML makes of the file, the error is a ContractError that names it."""
    path = tmp_path / "topology.yaml"
    path.write_text(text)
    with pytest.raises(ContractError, match=r"topology\.yaml: must be a mapping; got "):
        topology.load(path)
