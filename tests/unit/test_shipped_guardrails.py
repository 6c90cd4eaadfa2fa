"""What is shipped bounds what one proposal can do: the file of docker-compose and the chart's values say the same."""

from pathlib import Path

import yaml
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import guardrails

ROOT = Path(__file__).resolve().parents[2]


def read(path: str) -> dict:
    return yaml.safe_load((ROOT / path).read_text())


def test_the_shipped_guardrails_bound_shift_local_share_and_utilisation():
    """And nothing that only an operator can know: no denial, no pin, no budget."""
    shipped = guardrails.load(ROOT / "infra" / "guardrails.yaml", Topology())
    assert (shipped.maximum_shift, shipped.minimum_local_share, shipped.utilisation_ceiling) == (
        2000,
        1000,
        0.9,
    )
    assert shipped.model_dump(exclude={"maximum_shift", "minimum_local_share", "utilisation_ceiling"}) == (
        guardrails.Guardrails().model_dump(
            exclude={"maximum_shift", "minimum_local_share", "utilisation_ceiling"}
        )
    )


def test_the_chart_ships_what_compose_has():
    """One default; the lab states that it has none."""
    assert read("infra/helm/spillway-global/values.yaml")["guardrails"] == read("infra/guardrails.yaml")
    for service in ("optimizer", "publisher"):
        declared = read("docker-compose.yml")["services"][service]
        assert "./infra/guardrails.yaml:/etc/spillway/guardrails.yaml:ro" in declared["volumes"]
    assert read("lab/guardrails.yaml") == {}
