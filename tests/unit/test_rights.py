"""Declared rights (infra/*) agree with the code.

Everything that a program names is granted, and nothing else.
"""

import re
from pathlib import Path

import pytest
import yaml
from spillway_clickhouse import grants
from spillway_contracts import names
from spillway_streams.process import cluster_topics
from spillway_streams.topics import acls

ROOT = Path(__file__).resolve().parents[2]
TABLES = {
    word
    for file in (ROOT / "contracts" / "clickhouse").glob("*.sql")
    for word in re.findall(r"CREATE (?:TABLE|VIEW) IF NOT EXISTS (\w+)", file.read_text())
}
BOXES = {
    "streams": "streams/spillway_streams",
    "optimizer": "optimizer/spillway_optimizer",
    "publisher": "rule-publisher/publisher/spillway_publisher",
}
# Tables that a component's code names only outside of statements, or under another name.
_WRITTEN_BY_NAME = {
    "streams": {"buckets", "call_ratios", "calls", "capacities", "class_findings", "class_rules", "cpu_1s", "curves",
                "edge_parts", "edges", "load_parts", "network_parts", "network_times", "positions", "spans"},
    "optimizer": {"papa_steps", "solves"},
    "publisher": set(),
}  # fmt: skip


def code(folder: str, suffix: str) -> str:
    return "\n".join(path.read_text() for path in sorted((ROOT / folder).rglob(f"*{suffix}")))


def statements(folder: str) -> str:
    """Returns the SQL of a component: its .sql files and the statements in its modules."""
    texts = re.findall(r'"""(.*?)"""', code(folder, ".py"), re.DOTALL)
    return code(folder, ".sql") + "\n".join(text for text in texts if re.search(r"\bSELECT\b", text))


def named(text: str, words: str) -> set[str]:
    return {found for found in re.findall(rf"\b(?:{words})\s+(\w+)", text) if found in TABLES}


@pytest.mark.parametrize("role", sorted(BOXES))
def test_clickhouse_grants_are_what_statements_name(role):
    """FROM and JOIN need read rights.

    INSERT INTO needs write rights, and so do tables that a component passes to its inserts by name.
    """
    granted = grants.read(ROOT / "infra" / "clickhouse" / "grants.yaml")[role].rights
    of = {
        right: {privilege.rpartition(".")[2] for privilege in granted if privilege.startswith(right)}
        for right in ("SELECT", "INSERT")
    }
    text = statements(BOXES[role])
    assert of["SELECT"] == named(text, "FROM|JOIN")
    assert of["INSERT"] == named(text, "INTO") | _WRITTEN_BY_NAME[role]
    quoted = set(re.findall(r'"(\w+)"', code(BOXES[role], ".py")))
    assert _WRITTEN_BY_NAME[role] <= quoted


def topics(text: str) -> set[str]:
    return {getattr(names, word) for word in re.findall(r"names\.(KAFKA_TOPIC_\w+)", text)}


def test_kafka_rights_are_what_jobs_read_and_write():
    """The rights of each job match its code.

    They cover the topics that a job consumes, the topics that `exclusive` and `admit` write, dead
    letters for all, and the group that Faust derives from the job's name. A cluster's collector
    writes that cluster's topics. Only `admit` writes the topics of all clusters.
    """
    declared = yaml.safe_load((ROOT / "infra" / "kafka" / "acls.yaml").read_text())
    folder = ROOT / "streams" / "spillway_streams"
    sent = topics((folder / "ingest" / "outputs.py").read_text()) | {names.KAFKA_TOPIC_ARRIVALS}
    for job in ("exclusive", "classify", "curves", "graph"):
        text = (folder / "jobs" / f"{job}.py").read_text()
        read = topics("\n".join(re.findall(r"consume\(app, context\.lag, (names\.\w+)", text)))
        assert set(declared[job]["read"]) == read, job
        assert set(declared[job]["write"]) == (sent if job == "exclusive" else set()) | {
            names.KAFKA_TOPIC_DEAD_LETTERS
        }
        assert declared[job]["group"] == f"spillway-{job}"
    collector = yaml.safe_load((ROOT / "collectors" / "config.yaml").read_text())["exporters"][
        "kafka_partition"
    ]
    written = {
        collector[s]["topic"].replace("${env:SPILLWAY_CLUSTER}", "{cluster}") for s in ("traces", "metrics")
    }
    assert set(declared["collector-{cluster}"]["write"]) == written == set(cluster_topics.MERGED)
    merged = set(cluster_topics.MERGED.values())
    assert set(declared["admit"]["read"]) == written | merged
    assert set(declared["admit"]["write"]) == merged | {names.KAFKA_TOPIC_DEAD_LETTERS}
    assert declared["admit"]["group"] == "spillway-admit"
    assert [
        role
        for role, rights in declared.items()
        if merged & {*rights.get("write", ()), *rights.get("create", ())}
    ] == ["admit"]
    jobs = {"admit", "exclusive", "classify", "curves", "graph"}
    assert set(declared) == jobs | {"topics", "collector-{cluster}"}


def test_a_collectors_user_is_made_for_every_cluster(tmp_path):
    """There is one user per given cluster, and none without clusters.

    Misspelt names are reported.
    """
    file = ROOT / "infra" / "kafka" / "acls.yaml"
    users = lambda clusters: {acl.principal for acl in acls.read(file, clusters)}  # noqa: E731
    assert {"User:collector-a", "User:collector-b"} <= users(["a", "b"])
    assert not any("collector" in user for user in users([]))
    wrong = tmp_path / "acls.yaml"
    for text, expected in (
        ("a: {read: [otlp_span]}", "otlp_span: unknown topic"),
        ("a: {reads: []}", "a.reads: must be"),
        ("x", "map"),
    ):
        wrong.write_text(text)
        with pytest.raises(acls.StreamsError, match=expected):
            acls.read(wrong, [])


def keys(text: str) -> set[str]:
    return {getattr(names, word) for word in re.findall(r"names\.(REDIS_KEY_\w+)", text)}


def test_redis_keys_are_what_programs_name():
    """Each user may access the keys that its program names, with any cluster for {cluster}.

    Each role has only its own lease, and no user has further keys.
    """
    folder, any_cluster = ROOT / "optimizer" / "spillway_optimizer", {"cluster": "*"}
    reads = keys((folder / "clients" / "hot.py").read_text())
    lease = keys((folder / "clients" / "lease.py").read_text())
    streams, publisher = (keys(code(BOXES[box], ".py")) for box in ("streams", "publisher"))
    not_papas = {names.REDIS_KEY_POLICY, names.REDIS_KEY_ROUTE}
    wanted = {
        "streams": {key.format(**any_cluster) for key in streams},
        "publisher": {key.format(**any_cluster) for key in publisher},
        "optimizer": {key.format(**any_cluster) for key in reads} | {key.format(role="optimizer") for key in lease},
        "papa": {key.format(**any_cluster) for key in reads - not_papas | {names.REDIS_KEY_PAPA_CHECKPOINT}}
        | {key.format(role="papa") for key in lease},
    }  # fmt: skip
    lines = [
        line for line in (ROOT / "infra/redis/users.acl").read_text().splitlines() if line.startswith("user ")
    ]
    found = {line.split()[1]: {word[1:] for word in line.split() if word.startswith("~")} for line in lines}
    assert found == wanted
    channels = {line.split()[1]: {word for word in line.split() if word.startswith("&")} for line in lines}
    demand = {f"&{names.REDIS_CHANNEL_DEMAND}"}
    assert channels == {"streams": demand, "optimizer": demand, "papa": set(), "publisher": set()}
    for line in lines:
        assert " -@all " in line and " +@" not in line and "resetchannels" in line and "nopass" not in line
