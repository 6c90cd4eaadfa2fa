"""Values that spillway-cluster refuses: missing, misspelt, or refused later by a program."""

import copy
from typing import Any

import pytest
from cluster_chart import CHART, REQUIRED, helm

pytestmark = [pytest.mark.component, pytest.mark.usefixtures("chart_tools")]


def without(path: str) -> dict:
    values: dict[str, Any] = copy.deepcopy(REQUIRED)
    *parents, last = path.split(".")
    place = values
    for name in parents:
        place = place[name]
    del place[last]
    return values


@pytest.mark.parametrize("path", ["cluster.name", "image.registry", "collector.kafka.brokers"])
def test_what_has_no_default_is_asked_for(path: str):
    """Nothing is rendered without the cluster's name, the registry or the brokers.

    The message names the missing value.
    """
    done = helm("template", "release", str(CHART), values=without(path))
    assert done.returncode != 0
    assert "/" + path.replace(".", "/") in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        {"cluster": {"name": "true"}},
        {"relay": {"replica": 3}},
        {"collector": {"kafka": {"sasl": "GSSAPI"}}},
        {"collector": {"kafka": {"sasl": "OAUTHBEARER"}}},
        {"collector": {"kafka": {"sasl": "OAUTHBEARER", "oauth": {"tokenUrl": "http://login.example"}}}},
        {"collector": {"kafka": {"oauth": {"tokenUrl": "https://login.example"}}}},
        {"istio": {"filter": {"sha256": "abc"}}},
        {"istio": {"filter": {"url": "file:///filter.wasm"}}},
        {"istio": {"routes": {"workloads": [{"service": "gate"}]}}},
        {"sidecar": {"applications": [{"service": "cart", "namespace": "shop"}]}},
        {"sampling": {"ratio": 1.1}},
        {"sampling": {"ratio": -0.1}},
        {"sampling": {"ratio": 0.0000001}},
        {"sampling": {"ratio": "0.5"}},
        {"sampling": {"namespaces": {"shop": 2}}},
        {"unknown": 1},
    ],
    ids=str,
)
def test_wrong_values_are_refused(wrong: dict):
    """Misspelt keys are refused, and so are names that YAML reads as another type.

    So is every value that a program would refuse later.
    """
    for key in REQUIRED:
        wrong = {key: REQUIRED[key] | wrong.get(key, {})} | {k: v for k, v in wrong.items() if k != key}
    if "kafka" in wrong["collector"]:
        wrong["collector"]["kafka"] = REQUIRED["collector"]["kafka"] | wrong["collector"]["kafka"]
    done = helm("template", "release", str(CHART), values=wrong)
    assert done.returncode != 0
    assert "schema" in done.stderr
