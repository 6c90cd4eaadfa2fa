"""infra/helm/spillway-global as helm renders it: valid, confined and complete.

Its processes start with the environment and files that the chart gives them.
"""

import copy
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import charts
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from spillway_lab.testing.servers import ROOT, free_port
from spillway_streams.topics import declared as topics

pytestmark = pytest.mark.component
CHART = ROOT / "infra/helm/spillway-global"
LEAST: dict[str, Any] = {
    "image": {"registry": "registry.example/spillway"},
    "kafka": {"brokers": "localhost:19093", "clusters": ["west", "east"]},
}
MONITORED = LEAST | {
    "monitoring": {
        "serviceMonitors": True,
        "prometheusRules": True,
        "runbooks": "https://example.org/",
        "dashboards": True,
        "labels": {"a": "b"},
    },
    "streams": {"autoscaling": {"enabled": True, "prometheus": "http://prometheus.monitoring:9090"}},
    "credentialsRevision": "c1",
    "topologyRevision": "t1",
    "guardrails": {"maximum_shift": 2000},
}
EXTERNAL = {
    "type": "LoadBalancer",
    "annotations": {"lb.example/scope": "internal"},
    "loadBalancerSourceRanges": ["203.0.113.0/24"],
}
BUNDLED = LEAST | {
    "bundled": {"nats": {"enabled": True, "external": EXTERNAL}, "redis": {"enabled": True}},
}
OPERATED = {"image": LEAST["image"], "kafka": {"clusters": ["west"]}, "clickhouse": {"variant": "replicated"}}
OPERATED |= {"bundled": {"kafka": {"enabled": True}, "clickhouse": {"enabled": True}}}
MONITORED_SERVERS = MONITORED | OPERATED | {"kafka": LEAST["kafka"]}
MONITORED_SERVERS["bundled"] = OPERATED["bundled"] | BUNDLED["bundled"]
IN_CLEAR = {**LEAST, "plaintext": True, "kafka": LEAST["kafka"] | {"tls": False}}
REPLICATED = LEAST | {"clickhouse": {"variant": "replicated", "cluster": "{cluster}"}}
TOKENS = {
    "sasl": "OAUTHBEARER",
    "oauth": {"tokenUrl": "https://login.example:8443/token?a=b", "scope": "kafka"},
}
TOKENS = {**LEAST, "kafka": LEAST["kafka"] | TOKENS}
BARE = {**LEAST, "kafka": LEAST["kafka"] | {"createTopics": False, "sasl": ""}}
BARE |= {"clickhouse": {"migrate": False}, "networkPolicy": {"enabled": False}}
SETS = {
    "least": LEAST,
    "monitored": MONITORED,
    "bundled": BUNDLED,
    "operated": OPERATED,
    "monitored servers": MONITORED_SERVERS,
    "in clear": IN_CLEAR,
    "replicated": REPLICATED,
    "tokens": TOKENS,
    "bare": BARE,
}
each_set = pytest.mark.parametrize("values", SETS.values(), ids=SETS)
BOXES = {"spillway-streams": "spillway_streams", "spillway-optimizer": "spillway_optimizer"}
BOXES |= {
    "spillway-publisher": "spillway_publisher",
    "spillway-clickhouse-migrate": "spillway_clickhouse.migrate",
}
SECRETS = {
    f"spillway-{w}" for w in ("admit", "exclusive", "curves", "graph", "classify", "optimizer", "papa")
}
SECRETS |= {"spillway-publisher", "spillway-migrate", "spillway-topics", "spillway-signing-key"}
SECRETS |= {"spillway-nats-users", "spillway-nats-tls", "spillway-redis-users", "spillway-redis-tls"}
# created outside the chart
CONFIG_MAPS = {"spillway-trust", "spillway-topology", "spillway-ruleset-keys"}


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    charts.build()


@each_set
def test_helm_and_the_api_server_accept_it(values: dict):
    """helm lint --strict finds nothing.

    Every object is one that Kubernetes, Prometheus' operator or KEDA accepts.
    """
    done = charts.helm("lint", "--strict", CHART, values=values)
    assert done.returncode == 0, done.stdout + done.stderr
    charts.conform(charts.render(CHART, values))


@each_set
def test_every_pod_is_confined_and_selected(values: dict):
    """Pods have security contexts, resources and probes.

    Selectors match, target ports are listened on, and no Secret is created.
    """
    objects = charts.render(CHART, values)
    assert charts.insecure(objects) == []
    assert charts.adrift(objects) == []


def references(template: dict) -> Iterator[tuple[str, str]]:
    """Yields (Secret or ConfigMap, its name) for everything that a pod uses."""
    for container in charts.containers(template):
        for variable in container.get("env", []):
            if source := variable.get("valueFrom", {}).get("secretKeyRef"):
                yield "Secret", source["name"]
    for volume in template["spec"].get("volumes", []):
        for source in [volume, *volume.get("projected", {}).get("sources", [])]:
            if "secret" in source:
                yield "Secret", source["secret"].get("secretName") or source["secret"]["name"]
            if "configMap" in source:
                yield "ConfigMap", source["configMap"]["name"]


@each_set
def test_what_pods_are_given_is_made_here_or_documented(values: dict):
    """A Secret or ConfigMap that a pod uses is the chart's own or has an agreed name.

    An agreed name is one on which the chart and the object's creator rely.
    """
    objects = charts.render(CHART, values)
    own = set(charts.of(objects, "ConfigMap"))
    for workload, template in charts.pods(objects):
        for kind, name in references(template):
            assert name in (SECRETS if kind == "Secret" else CONFIG_MAPS | own), charts.name(workload)


@each_set
def test_each_pod_may_speak_to_the_servers_that_it_is_told_of(values: dict):
    """With policies enabled, each pod has its own policy.

    Its egress rules contain the ports of every server that the pod uses.
    """
    objects = charts.render(CHART, values)
    policies = charts.of(objects, "NetworkPolicy")
    if not values.get("networkPolicy", {}).get("enabled", True):
        assert policies == {}
        return
    kafka = int(values["kafka"].get("brokers", "bundled:9093").rpartition(":")[2])
    ports = {"KAFKA": kafka, "CLICKHOUSE_URL": 9440, "REDIS_URL": 6380, "NATS_URL": 4222}
    ports["KAFKA_SASL_TOKEN_URL"] = 8443
    for workload, template in charts.pods(objects):
        test = workload["kind"] == "Pod"
        mine = policies["spillway-test" if test else workload["metadata"]["name"]]["spec"]
        may = {p["port"] for rule in mine.get("egress", []) for p in rule["ports"]}
        told = {v["name"] for c in charts.containers(template) for v in c.get("env", [])}
        wanted = {port for name, port in ports.items() if f"SPILLWAY_{name}" in told}
        assert wanted <= may, charts.name(workload)


def environment(objects: list[dict], name: str) -> dict[str, Any]:
    """Returns the variables of the workload's first container that have a literal value."""
    workload = next(w for w, _ in charts.pods(objects) if w["metadata"]["name"] == name)
    container = workload["spec"]["template"]["spec"]["containers"][0]
    return {v["name"]: v["value"] for v in container["env"] if "value" in v}


def test_a_servers_authorities_are_the_bundles_unless_others_are_said_for_it():
    """By default they are in the ConfigMap's ca.crt.

    `system` means the image's root certificates, which need no ConfigMap.
    """
    names = {"KAFKA_TLS_CA": "kafka", "CLICKHOUSE_CA": "clickhouse", "REDIS_CA": "redis", "NATS_CA": "nats"}
    for trust, told in (
        ({}, dict.fromkeys(names.values(), "/run/spillway/trust/ca.crt")),
        (
            {"kafka": "system", "redis": "redis.crt"},
            {"kafka": "system", "redis": "/run/spillway/trust/redis.crt"},
        ),
        (dict.fromkeys(names.values(), "system"), dict.fromkeys(names.values(), "system")),
    ):
        objects = charts.render(CHART, LEAST | {"trust": trust})
        for workload in ("spillway-graph", "spillway-optimizer", "spillway-topics", "spillway-migrate"):
            found = environment(objects, workload)
            for variable, server in names.items():
                wanted = told.get(server, "/run/spillway/trust/ca.crt")
                assert found.get(f"SPILLWAY_{variable}", wanted) == wanted, (workload, server)
        template = charts.of(objects, "Deployment")["spillway-graph"]["spec"]["template"]
        [volume] = [v for v in template["spec"]["volumes"] if v["name"] == "trust"]
        assert volume["configMap"]["optional"] is (len(trust) == len(names))


@pytest.mark.parametrize(
    ("kafka", "said", "wanted"),
    [
        ("kafka-0.example:9092,kafka-1.example:19092,kafka-2.example:9092", [], [9092, 19092]),
        ("kafka.example:9092", [9092, 9194], [9092, 9194]),
    ],
)
def test_egress_to_kafka_is_to_the_ports_of_its_addresses(kafka: str, said: list[int], wanted: list[int]):
    """By default only the ports of the given brokers are open.

    If brokers advertise other ports, the values name these.
    """
    values = LEAST | {
        "kafka": LEAST["kafka"] | {"brokers": kafka},
        "networkPolicy": {"kafka": {"ports": said}},
    }
    policies = charts.of(charts.render(CHART, values), "NetworkPolicy")
    for job in ("spillway-admit", "spillway-topics"):
        [rule] = policies[job]["spec"]["egress"]
        assert rule == {"ports": [{"port": port} for port in wanted]}


def test_clients_of_kafka_are_told_of_the_token_endpoint_and_may_reach_it():
    """With OAUTHBEARER only clients of Kafka get the endpoint, and https has a default port.

    Its certificate is from a public authority unless the values name another. The values can also
    set its ports and addresses.
    """
    objects = charts.render(CHART, TOKENS)
    told = {"SASL": "OAUTHBEARER", "SASL_TOKEN_URL": "https://login.example:8443/token?a=b"}
    told |= {"SASL_TOKEN_CA": "system", "SASL_SCOPE": "kafka"}
    told |= {"SASL_PASSWORD_FILE": "/run/spillway/kafka/kafka-password"}
    for workload in ("spillway-admit", "spillway-topics"):
        assert {f"SPILLWAY_KAFKA_{n}": v for n, v in told.items()}.items() <= environment(
            objects, workload
        ).items()
    assert not any("TOKEN" in name for name in environment(objects, "spillway-optimizer"))
    brokers = {"ports": [{"port": int(LEAST["kafka"]["brokers"].rpartition(":")[2])}]}
    for oauth, policy, wanted in (
        ({}, {}, {"ports": [{"port": 8443}]}),
        ({"tokenUrl": "https://login.example/token:1"}, {}, {"ports": [{"port": 443}]}),
        (
            {},
            {"ports": [3128], "cidrs": ["203.0.113.0/24"]},
            {"ports": [{"port": 3128}], "to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]},
        ),
    ):
        values = copy.deepcopy(TOKENS) | {"networkPolicy": {"kafkaToken": policy}}
        values["kafka"]["oauth"] |= oauth
        policies = charts.of(charts.render(CHART, values), "NetworkPolicy")
        for job in ("spillway-admit", "spillway-topics"):
            assert policies[job]["spec"]["egress"] == [brokers, wanted]
    objects = charts.render(CHART, TOKENS | {"trust": {"kafkaToken": "login.crt"}})
    assert (
        environment(objects, "spillway-admit")["SPILLWAY_KAFKA_SASL_TOKEN_CA"]
        == "/run/spillway/trust/login.crt"
    )
    in_clear = {**TOKENS, "kafka": TOKENS["kafka"] | {"tls": False}}
    assert not any("SASL" in name for name in environment(charts.render(CHART, in_clear), "spillway-admit"))


@pytest.mark.parametrize(
    "kafka",
    [
        {"sasl": "OAUTHBEARER"},
        {"sasl": "OAUTHBEARER", "oauth": {"tokenUrl": "http://login.example/token"}},
        {"sasl": "OAUTHBEARER", "oauth": {"tokenUrl": "https://me:secret@login.example/token"}},
        {"oauth": {"tokenUrl": "https://login.example/token"}},
    ],
)
def test_a_token_endpoint_goes_with_oauthbearer_over_tls(kafka: dict):
    done = charts.helm("template", "spillway", CHART, values=LEAST | {"kafka": LEAST["kafka"] | kafka})
    assert done.returncode != 0 and "/kafka/oauth/tokenUrl" in done.stderr


def test_egress_to_servers_of_the_release_is_to_their_pods_whatever_the_address():
    """An address with the port of a Service or a node leads to a pod.

    The pod's own port is therefore open too.
    """
    values = {**OPERATED, "kafka": OPERATED["kafka"] | {"brokers": "node.example:30094"}}
    values["bundled"] = OPERATED["bundled"] | {"nats": {"enabled": True}}
    values["networkPolicy"] = {"nats": {"ports": [30422]}}
    policies = charts.of(charts.render(CHART, values), "NetworkPolicy")
    assert policies["spillway-admit"]["spec"]["egress"] == [
        {"ports": [{"port": port} for port in (30094, 9093, 9094)]}
    ]
    assert {"ports": [{"port": 30422}, {"port": 4222}]} in policies["spillway-papa"]["spec"]["egress"]


def test_monitors_alerts_and_scaling():
    """The ServiceMonitor's labels are on a Service of every Deployment.

    Scaling has its target and stops at the number of partitions. Revisions are on the pods that
    they should roll.
    """
    objects = charts.render(CHART, MONITORED)
    wanted = charts.of(objects, "ServiceMonitor")["spillway-global"]["spec"]["selector"]["matchLabels"]
    monitored = {
        n
        for n, s in charts.of(objects, "Service").items()
        if wanted.items() <= s["metadata"]["labels"].items()
    }
    deployments = charts.of(objects, "Deployment")
    assert monitored == set(deployments)
    for name, scaled in charts.of(objects, "ScaledObject").items():
        assert scaled["spec"]["scaleTargetRef"]["name"] == name
        assert "replicas" not in deployments[name]["spec"]
        assert scaled["spec"]["maxReplicaCount"] == 4
    assert len(charts.of(objects, "ScaledObject")) == 5
    for name, deployment in deployments.items():
        annotations = deployment["spec"]["template"]["metadata"]["annotations"]
        reads = name in ("spillway-optimizer", "spillway-papa", "spillway-publisher")
        assert annotations.get("spillway.dev/topology-revision") == ("t1" if reads else None)
        assert annotations["spillway.dev/credentials-revision"] == "c1"


def test_every_alert_and_dashboard_is_in_the_chart():
    """Each alert and dashboard of infra/ is in an object. Runbook addresses have their prefix."""
    objects = charts.render(CHART, MONITORED)
    groups = [g for rule in charts.of(objects, "PrometheusRule").values() for g in rule["spec"]["groups"]]
    expected = []
    for name in ("global", "servers"):
        original = (ROOT / f"infra/alerts/{name}.yaml").read_text()
        at = original.replace("docs/operations.md", "https://example.org/docs/operations.md")
        assert at != original
        expected += yaml.safe_load(at)["groups"]
    assert groups == expected
    dashboards = {
        key for c in charts.of(objects, "ConfigMap").values() for key in c["data"] if key.endswith(".json")
    }
    assert dashboards == {p.name for p in (ROOT / "infra/grafana").glob("*.json")}


def test_relays_of_other_clusters_reach_the_bundled_nats():
    """The relays use a separate Service for clients only, which leads to ready servers.

    The Service exists only on request. Routes stay between the servers.
    """
    objects = charts.render(CHART, BUNDLED)
    service = charts.of(objects, "Service")["spillway-nats-external"]
    assert service["metadata"]["annotations"] == EXTERNAL["annotations"]
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["spec"]["loadBalancerSourceRanges"] == EXTERNAL["loadBalancerSourceRanges"]
    assert service["spec"]["ports"] == [{"name": "nats", "port": 4222, "targetPort": "nats"}]
    assert "publishNotReadyAddresses" not in service["spec"]
    clients, routes = charts.of(objects, "NetworkPolicy")["spillway-nats"]["spec"]["ingress"]
    assert clients == {"ports": [{"port": 4222}]}
    assert routes["ports"] == [{"port": 6222}] and routes["from"]
    inside = LEAST | {"bundled": {"nats": {"enabled": True}}}
    assert "spillway-nats-external" not in charts.of(charts.render(CHART, inside), "Service")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.registry", ""),
        ("bundled.nats.external.type", "Loadbalancer"),
        ("bundled.nats.external.loadBalancerSourceRanges", ["203.0.113.0/24"]),
        ("bundled.nats.external.nodePort", 30422),
        ("kafka.brokers", "kafka"),
        ("kafka.brokers", "kafka://kafka:9093"),
        ("kafka.sasl", "GSSAPI"),
        ("kafka.clusters", ["west.1"]),
        ("kafka.partitions", 0),
        ("kafka.topicConfig", {"otlp_spans": {"retention.ms": 1.5}}),
        ("kafka.topicConfig", {"otlp_spans": 3600000}),
        ("clickhouse.variant", "replicated"),
        ("streams.curves.replica", 2),
        ("streams.exclusive.settings", {"SPILLWAY-WINDOW": "2"}),
        ("streams.autoscaling.enabled", True),
        ("optimizer.resources", {"cpu": "1"}),
        ("networkPolicy.kafka.cidrs", ["kafka.example"]),
        ("trust.kafak", "system"),
        ("trust.kafka", "/etc/ssl/kafka.crt"),
        ("guardrails", "maximum_shift: 1"),
        ("papas", {}),
    ],
)
def test_a_wrong_value_is_refused_by_name(path: str, value: object):
    """The schema's message names the value, or the group of an unknown value."""
    values = copy.deepcopy(LEAST)
    *groups, last = path.split(".")
    place = values
    for group in groups:
        place = place.setdefault(group, {})
    place[last] = value
    done = charts.helm("template", "spillway", CHART, values=values)
    assert done.returncode != 0
    assert groups == [] or f"'/{'/'.join(groups)}" in done.stderr
    assert last in done.stderr or path in (
        "clickhouse.variant",
        "streams.autoscaling.enabled",
        "optimizer.resources",
    )


def declared_topics(values: dict) -> dict[str, dict]:
    """Returns the file that the Job `spillway-topics` gets."""
    config_maps = charts.of(charts.render(CHART, values), "ConfigMap")
    return yaml.safe_load(config_maps["spillway-topics"]["data"]["topics.yaml"])


def test_the_topics_job_is_given_what_is_declared_and_what_an_operator_says_of_a_topic(tmp_path: Path):
    """The settings are those of infra/kafka/topics.yaml, with numbers as numbers.

    `kafka.topicConfig` overrides them for each topic and adds to them. The command reads the file
    as rendered.
    """
    declared = yaml.safe_load((ROOT / "infra/kafka/topics.yaml").read_text())
    assert declared_topics(LEAST | {"kafka": LEAST["kafka"] | {"partitions": 2}}) == declared
    said = {"otlp_spans.{cluster}": {"retention.ms": 3600000, "segment.ms": ""}}
    said |= {"spillway_calls": {"retention.bytes": 10**12, "min.insync.replicas": 2}}
    found = declared_topics(LEAST | {"kafka": LEAST["kafka"] | {"topicConfig": said, "partitions": 8}})
    assert {topic: of["config"] for topic, of in found.items()} == {
        topic: of["config"] | said.get(topic, {}) for topic, of in declared.items()
    }
    file = tmp_path / "topics.yaml"
    file.write_text(yaml.safe_dump(found))
    read = topics.read(file, ["west"], 4, 3)
    assert read["otlp_spans.west"].config["retention.ms"] == "3600000"
    assert "segment.ms" not in read["otlp_spans.west"].settings()
    assert read["spillway_calls"].settings()["retention.bytes"] == "1000000000000"
    assert read["spillway_calls"].partitions == 8 and read["spillway_dead_letters"].partitions == 1


def test_a_misspelt_topic_is_refused_by_name():
    """The message lists the topics that exist."""
    values = LEAST | {"kafka": LEAST["kafka"] | {"topicConfig": {"otlp_span": {"retention.ms": 1}}}}
    done = charts.helm("template", "spillway", CHART, values=values)
    assert done.returncode != 0
    assert (
        "kafka.topicConfig: otlp_span: unknown topic; topics: otlp_metrics, otlp_metrics.{cluster}"
        in done.stderr
    )


def test_nothing_is_rendered_without_what_has_no_default():
    """The message asks for the registry, the brokers and the clusters by name."""
    done = charts.helm("template", "spillway", CHART)
    assert done.returncode != 0
    assert "/image/registry" in done.stderr
    assert "/kafka/brokers" in done.stderr
    assert "/kafka/clusters" in done.stderr


def test_the_readme_has_every_value():
    """The README's table is generated from values.yaml and the schema."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools/charts/table.py", "--check", CHART], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that a pod finds mounted.

    These are an authority, a signing key, a password, topology and guardrails.
    """
    folder = tmp_path_factory.mktemp("pod")
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")]), datetime.now(UTC)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1)
    )
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    own = ed25519.Ed25519PrivateKey.generate()
    signing = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = own.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    files = {
        "trust/ca.crt": made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        "signing/signing.key": signing,
        "ruleset-keys/keys.pem": public,
        "kafka/kafka-password": b"p",
        "topology/topology.yaml": (ROOT / "contracts/golden/topology.yaml").read_bytes(),
    }
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    return folder


SERVERS = {
    "SPILLWAY_CLICKHOUSE_URL": "clickhouses://u:p@localhost:19440/spillway",
    "SPILLWAY_REDIS_URL": "rediss://u:p@localhost:16380/0",
    "SPILLWAY_NATS_URL": "tls://u:p@localhost:14222",
    "SPILLWAY_KAFKA_SASL_USER": "u",
}


def process(objects: list[dict], template: dict, machine: Path, health: int) -> subprocess.Popen:
    """Starts a pod's program with exactly the pod's arguments and variables.

    Its mounts are below `machine`.
    """
    container = template["spec"]["containers"][0]
    for config_map in charts.of(objects, "ConfigMap").values():
        for file, text in config_map["data"].items():
            folder = machine / config_map["metadata"]["name"].removeprefix("spillway-")
            folder.mkdir(exist_ok=True)
            (folder / file).write_text(text)
    moved = {
        "/run/spillway": str(machine),
        "/var/lib/spillway": str(machine / "state"),
        "/app/clickhouse": str(ROOT / "contracts/clickhouse"),
    }

    def here(text: str) -> str:
        return next((new + text[len(old) :] for old, new in moved.items() if text.startswith(old)), text)

    given = {v["name"]: here(v["value"]) if "value" in v else SERVERS[v["name"]] for v in container["env"]}
    if "SPILLWAY_HEALTH_LISTEN" in given:
        given["SPILLWAY_HEALTH_LISTEN"] = f"127.0.0.1:{health}"
    around = {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY_")}
    module = BOXES[re.split("[/:]", container["image"])[-2]]
    command = [sys.executable, "-m", module, *map(here, container["args"])]
    log = (machine / "log").open("w")
    return subprocess.Popen(command, env=around | given, stdout=log, stderr=subprocess.STDOUT)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.parametrize(
    "name", ["admit", "exclusive", "curves", "graph", "classify", "optimizer", "papa", "publisher"]
)
def test_the_process_starts_with_what_its_pod_is_given(name: str, machine: Path):
    """With the Deployment's own variables and files no program reports a configuration error.

    Its liveness probe is answered although every server is away.
    """
    objects = charts.render(CHART, LEAST)
    template = charts.of(objects, "Deployment")[f"spillway-{name}"]["spec"]["template"]
    port = free_port()
    running = process(objects, template, machine, port)
    try:
        end = time.monotonic() + 120
        while running.poll() is None and time.monotonic() < end and not answers(port):
            time.sleep(0.2)
        assert running.poll() is None, (machine / "log").read_text()
        assert answers(port)
    finally:
        running.kill()
        running.wait()


@pytest.mark.parametrize(
    ("name", "says"), [("migrate", "waiting for ClickHouse"), ("topics", "error: localhost:19093")]
)
def test_the_job_starts_with_what_its_pod_is_given(name: str, says: str, machine: Path):
    """A Job gets as far as connecting to its server, which does not exist."""
    objects = charts.render(CHART, LEAST)
    running = process(objects, charts.of(objects, "Job")[f"spillway-{name}"]["spec"]["template"], machine, 0)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end and says not in (machine / "log").read_text() and running.poll() is None:
            time.sleep(0.2)
        assert says in (machine / "log").read_text()
    finally:
        running.kill()
        running.wait()
