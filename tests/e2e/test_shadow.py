"""A mesh that only sends telemetry, in shadow mode.

No Envoy subscribes to a relay that the global region knows. The relays that serve the Envoys
represent the mesh's own control plane. They have no connection to NATS, so each serves the nearest
cluster and sends no heartbeat. Beside them each cluster has a connected relay without any Envoy.

The test has its own stack, so it runs without the stack of the other files (`make test-e2e`). `-s`
prints the answers and the time that docs/start/istio-shadow.md shows.
"""

import copy
import io
import runpy
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import redis
import yaml
from clickhouse_driver import Client
from google.protobuf import json_format
from loop_harness import Background
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts import names
from spillway_lab.experiments import profiling
from spillway_lab.render import bus
from spillway_lab.render.pods import HOST
from spillway_lab.report import questions
from spillway_lab.report.progress import Progress
from spillway_lab.scenario import scenario
from spillway_lab.stack import stack
from spillway_lab.stack.control import Control
from spillway_lab.testing.documents import FIRST_DAY, questions_of
from spillway_lab.testing.servers import free_port
from spillway_lab.testing.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
SCENARIO = Path(__file__).with_name("scenario.yaml")
GAINS = Path(__file__).resolve().parents[2] / "docs/sql/gains.sql"
_APPLICATION = "gateway"
_LOAD_S, _SOLVED_S = 60.0, 120.0
# A word of the command -> words of its answer.
_ANSWERS = {
    "freshness": ("calls", "edges", "job curves, spillway_calls"),
    "classes": ("backend GET /items/{id}", "gateway GET /items/{id}"),
    "who_calls_whom": ("frontend GET /items/{id}  backend GET /items/{id}",),
    "solves": (_APPLICATION, "proposed"),
    "gains": (_APPLICATION, "saved_ms"),
    "explain": ("backend GET /items/{id}", "west", "east"),
}
_FIRST_PROPOSAL = """
    SELECT dateDiff('millisecond', (SELECT min(started_at) FROM calls), toDateTime64(min(at), 6, 'UTC')) / 1000 FROM solves
    WHERE outcome = 'proposed'
"""


def without_subscribers(prepared: stack.LabStack) -> None:
    """Disconnects the Envoys' relays from NATS, and adds a connected relay to each cluster."""
    for cluster in prepared.scenario.clusters:
        file = prepared.run / f"cluster-{cluster}.yaml"
        document = yaml.safe_load(file.read_text())
        relays = [document["processes"][relay] for relay in stack.relays(cluster)]
        ours, name = copy.deepcopy(relays[0]), f"relay-{cluster}-shadow"
        for relay in relays:
            _set(relay, SPILLWAY_NATS_URL=f"nats://{bus.relay_user(cluster)}:nothing@{HOST}:{free_port()}")
        health = free_port()
        _set(
            ours,
            SPILLWAY_RELAY=name,
            SPILLWAY_XDS_LISTEN=f"{HOST}:{free_port()}",
            SPILLWAY_HEALTH_LISTEN=f"{HOST}:{health}",
            SPILLWAY_STATE_DIR=str(prepared.run / "data" / name),
        )
        (prepared.run / "data" / name).mkdir()
        ours["readiness_probe"]["http_get"]["port"] = str(health)
        ours["log_location"] = str(prepared.run / "log" / f"{name}.log")
        document["processes"][name] = ours
        file.write_text(yaml.safe_dump(document))


def _set(process: dict, **values: str) -> None:
    environment = dict(variable.split("=", 1) for variable in process["environment"])
    assert values.keys() <= environment.keys()
    process["environment"] = [f"{key}={value}" for key, value in {**environment, **values}.items()]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory) -> Iterator[stack.LabStack]:
    file = tmp_path_factory.mktemp("guardrails") / "guardrails.yaml"
    file.write_text("shadow: true\n")
    progress = Progress()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPILLWAY_GUARDRAILS", str(file))
        prepared = stack.prepare(scenario.load(SCENARIO), "e2e-shadow", policy="spillway")
    without_subscribers(prepared)
    with stack.running(prepared):
        prepared.supervisor.wait_ready(240, progress.starting)
        profiling.profile(prepared, Control(prepared), progress)
        yield prepared


def test_telemetry_alone_makes_proposals_and_says_what_they_would_gain(mesh: stack.LabStack):
    """Under load that nearly fills west's backend, `solves` gets proposals.

    They would save each user some milliseconds for some egress. Nothing is published, and no
    request fails.
    """
    client, began = Client.from_url(mesh.clickhouse_url()), time.time()
    background = Background(mesh, "shadow", _LOAD_S)

    def gain() -> dict | None:
        rows = gains(client, began)
        return rows.get(_APPLICATION) if rows.get(_APPLICATION, {}).get("saved_ms", 0) > 1 else None

    row = eventually(gain, "a gain", _SOLVED_S, lambda: (gains(client, began), solves(client)))
    answer_the_first_days_questions(mesh)
    print(f"first request to first proposal: {client.execute(_FIRST_PROPOSAL)[0][0]:.0f} s")
    assert row["saved_usd"] > 0 and row["now_egress_usd"] < row["proposed_egress_usd"]
    assert heartbeats(mesh) == dict.fromkeys(mesh.scenario.clusters, {})
    assert Control(mesh).in_force() is None
    reasons = client.execute("SELECT DISTINCT outcome, splitByChar(';', reason)[1] FROM rulesets")
    assert reasons == [("refused", "shadow: true: computed, not published")]
    assert background.samples().ok.all()


def answer_the_first_days_questions(mesh: stack.LabStack) -> None:
    """Runs each command of docs/start that needs spans, exactly as written.

    It gets the variables that the page exports, or those of the pod.
    """
    commands = sorted({command for page in FIRST_DAY for command in questions_of(page)})
    assert len(commands) == len(_ANSWERS)
    variables = {
        "spillway_lab": {"SPILLWAY_CLICKHOUSE_URL": mesh.clickhouse_url()},
        "spillway_optimizer": {
            "SPILLWAY_CLICKHOUSE_URL": mesh.clickhouse_url("optimizer"),
            "SPILLWAY_REDIS_URL": mesh.redis_url("optimizer"),
            "SPILLWAY_TOPOLOGY": str(mesh.run / "topology.yaml"),
        },
    }
    for command in commands:
        python, minus_m, module, *arguments = shlex.split(command)
        assert (python, minus_m) == ("python", "-m")
        [words] = [words for word, words in _ANSWERS.items() if word in arguments]
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as answer:
            for name, value in variables[module].items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", [module, *arguments])
            with pytest.raises(SystemExit) as end:
                runpy.run_module(module, run_name="__main__", alter_sys=False)
        print(f"$ {command}\n{answer.getvalue()}")
        assert not end.value.code and all(word in answer.getvalue() for word in words)


def gains(client: Client, since: float) -> dict[str, dict]:
    """Returns the gains by application."""
    columns, rows = questions.ask(client, GAINS, {"start": since, "end": time.time() + 60})
    return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


def solves(client: Client) -> list[tuple]:
    return client.execute("SELECT application, outcome, reason, notes FROM solves ORDER BY at DESC LIMIT 4")


def heartbeats(mesh: stack.LabStack) -> dict[str, dict[str, int] | None]:
    """Returns connected Envoys by cluster and service, as the optimizer reads them.

    None means no heartbeat.
    """
    found: dict[str, dict[str, int] | None] = {}
    with redis.Redis.from_url(mesh.redis_url("optimizer")) as hot:
        for cluster in mesh.scenario.clusters:
            text = hot.get(names.REDIS_KEY_PLACEMENT.format(cluster=cluster))
            services = json_format.Parse(text, Heartbeat()).services if text else None
            found[cluster] = None if services is None else {s.service: s.connected_envoys for s in services}
    return found
