"""One stack with pods for all end-to-end tests.

It is started once, profiled, and then runs under `spillway`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from spillway_lab.experiments import profiling
from spillway_lab.render.pods import HOST
from spillway_lab.report.progress import Progress
from spillway_lab.scenario import scenario
from spillway_lab.stack import stack
from spillway_lab.stack.control import Control
from spillway_lab.testing.servers import free_port

sys.path.insert(0, str(Path(__file__).parent))

from loop_harness import EXPORTS, Background, Loop

SCENARIO = Path(__file__).with_name("scenario.yaml")
# Production has two of each part: here a second worker of spans, which gets some of the partitions.
SECOND_WORKER = "streams-exclusive-2"
# This is a guard, not a claim: on a busy machine the pipeline is behind after the profile.
POLICY_S = 240
WARM_UP_S = 60


def exports_over_a_proxy(prepared: stack.LabStack) -> None:
    """Routes one Envoy's spans through Toxiproxy, so that tests can stop them."""
    pod = next(p for p in prepared.plan.pods if p.service == "backend")
    collector = prepared.cluster_ports[pod.cluster]["OTLP_GRPC_PORT"]
    bootstrap, proxies = prepared.run / f"envoy/{pod.name}.yaml", prepared.run / "toxiproxy.json"
    listen = free_port()
    old = f"port_value: {collector} "
    assert bootstrap.read_text().count(old) == 1
    bootstrap.write_text(bootstrap.read_text().replace(old, f"port_value: {listen} "))
    proxy = {
        "name": EXPORTS,
        "listen": f"{HOST}:{listen}",
        "upstream": f"{HOST}:{collector}",
        "enabled": True,
    }
    proxies.write_text(json.dumps([*json.loads(proxies.read_text()), proxy]))


def second_worker(prepared: stack.LabStack) -> None:
    """Adds a copy of the stack's first worker of spans, with its own folder and port."""
    processes = yaml.safe_load((stack.INFRA / "local/process-compose.yaml").read_text())["processes"]
    text = yaml.safe_dump(processes["streams-exclusive"])
    text = text.replace("${STREAMS_EXCLUSIVE_HEALTH_PORT}", str(free_port()))
    added = yaml.safe_load(text.replace("/streams-exclusive", f"/{SECOND_WORKER}"))
    file = prepared.run / "second-worker.yaml"
    file.write_text(yaml.safe_dump({"version": "0.5", "processes": {SECOND_WORKER: added}}))
    prepared.supervisor.add(file)


@pytest.fixture(scope="session")
def guardrails(tmp_path_factory) -> Path:
    """The stack's guardrail file, which tests may change. It starts as a copy of the lab's."""
    file = tmp_path_factory.mktemp("guardrails") / "guardrails.yaml"
    file.write_text(stack.GUARDRAILS.read_text())
    return file


@pytest.fixture(scope="session")
def loop(guardrails: Path) -> Iterator[Loop]:
    progress = Progress()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPILLWAY_GUARDRAILS", str(guardrails))
        prepared = stack.prepare(scenario.load(SCENARIO), "e2e", policy="local")
    exports_over_a_proxy(prepared)
    second_worker(prepared)
    with stack.running(prepared):
        prepared.supervisor.wait_ready(240, progress.starting)
        control = Control(prepared)
        profiling.profile(prepared, control, progress)
        with profiling.waiting_load(prepared, "first"):
            control.set_policy("spillway")
            control.wait_policy("spillway", POLICY_S, progress.show)
        # The model then learns from the load of the tests before a test judges the rules.
        Background(prepared, "first", WARM_UP_S).samples()
        yield Loop(prepared, control)
