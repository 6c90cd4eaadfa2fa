import io
import json
import os
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import click
import pytest
from spillway_optimizer import SolveError
from spillway_optimizer.__main__ import main
from spillway_optimizer.commands import source_arguments
from spillway_optimizer.policies import EXACT, REGISTRY, SPILLWAY
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources import traces
from spillway_optimizer.sources.errors import InputError
from spillway_runtime import command_line

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"


def _run(*arguments: str, **environment: str) -> SimpleNamespace:
    """Runs the command in this process. Returns its exit code and its output."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY_")}
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, clean | environment, clear=True),
        patch.object(sys, "argv", ["spillway", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def test_the_module_is_the_command():
    """python -m spillway_optimizer is the command that pyproject.toml declares as `spillway`."""
    declared = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    assert declared["project"]["scripts"] == {"spillway": "spillway_optimizer.__main__:main"}
    command = [sys.executable, "-m", "spillway_optimizer", "explain", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("Usage: spillway explain")


def test_plan_compares_every_policy():
    """On the golden model, spillway has the lowest objective, and each rule has a reason.

    `exact` may take 30 s, so it is planned only if it is named.
    """
    done = _run(
        "plan", "--model", str(GOLDEN / "3_model.json"), "--topology", str(GOLDEN / "topology.yaml"), "--json"
    )
    policies = json.loads(done.stdout)["policies"]
    assert set(policies) == REGISTRY.keys() - {EXACT}
    best = min(policies, key=lambda name: policies[name]["objective_usd_per_hour"])
    assert best == "spillway"
    assert all(rule["reason"] for policy in policies.values() for rule in policy["rules"])


def test_exact_is_planned_if_it_is_named():
    """On the golden model, it has rules, and its cost is that of spillway up to both gaps."""
    model, topology = str(GOLDEN / "3_model.json"), str(GOLDEN / "topology.yaml")
    done = _run("plan", "--model", model, "--topology", topology, "--json", "--policies", EXACT)
    policies = json.loads(done.stdout)["policies"]
    assert set(policies) == {EXACT, SPILLWAY} and policies[EXACT]["rules"]
    most = sum(policy["relative_gap"] + policy["extraction_loss"] for policy in policies.values())
    assert abs(policies[EXACT]["above_optimum"]) <= most + 1e-9


def test_a_missing_file_is_named():
    """Bad input exits with code 1 and prints the path."""
    done = _run("plan", "--model", "nowhere.json", "--topology", str(GOLDEN / "topology.yaml"))
    assert done.returncode == 1 and "nowhere.json" in done.stderr


def test_traces_are_planned_as_the_model_that_streams_makes_of_them():
    """OTLP JSON of two clusters gives their demand and the requested policies.

    stdout is one JSON object, and progress goes to stderr.
    """
    traces, topology = str(GOLDEN / "1_spans.json"), str(GOLDEN / "topology.yaml")
    done = _run("plan", "--traces", traces, "--topology", topology, "--json", "--policies", "local")
    document = json.loads(done.stdout)
    assert set(document["policies"]) == {"local", "spillway"}
    assert set(document["size"]["demand_rps"]) == {"west", "east"}
    assert "28 traces" in done.stderr


def test_what_streams_refuses_is_the_error():
    """Errors of streams appear once, without its other output.

    A program that ends without an error message is named.
    """
    code = "import sys; print('x.json: 28 traces', 'error: x.json:1:11: not JSON', sep='\\n', file=sys.stderr); sys.exit(1)"
    shown = io.StringIO()
    with pytest.raises(InputError) as error:
        traces._run([sys.executable, "-c", code], Progress(shown))
    assert str(error.value) == "x.json:1:11: not JSON"
    assert shown.getvalue() == "x.json: 28 traces\n"
    with pytest.raises(InputError, match="ended with 3$"):
        traces._run([sys.executable, "-c", "raise SystemExit(3)"], Progress(shown))


def test_every_option_of_traces_reaches_streams():
    """--traces may be repeated. 0 is passed on as a number, which streams rejects."""

    @click.command(cls=command_line.SpreadingCommand)
    @source_arguments.source
    def chosen(source: source_arguments.Source) -> list[str]:
        return traces._command(source.traces, source_arguments._of_traces(source), Path("t.yaml"))

    given = "--traces a b --min-samples 0 --traces c --cluster west".split()
    command = chosen.main(given, standalone_mode=False)
    assert command[command.index("--traces") :] == ["--traces", "a", "b", "c"]
    assert command[command.index("--min-samples") + 1] == "0"
    assert "--cluster-attribute" not in command


def test_arguments_after_traces_stand_behind_two_dashes():
    """CLASS and CLUSTER are not parsed as files."""
    with patch.object(traces, "STREAMS", "not_installed_here"):
        done = _run(
            "explain", "--topology", str(GOLDEN / "topology.yaml"), "--traces", "x", "--", "a GET /", "west"
        )
    assert done.returncode == 69


def test_a_plan_without_its_optimum_fails():
    """The answers of the other policies are still printed."""

    class Broken:
        def route(self, problem):
            raise SolveError("no optimum: infeasible")

    source = ("--model", str(GOLDEN / "3_model.json"), "--topology", str(GOLDEN / "topology.yaml"))
    with patch("spillway_optimizer.commands.plan.REGISTRY", REGISTRY | {SPILLWAY: Broken}):
        done = _run("plan", *source, "--policies", "local")
    assert done.returncode == 1
    assert "spillway: no answer: no optimum: infeasible" in done.stdout and "\nlocal " in done.stdout
    with patch("spillway_optimizer.commands.plan.REGISTRY", REGISTRY | {"local": Broken}):
        done = _run("plan", *source, "--policies", "local")
    assert done.returncode == 0 and "local: no answer" in done.stdout


def test_without_streams_the_error_says_what_to_do():
    """The exit code is 69, and the message names the alternative."""
    with patch("spillway_optimizer.sources.traces.STREAMS", "not_installed_here"):
        done = _run("plan", "--traces", "x", "--topology", str(GOLDEN / "topology.yaml"))
    assert done.returncode == 69
    assert "spillway-streams" in done.stderr and "--model" in done.stderr


def test_explain_answers_in_words_and_json():
    """Both contain the same numbers, with CLASS and CLUSTER as given."""
    source = ("--model", str(GOLDEN / "3_model.json"), "--topology", str(GOLDEN / "topology.yaml"))
    output = _run("explain", "frontend GET /items/{id}", "west", *source).stdout
    document = json.loads(_run("explain", "frontend GET /items/{id}", "west", *source, "--json").stdout)
    [route] = document["routes"]
    assert (document["class"], document["cluster"]) == ("frontend GET /items/{id}", "west")
    assert sum(d["share"] for d in route["destinations"]) == pytest.approx(1)
    for d in route["destinations"]:
        assert f"{d['marginal_ms']:.2f}" in output
    assert all(sentence in output for sentence in route["words"])


def test_explain_names_what_is_known():
    """A wrong class and a wrong cluster are reported together, with the closest known names first.

    For an entry class, the error says that it is not routed, and what it calls.
    """
    source = ("--model", str(GOLDEN / "3_model.json"), "--topology", str(GOLDEN / "topology.yaml"))
    done = _run("explain", "frontend GET /item", "wets", *source)
    assert done.returncode == 1
    assert "CLASS: unknown 'frontend GET /item'; closest: frontend GET /items/{id}" in done.stderr
    assert "CLUSTER: unknown 'wets'; closest: west" in done.stderr
    done = _run("explain", "gateway GET /items/{id}", "west", *source)
    assert done.returncode == 1 and "is an entry" in done.stderr and "frontend GET /items/{id}" in done.stderr


def test_options_and_settings_that_are_missing_or_idle_are_named():
    """Four mistakes are named.

    They are: no topology, an option of another source, a policy that does not exist, and the
    running mesh without its addresses.
    """
    topology = ("--topology", str(GOLDEN / "topology.yaml"))
    model = ("--model", str(GOLDEN / "3_model.json"))
    done = _run("plan", *model)
    assert done.returncode == 1 and "--topology: missing" in done.stderr
    done = _run("plan", *model, *topology, "--cluster", "west", "--window", "5m")
    assert (
        "--cluster: only with --traces" in done.stderr and "--window: only with --clickhouse" in done.stderr
    )
    done = _run("plan", *model, *topology, "--policies", "locl")
    assert done.returncode == 1 and "--policies: unknown 'locl'; closest: local" in done.stderr
    done = _run("plan", *model, *topology, "--policies", " , ")
    assert done.returncode == 1 and "--policies: ' , ' names none; known: " in done.stderr
    done = _run("plan", *model, *topology, "--policies", " local ,", "--json")
    assert set(json.loads(done.stdout)["policies"]) == {"local", SPILLWAY}
    done = _run("plan", *topology)
    assert done.returncode == 64
    assert "SPILLWAY_REDIS_URL" in done.stderr and "SPILLWAY_CLICKHOUSE_URL" in done.stderr


def test_a_server_that_is_away_is_named_without_its_password():
    """The exit code is 69 for Redis and for ClickHouse."""
    topology = ("--topology", str(GOLDEN / "topology.yaml"))
    done = _run("plan", *topology, "--clickhouse", "clickhouse://u:secret@127.0.0.1:1/none")
    assert done.returncode == 69 and "127.0.0.1:1" in done.stderr and "secret" not in done.stderr
    assert len(done.stderr.splitlines()) == 1, "the client's own traceback is not shown"
    away = {
        "SPILLWAY_REDIS_URL": "redis://:secret@127.0.0.1:1",
        "SPILLWAY_CLICKHOUSE_URL": "clickhouse://127.0.0.1:1",
    }
    done = _run("explain", "a GET /", "west", *topology, **away)
    assert done.returncode == 69 and "SPILLWAY_REDIS_URL: 127.0.0.1:1" in done.stderr
    assert "secret" not in done.stderr


def test_guardrails_hold_for_plans_too(tmp_path):
    """No policy sends calls to a denied destination, and explain states the denial.

    An error in the guardrail file is reported with its key.
    """
    source = ("--model", str(GOLDEN / "3_model.json"), "--topology", str(GOLDEN / "topology.yaml"))
    file = tmp_path / "g.yaml"
    file.write_text("denied_destinations: [{source_cluster: west, clusters: [east]}]")
    done = _run("plan", *source, "--guardrails", str(file), "--json")
    for policy in json.loads(done.stdout)["policies"].values():
        assert {c for r in policy["rules"] if r["source_cluster"] == "west" for c in r["weights"]} == {"west"}
    done = _run("explain", "frontend GET /items/{id}", "west", *source, SPILLWAY_GUARDRAILS=str(file))
    assert done.stdout.count("denied") == 1 and "\neast: no: denied\n" in done.stdout
    file.write_text("drained_clusters: [moon]")
    done = _run("plan", *source, "--guardrails", str(file))
    assert done.returncode == 1 and "g.yaml: drained_clusters: unknown cluster 'moon'" in done.stderr


@pytest.mark.parametrize(
    "url", ["nonsense", "http://h", "clickhouse://h:secret@", "clickhouse://h:99999", "clickhouse://h?connect_timeout=secret"]
)  # fmt: skip
def test_an_address_that_is_none_is_refused_with_its_form(url):
    """A wrong address exits with 1 as an option and with 64 as a variable.

    The message does not repeat a possible password.
    """
    topology = ("--topology", str(GOLDEN / "topology.yaml"))
    option = _run("plan", *topology, "--clickhouse", url)
    variable = _run("plan", *topology, SPILLWAY_REDIS_URL="redis://localhost", SPILLWAY_CLICKHOUSE_URL=url)
    redis = _run("policy", "local", SPILLWAY_REDIS_URL="http://u:secret@h")
    port = _run("policy", "local", SPILLWAY_REDIS_URL="redis://h:secret")
    assert [done.returncode for done in (option, variable, redis, port)] == [1, 64, 64, 64]
    assert "--clickhouse: must be clickhouse://user:password@host:port/database" in option.stderr
    assert "SPILLWAY_CLICKHOUSE_URL: " in variable.stderr and "must be clickhouse://" in variable.stderr
    for done in (redis, port):
        assert "SPILLWAY_REDIS_URL: " in done.stderr and "must be redis://" in done.stderr
    for done in (option, variable, redis, port):
        assert "secret" not in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_file_that_the_environment_names_wrongly_is_the_variables_mistake(tmp_path):
    """A wrong file from a variable exits with 64 and names the variable.

    This holds for guardrails and topology. A wrong file from an option exits with 1 and names the
    file.
    """
    model = ("--model", str(GOLDEN / "3_model.json"))
    topology = ("--topology", str(GOLDEN / "topology.yaml"))
    done = _run("plan", *model, *topology, SPILLWAY_GUARDRAILS="nope")
    assert done.returncode == 64 and "error: SPILLWAY_GUARDRAILS: nope: cannot be read" in done.stderr
    done = _run("plan", *model, SPILLWAY_TOPOLOGY="nope")
    assert done.returncode == 64 and "error: SPILLWAY_TOPOLOGY: nope" in done.stderr
    done = _run("plan", *model, *topology, "--guardrails", "nope", SPILLWAY_GUARDRAILS="other")
    assert done.returncode == 1 and "error: nope: cannot be read" in done.stderr


def test_a_wrong_topology_names_file_and_key(tmp_path):
    """Every wrong key is reported on its own line."""
    (tmp_path / "t.yaml").write_text(
        "clusters: [{name: a}]\nlinks: [{source_cluster: a, destination_cluster: b}]\n"
    )
    done = _run("plan", "--model", str(GOLDEN / "3_model.json"), "--topology", str(tmp_path / "t.yaml"))
    assert done.returncode == 1 and "t.yaml: links[0].destination_cluster: unknown cluster 'b'" in done.stderr
    (tmp_path / "t.yaml").write_text("clusters: [{name: a}]\n")
    done = _run("plan", "--model", str(GOLDEN / "3_model.json"), "--topology", str(tmp_path / "t.yaml"))
    assert "t.yaml: usd_per_ms_per_million_requests: must be a number above 0" in done.stderr


def test_run_refuses_to_start_without_its_identity():
    """The exit code is 64, and every wrong variable is listed.

    Secrets in values are not printed.
    """
    done = _run(
        "run", SPILLWAY_POLICY="fastest", SPILLWAY_REDIS_URL="redis://:secret@x", SPILLWAY_HEALTH_LISTEN="80"
    )
    assert done.returncode == 64
    for name in (
        "SPILLWAY_TOPOLOGY",
        "SPILLWAY_CLICKHOUSE_URL",
        "SPILLWAY_NATS_URL",
        "SPILLWAY_HEALTH_LISTEN",
    ):
        assert name in done.stderr
    assert f"SPILLWAY_POLICY: must be one of {', '.join(sorted(REGISTRY))}" in done.stderr
    assert "secret" not in done.stderr
