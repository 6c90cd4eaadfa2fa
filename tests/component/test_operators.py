"""bundled.kafka and bundled.clickhouse of infra/helm/spillway-global.

The operators get the same users, rights and settings that infra/ declares.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import charts
import pytest
import yaml
from spillway_clickhouse import grants
from spillway_lab.testing.servers import ROOT
from spillway_streams.topics import acls

pytestmark = pytest.mark.component
CHART = ROOT / "infra/helm/spillway-global"
CLUSTERS = ["west", "east-2"]
LEAST: dict[str, Any] = {"image": {"registry": "registry.example/spillway"}, "kafka": {"clusters": CLUSTERS}}
KAFKA = LEAST | {"bundled": {"kafka": {"enabled": True}}}
BY_ADDRESS = LEAST | {"kafka": LEAST["kafka"] | {"brokers": "kafka.example:9093"}}
CLICKHOUSE = BY_ADDRESS | {"bundled": {"clickhouse": {"enabled": True}}}
REPLICATED = CLICKHOUSE | {"clickhouse": {"variant": "replicated"}}
GRANTS = ROOT / "infra/clickhouse/grants.yaml"
# Runs in its own process: the engine with the roles of users.xml. It prints what each role may do,
# as [right, database, table].
ENGINE = """
import json, sys
from pathlib import Path
from spillway_clickhouse import engine, grants
folder = Path(sys.argv[1])
grants.users_xml = lambda roles: (folder / "rendered.xml").read_text()
roles = grants.read(Path(sys.argv[2]))
found = engine.Engine(folder / "engine", 2, 1 << 30, roles)
rows = found.connect("").rows("SELECT role_name, access_type, database, table FROM system.grants")
print("\\n" + json.dumps({role: [row[1:] for row in rows if row[0] == role] for role in roles}))
found.close()
"""


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    charts.build()


def two_pools() -> dict:
    pool = yaml.safe_load((CHART / "values.yaml").read_text())["bundled"]["kafka"]["pools"][0]
    pools = [pool | {"name": role, "roles": [role]} for role in ("controller", "broker")]
    broker = {"broker": 0, "advertisedHost": "kafka-0.example"}
    external = {"type": "loadbalancer", "configuration": {"brokers": [broker]}}
    return LEAST | {"bundled": {"kafka": {"enabled": True, "pools": pools, "external": external}}}


@pytest.mark.parametrize("values", [KAFKA, two_pools(), CLICKHOUSE, REPLICATED], ids=str)
def test_the_operators_definitions_accept_it(values: dict):
    """Each object strictly has the keys and types of the operators' own definitions.

    The selectors match the pods.
    """
    objects = charts.render(CHART, values)
    charts.conform(objects)
    assert charts.adrift(objects) == []
    assert charts.insecure(objects) == []


def test_a_key_that_the_operator_does_not_know_is_refused():
    """The definitions are strict, so a misspelt key of a user is found."""
    objects = charts.render(CHART, KAFKA)
    charts.of(objects, "KafkaUser")["curves"]["spec"]["authorization"]["acl"] = []
    with pytest.raises(AssertionError, match="acl"):
        charts.conform(objects)


def test_each_user_of_kafka_may_do_what_acls_yaml_says():
    """The users are those of the file, with one for each cluster's collector.

    Their entries are equal to the brokers' entries, one by one.
    """
    users = charts.of(charts.render(CHART, KAFKA), "KafkaUser")
    rendered = [
        acls.Acl(f"User:{user}", acl["resource"]["type"].upper(), acl["resource"]["name"], operation.upper())
        for user, thing in users.items()
        for acl in thing["spec"]["authorization"]["acls"]
        for operation in acl["operations"]
    ]
    wanted = acls.read(ROOT / "infra/kafka/acls.yaml", CLUSTERS)
    operations = {"DESCRIBE_CONFIGS": "DESCRIBECONFIGS", "ALTER_CONFIGS": "ALTERCONFIGS"}
    assert sorted(rendered) == sorted(
        acls.Acl(a.principal, a.resource, a.name, operations.get(a.operation, a.operation)) for a in wanted
    )
    assert {f"User:{user}" for user in users} == {acl.principal for acl in wanted}
    for user, thing in users.items():
        assert thing["metadata"]["labels"]["strimzi.io/cluster"] == "spillway-kafka"
        secret = thing["spec"]["authentication"]["password"]["valueFrom"]["secretKeyRef"]
        assert secret == {"name": "spillway-kafka-users", "key": user}


def test_brokers_are_reached_by_tls_and_a_user_alone():
    """Every listener has TLS and SCRAM, and authorization is on.

    The jobs have the bootstrap's address.
    """
    objects = charts.render(CHART, two_pools())
    kafka = charts.of(objects, "Kafka")["spillway-kafka"]["spec"]["kafka"]
    assert [listener["port"] for listener in kafka["listeners"]] == [9093, 9094]
    for listener in kafka["listeners"]:
        assert listener["tls"] is True and listener["authentication"] == {"type": "scram-sha-512"}
    assert kafka["authorization"] == {"type": "simple"}
    job = charts.of(objects, "Job")["spillway-topics"]["spec"]["template"]
    environment = {v["name"]: v.get("value") for v in charts.containers(job)[0]["env"]}
    assert environment["SPILLWAY_KAFKA"] == "spillway-kafka-kafka-bootstrap:9093"


@pytest.mark.parametrize(("values", "job"), [(KAFKA, "spillway-topics"), (CLICKHOUSE, "spillway-migrate")])
def test_the_first_job_does_not_wait_for_servers_that_come_after_it(values: dict, job: str):
    """At installation the job of bundled servers is not a hook, because hooks run before them.

    At an upgrade it is a hook.
    """

    def annotations(*flags: str) -> dict:
        return charts.of(charts.render(CHART, values, (), *flags), "Job")[job]["metadata"].get(
            "annotations", {}
        )

    assert "helm.sh/hook" not in annotations()
    assert annotations("--is-upgrade")["helm.sh/hook"] == "pre-install,pre-upgrade"


def wrong(values: dict, **more: Any) -> str:
    done = charts.helm("template", "spillway", CHART, values=values | more)
    assert done.returncode != 0
    return done.stderr


def test_what_does_not_go_with_bundled_servers_is_refused():
    """Combinations that bundled servers do not support are refused.

    They are Kafka in cleartext, cluster names that are not valid for resources, more copies than
    brokers, shards of ClickHouse, and a cluster name that the operator does not use.
    """
    assert "/kafka/tls" in wrong(KAFKA, kafka={"tls": False, "clusters": CLUSTERS})
    assert "kafka.clusters: West" in wrong(KAFKA, kafka={"clusters": ["West"]})
    assert "kafka.replicas: 5" in wrong(KAFKA, kafka={"replicas": 5, "clusters": CLUSTERS})
    assert "/clickhouse/variant" in wrong(CLICKHOUSE, clickhouse={"variant": "distributed", "cluster": "c"})
    assert "/clickhouse/cluster" in wrong(CLICKHOUSE, clickhouse={"variant": "replicated", "cluster": "c"})


def rights(role: grants.Role) -> set[tuple]:
    found = (right.replace(" ON ", " ").replace(".", " ").split() for right in role.rights)
    return {(right, database, None if table == "*" else table) for right, database, table in found}


def test_clickhouse_users_have_the_roles_of_grants_yaml_on_the_engine(tmp_path: Path):
    """The engine reads the rendered roles, and each has exactly the rights of grants.yaml.

    Each user has its role, its password's hash from the Secret, and the settings that apply to it.
    """
    spec = charts.of(charts.render(CHART, REPLICATED), "ClickHouseInstallation")["spillway"]["spec"][
        "configuration"
    ]
    roles = grants.read(GRANTS)
    whole = ElementTree.fromstring(grants.users_xml(roles.values()))
    there = whole.find("roles")
    for role in [r for r in there if r.tag != grants.ADMIN]:
        there.remove(role)
    rendered = ElementTree.fromstring(spec["files"]["users.d/spillway-roles.xml"]).find("roles")
    there.extend(rendered)
    (tmp_path / "rendered.xml").write_text(ElementTree.tostring(whole, encoding="unicode"))
    command = [sys.executable, "-c", ENGINE, tmp_path, GRANTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    may: dict[str, Iterable] = json.loads(done.stdout.splitlines()[-1])
    for name, role in roles.items():
        if name != "migrate":
            assert {tuple(row) for row in may[name]} == rights(role), name
    assert ["CLUSTER", None, None] in may["migrate"] and ["INSERT", "spillway", None] in may["migrate"]
    assert {q.text for q in rendered.find("migrate").iter("query")} == {
        f"GRANT {right}" for right in (*roles["migrate"].rights, "CLUSTER ON *.*")
    }
    users = spec["users"]
    assert {key.partition("/")[0] for key in users} == set(roles)
    for name, role in roles.items():
        secret = users[f"{name}/password_sha256_hex"]["valueFrom"]["secretKeyRef"]
        assert secret == {"name": "spillway-clickhouse-users", "key": name}
        assert users[f"{name}/grants/query"] == [f"GRANT {name}"]
        assert users[f"{name}/profile"] == (name if role.settings else "default")
        mine = {k.partition("/")[2]: str(v) for k, v in spec["profiles"].items() if k.startswith(f"{name}/")}
        assert mine == dict(role.settings)


def test_replicas_have_keeper_and_migrate_knows_their_cluster():
    """The servers get the address of Keeper's Service, and there are three of them.

    The migration's cluster is that of the installation.
    """
    objects = charts.render(CHART, REPLICATED)
    spec = charts.of(objects, "ClickHouseInstallation")["spillway"]["spec"]["configuration"]
    keeper = charts.of(objects, "ClickHouseKeeperInstallation")
    assert spec["zookeeper"]["nodes"] == [{"host": f"keeper-{name}", "port": 2181} for name in keeper]
    assert keeper["spillway"]["spec"]["configuration"]["clusters"][0]["layout"] == {"replicasCount": 3}
    job = charts.of(objects, "Job")["spillway-migrate"]["spec"]["template"]
    environment = {v["name"]: v.get("value") for v in charts.containers(job)[0]["env"]}
    assert environment["SPILLWAY_CLICKHOUSE_CLUSTER"] == spec["clusters"][0]["name"] == "spillway"
    assert charts.of(charts.render(CHART, CLICKHOUSE), "ClickHouseKeeperInstallation") == {}
