"""Both stacks can run all jobs of streams in one process. That process has what the five have."""

from pathlib import Path

import pytest
import yaml
from spillway_lab.render import ports
from spillway_lab.scenario.errors import LabError
from spillway_lab.stack import stack

pytestmark = pytest.mark.component
ROOT = Path(__file__).resolve().parents[2]
JOBS = stack.STREAMS["jobs"]
PORTS = ports.declared(ROOT / "infra/ports.yaml")["shared"]


def _local(file: str) -> dict[str, dict]:
    return yaml.safe_load((ROOT / "infra/local" / file).read_text())["processes"]


def _variables(process: dict) -> dict[str, str]:
    return dict(line.split("=", 1) for line in process["environment"])


def _compose(file: str) -> dict[str, dict]:
    return yaml.safe_load((ROOT / file).read_text())["services"]


def test_the_local_process_takes_the_place_of_those_of_the_jobs():
    """It has their variables, folder and addresses, and it starts after the same servers.

    It is probed as often as they are.
    """
    separate, together = _local("process-compose.yaml"), _local("streams-all.yaml")
    assert set(together) == {*JOBS, *stack.STREAMS["all"]}
    assert all(together[job] == {"disabled": True} for job in JOBS)
    whole = together["streams-all"]
    given = _variables(whole)
    for job in JOBS:
        for name, value in _variables(separate[job]).items():
            if name == "SPILLWAY_HEALTH_LISTEN":
                assert given[f"SPILLWAY_{job.removeprefix('streams-').upper()}_HEALTH_LISTEN"] == value
            elif name != "SPILLWAY_STATE_DIR":
                assert given[name] == value, name
        assert separate[job]["depends_on"].items() <= whole["depends_on"].items()
        probe = separate[job]["readiness_probe"] | {"http_get": whole["readiness_probe"]["http_get"]}
        assert whole["readiness_probe"] == probe
    assert given["SPILLWAY_HEALTH_LISTEN"] == "127.0.0.1:${STREAMS_ALL_HEALTH_PORT}"


def test_the_container_takes_the_place_of_those_of_the_jobs():
    """Compose starts it instead of them, at the declared ports."""
    together = _compose("infra/compose/streams-all.yaml")
    separate = _compose("docker-compose.yml")
    assert set(together) == {*JOBS, *stack.STREAMS["all"]}
    assert all(together[job]["profiles"] for job in JOBS)
    whole = together["streams-all"]
    given = whole["environment"]
    listens = {given["SPILLWAY_HEALTH_LISTEN"]: PORTS["streams_all_health"]}
    for job in JOBS:
        own = separate[job]["environment"]
        listen = given[f"SPILLWAY_{job.removeprefix('streams-').upper()}_HEALTH_LISTEN"]
        assert listen == own["SPILLWAY_HEALTH_LISTEN"]
        listens[listen] = PORTS[f"{job.replace('-', '_')}_health"]
        # No job reads the topology, which Compose gives to every program in Python.
        shared = own.keys() - {"SPILLWAY_HEALTH_LISTEN", "SPILLWAY_TOPOLOGY"}
        assert {name: own[name] for name in shared}.items() <= given.items()
        assert separate[job]["depends_on"].items() <= whole["depends_on"].items()
    assert {listen: int(listen.rpartition(":")[2]) for listen in listens} == listens
    assert {int(port) for port in whole["expose"]} == set(listens.values())
    for same in ("restart", "read_only", "tmpfs", "healthcheck", "build"):
        assert whole[same] == separate["streams-curves"][same]


def test_an_unknown_variant_is_refused(monkeypatch):
    """The error names the variable, its value and what is allowed."""
    monkeypatch.setenv("SPILLWAY_STREAMS", "one")
    with pytest.raises(LabError, match="SPILLWAY_STREAMS: is 'one'; must be one of jobs, all"):
        stack.streams()
