"""The application of tests/unit/data/model.json, and a copy whose services have a prefix."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import yaml

_HERE = Path(__file__).resolve().parent
_ONE = json.loads((_HERE / "unit" / "data" / "model.json").read_text())
_TOPOLOGY = _HERE.parents[1] / "contracts" / "golden" / "topology.yaml"
_SERVICES = ("gateway", "frontend", "backend")
OTHER = "shop-"
SERVICES = frozenset({*_SERVICES, *(OTHER + service for service in _SERVICES)})


def document() -> dict[str, Any]:
    """Returns both applications in the format of contracts/golden/3_model.json."""
    names = re.compile(rf'"({"|".join(_SERVICES)})([" ])')
    other, both = json.loads(names.sub(rf'"{OTHER}\1\2', json.dumps(_ONE))), copy.deepcopy(_ONE)
    for table in ("curves", "capacities", "call_ratios"):
        both[table] += other[table]
    for board in ("load", "demand"):
        for cluster, entries in other[board].items():
            both[board][cluster] |= entries
    return both


def topology_text(third: str = "") -> str:
    """Returns the golden topology with both applications' services, as YAML.

    `third` is the name of another cluster, which is like east. Empty: there is none.
    """
    both = yaml.safe_load(_TOPOLOGY.read_text())
    both["services"] += [{**copy.deepcopy(s), "name": OTHER + s["name"]} for s in both["services"]]
    if third:
        both["clusters"].append({"name": third})
        for service in both["services"]:
            service["placements"].append({"cluster": third})
        link = both["links"][0]
        for cluster in ("west", "east"):
            both["links"] += [
                {**link, "source_cluster": cluster, "destination_cluster": third},
                {**link, "source_cluster": third, "destination_cluster": cluster},
            ]
    return yaml.safe_dump(both)


def with_third(model: dict[str, Any], third: str) -> dict[str, Any]:
    """A document whose `third` cluster has the boards and capacities of east."""
    model = copy.deepcopy(model)
    for board in ("load", "demand"):
        model[board][third] = copy.deepcopy(model[board]["east"])
    model["capacities"] += [
        {**row, "cluster": third} for row in model["capacities"] if row["cluster"] == "east"
    ]
    return model
