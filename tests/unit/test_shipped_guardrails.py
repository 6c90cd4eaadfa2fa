"""The shipped guardrails limit what one proposal can do.

docker-compose's file and the chart's values agree.
"""

from pathlib import Path

import yaml
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import guardrails

ROOT = Path(__file__).resolve().parents[2]


def read(path: str) -> dict:
    return yaml.safe_load((ROOT / path).read_text())


def test_the_shipped_guardrails_bound_shift_local_share_and_utilisation():
    """The file contains nothing that only an operator can know: no denial, pin or budget."""
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
    """There is one default. The lab's own file states that it has no guardrails."""
    assert read("infra/helm/spillway-global/values.yaml")["guardrails"] == read("infra/guardrails.yaml")
    for service in ("optimizer", "papa", "publisher"):
        declared = read("docker-compose.yml")["services"][service]
        assert "./infra/guardrails.yaml:/etc/spillway/guardrails.yaml:ro" in declared["volumes"]
    assert read("lab/guardrails.yaml") == {}
