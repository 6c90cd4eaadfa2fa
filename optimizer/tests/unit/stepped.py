"""Documents for the command `steps`, and the rules in its answers."""

import copy

from spillway_optimizer.problem.rules import RuleKey


def observed(model: dict, at: float) -> dict:
    """Returns a copy of the model whose boards are of this Unix second."""
    found = copy.deepcopy(model)
    for board in ("load", "demand"):
        for entries in found[board].values():
            for entry in entries.values():
                entry["at"] = at
    for entry in found["network"].values():
        entry["at"] = at
    return found


def rules_of(answer: dict) -> dict[RuleKey, dict[str, int]]:
    return {
        RuleKey(r["source_cluster"], r["source_service"], r["class"]): r["weights"] for r in answer["rules"]
    }
