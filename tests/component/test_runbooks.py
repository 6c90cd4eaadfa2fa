"""What docs/operations.md and UPGRADING.md tell people to type or look at exists.

The commands run on real servers.
"""

import os
import re
import shlex
import subprocess
import sys

import charts
import metric_names
import permitted_redis
import pytest
import redis
import yaml
from clickhouse_driver import Client
from cluster_chart import REQUIRED
from spillway_lab.commands.sql import FOLDER
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.component
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
PAGE = OPERATIONS + (ROOT / "UPGRADING.md").read_text()
RUNBOOK = OPERATIONS.split("\n## What to do per alert\n")[-1]
BOXES = {"spillway_publisher": "publisher", "spillway_optimizer": "optimizer", "spillway_streams": "classify"}
# Placeholders in commands, with values for them.
STANDS_FOR = {"CLUSTER": "west", "TEXT": "reason", "VERSION": "1", "NAMESPACE": "shop"}
# Commands that change something or wait. Their effects have tests of their own; here only their
# arguments are checked.
UNDERSTOOD = ("rollback", "reset-fence", "history", "status", "plan")


def spans(text: str) -> list[str]:
    """Returns the texts between backticks, each on one line."""
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]


def commands(start: str, text: str = PAGE) -> list[str]:
    """Returns the page's commands that begin with `start`, each once.

    Placeholders in capitals are replaced by values.
    """
    found = sorted({span for span in spans(text) if span.startswith(start) and "…" not in span})
    assert found, start
    return [re.sub(r"\b[A-Z]{4,}\b", lambda word: STANDS_FOR.get(word[0], word[0]), text) for text in found]


def python_commands() -> list[str]:
    """Returns the commands typed in a pod, including those that the page runs by `kubectl exec`."""
    programs = [c for c in commands("python -m ") if "spillway_lab" not in c]
    inside = [c.partition(" -- ")[2] for c in commands("kubectl ") if " -- " in c]
    return sorted({re.sub(r"\[.*?\]", "", c).strip() for c in [*programs, *inside]})


@pytest.fixture(scope="module")
def redis_urls(tmp_path_factory):
    with permitted_redis.running(tmp_path_factory.mktemp("redis")) as urls:
        yield urls


@pytest.mark.parametrize("command", python_commands())
def test_a_command_of_a_box_runs(command: str, hotel_url: str, redis_urls: dict[str, str]):
    """Each command runs with the variables and rights of its pod.

    A rollback, a status and a plan have tests of their own. Here their arguments are accepted, and
    only a variable is missing.
    """
    python, minus_m, module, *arguments = shlex.split(command)
    assert (python, minus_m) == ("python", "-m") and module in BOXES
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY_")}
    if arguments[0] not in UNDERSTOOD:
        environment |= {"SPILLWAY_CLICKHOUSE_URL": hotel_url, "SPILLWAY_REDIS_URL": redis_urls["optimizer"]}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], env=environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    if arguments[0] in UNDERSTOOD:
        assert "Usage:" not in done.stderr and re.search(r"SPILLWAY_\w+", done.stderr), done.stderr
    else:
        assert done.returncode == 0, done.stderr


def rendered() -> list[dict]:
    values = {
        "image": {"registry": "registry.example/spillway"},
        "kafka": {"brokers": "kafka:9093", "clusters": ["west"]},
    }
    return [
        *charts.render(ROOT / "infra/helm/spillway-global", values),
        *charts.render(ROOT / "infra/helm/spillway-cluster", REQUIRED),
    ]


def test_what_kubectl_is_to_name_is_in_the_charts():
    """Workloads are the charts' own, and Secrets are those that the charts name.

    tests/deploy/test_kubectl.py parses the commands with kubectl.
    """
    charts.build()
    objects = rendered()
    made = {f"{o['kind'].lower()}/{o['metadata']['name']}" for o in objects}
    named = yaml.safe_dump_all(objects)
    short = {"deploy": "deployment"}
    found = set()
    for command in commands("kubectl "):
        for kind, name in re.findall(r"\b(deploy|deployment|statefulset)[/ ](spillway-\w+)", command):
            found.add(f"{short.get(kind, kind)}/{name}")
        for name in re.findall(r"secret (spillway-[\w-]+)", command):
            assert name in named, command
    assert len(found) >= 5 and found <= made


def test_every_question_and_statement_is_answered(hotel_client: Client):
    """Files that the runbooks tell to "ask" exist in docs/sql, and statements run on the schema."""
    asked = {
        name for part in re.findall(r"\bask((?:,? (?:then )?`\w+`| \([^)]*\)|, then)+)", RUNBOOK, re.I)
        for name in re.findall(r"`(\w+)`", part)
    }  # fmt: skip
    assert asked >= {"freshness", "solves", "wrong_predictions"}
    assert {name for name in asked if not (FOLDER / f"{name}.sql").is_file()} == set()
    for statement in commands("SELECT ", RUNBOOK):
        hotel_client.execute(statement)


def test_redis_lets_the_user_do_what_is_told(redis_urls: dict[str, str]):
    """The commands run as the user that the page names, with keys of contracts/names.yaml."""
    keys = yaml.safe_load((ROOT / "contracts/names.yaml").read_text())["redis_key"].values()
    patterns = [re.escape(key).replace(r"\{cluster\}", r"\w+").replace(r"\{role\}", r"\w+") for key in keys]
    with redis.Redis.from_url(redis_urls["optimizer"]) as client:
        for command in (c for c in commands("redis-cli ", RUNBOOK) if c != "redis-cli -u"):
            _, word, key = shlex.split(command)
            assert any(re.fullmatch(pattern, key) for pattern in patterns), key
            client.execute_command(word, key)


def test_kafkas_commands_name_topics_and_groups_that_are_there():
    """Kafka's scripts are not available here, so the commands are not run."""
    declared = yaml.safe_load((ROOT / "infra/kafka/topics.yaml").read_text())
    topics = [topic.replace("{cluster}", "west") for topic in declared]
    groups = re.findall(r"group: ([\w-]+)", (ROOT / "infra/kafka/acls.yaml").read_text())
    found = commands("kafka-")
    for command in found:
        assert set(re.findall(r"--topic (\S+)", command)) <= set(topics), command
        assert set(re.findall(r"--group (\S+)", command)) <= set(groups), command
    assert len([c for c in found if "--topic" in c]) >= 3


def test_every_metric_that_is_told_is_served():
    """A metric appears with its full name or with a wildcard."""
    metrics = [span for span in spans(PAGE) if re.match(r"(spillway_(?!lab)[a-z]+_|otelcol_)[a-z_*]+$", span)]
    assert len(metrics) >= 8
    names = metric_names.served() | metric_names.read("spillway_streams_consumer_lag_seconds")
    boxes = ("spillway_streams", "spillway_optimizer", "spillway_publisher", "spillway_relay", "otelcol")
    for name in (n for n in metrics if n.startswith(boxes)):
        pattern = re.escape(name).replace(r"\*", "[a-z_]+")
        assert [known for known in names if re.fullmatch(pattern, known)], name


def test_every_alert_that_is_told_is_there():
    """Runbooks that refer to another alert name one that exists."""
    rules = (ROOT / "infra/alerts").glob("*.yaml")
    known = {name for file in rules for name in re.findall(r"- alert: (\w+)", file.read_text())}
    assert set(re.findall(r"\bSpillway[A-Z]\w+", PAGE)) <= known
