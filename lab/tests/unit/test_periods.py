"""The periods of the pipeline in a stretched run."""

import re
from pathlib import Path

import yaml
from spillway_lab.stack import periods, stack

ROOT = Path(__file__).resolve().parents[3]
_ROW = re.compile(r"\| `SPILLWAY_STREAMS_(\w+_PERIOD_S)` \| ([^|]+) s \| [^|]*≤ ([^|]+) s \|")


def test_defaults_and_limits_are_those_of_streams_and_collectors():
    """Those of streams are in the reference, which is generated from the settings."""
    rows = (ROOT / "streams/REFERENCE.md").read_text()
    known = {
        name.lower(): (float(default), float("".join(most.split())))
        for name, default, most in re.findall(_ROW, rows)
    }
    for program, of in periods.PERIODS.items():
        for name, found in of.items():
            assert found == known[name], (program, name)
    assert f"flush_timeout: {periods.flush_timeout(1)} " in (ROOT / "collectors/config.yaml").read_text()


def test_periods_are_stretched_up_to_the_limit_of_streams():
    """A period is the default times the scale, and never above what streams accept."""
    assert yaml.safe_load(periods.settings(3))["curves"]["store_period_s"] == 3.0
    assert yaml.safe_load(periods.settings(100))["exclusive"]["arrivals_period_s"] == 10
    assert periods.flush_timeout(2.5) == "500ms"


def test_frozen_curves_have_the_longest_period():
    """Everything else is as without freezing."""
    frozen, free = (yaml.safe_load(periods.settings(2, frozen)) for frozen in (True, False))
    assert frozen["curves"].pop("fit_period_s") == periods.FROZEN_S
    assert free["curves"].pop("fit_period_s") == 10.0
    assert frozen == free


def test_topics_of_a_run_have_as_many_partitions_as_asked_for():
    """Only topics that are declared with several change; all other settings stay."""
    declared = yaml.safe_load((ROOT / "infra/kafka/topics.yaml").read_text())
    found = yaml.safe_load(stack.topics(stack.ONE_PARTITION))
    assert {topic["partitions"] for topic in found.values()} == {1}
    assert [topic["config"] for topic in found.values()] == [topic["config"] for topic in declared.values()]
    assert yaml.safe_load(stack.topics(stack.PARTITIONS)) == declared
