"""The filter's stats under the names of the contract, as operators see them."""

import re

import pytest
from filter_harness.client import get
from filter_harness.proxy import CLASS
from spillway_contracts import names

pytestmark = pytest.mark.component

SIDES = (names.VALUE_DIRECTION_INBOUND, names.VALUE_DIRECTION_OUTBOUND)
REASONS = ("queue_full", "export_failed", "rejected", "shutdown")


def expected() -> set[str]:
    """Returns every stat of the contract with its placeholders filled in."""
    templates = {value for key, value in vars(names).items() if key.startswith("FILTER_STAT_")}
    templates -= {names.FILTER_STAT_CLASS_OVERFLOW, names.FILTER_STAT_CLASS_NONE}
    out = set()
    for template in templates:
        sides = SIDES if "{class}" not in template else SIDES[:1]
        for side in sides:
            for reason in REASONS:
                filled = {"direction": side, "reason": reason, "class": CLASS}
                out.add(re.sub(r"\{(\w+)\}", lambda found, filled=filled: filled[found[1]], template))
    for template in (names.FILTER_STAT_CLASS_ENTRIES, names.FILTER_STAT_CLASS_CALLS):
        none = {"direction": names.VALUE_DIRECTION_INBOUND, "class": names.FILTER_STAT_CLASS_NONE}
        out.add(template.format_map(none))
    return {name.removeprefix("spillway_") for name in out}


def test_every_stat_of_the_contract_and_no_other(stack) -> None:
    """One request through both sides creates exactly the stats of the contract.

    Dashboards rely on these names.
    """
    get(stack.proxy.outbound, "/users/1")
    stack.proxy.wait_stat("spans_sent", lambda value: value >= 2)
    assert set(stack.proxy.stats()) == expected()


def test_class_is_a_label(stack) -> None:
    """The pod's `stats_config` makes one metric of all classes, whose label is the class id."""
    get(stack.proxy.inbound, "/users/1")
    lines = stack.proxy.metrics()
    label = f'{{spillway_class="{CLASS}"}}'
    arrivals = [line for line in lines if line.startswith("spillway_inbound_class_arrivals")]
    assert len(arrivals) == 1 and arrivals[0].startswith(f"spillway_inbound_class_arrivals{label} ")
    assert f"spillway_inbound_class_in_flight{label} 0" in lines
