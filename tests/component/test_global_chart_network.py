"""Pods of spillway-global reach the servers that they use and trust these servers' authorities."""

import copy

import charts
import pytest
from global_chart import BUNDLED, CHART, EXTERNAL, LEAST, OPERATED, TOKENS, each_set, environment

pytestmark = [pytest.mark.component, pytest.mark.usefixtures("chart_tools")]


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
        variables = {v["name"] for c in charts.containers(template) for v in c.get("env", [])}
        wanted = {port for name, port in ports.items() if f"SPILLWAY_{name}" in variables}
        assert wanted <= may, charts.name(workload)


def test_a_servers_authorities_are_the_bundles_unless_others_are_said_for_it():
    """By default they are in the ConfigMap's ca.crt.

    `system` means the image's root certificates, which need no ConfigMap.
    """
    names = {"KAFKA_TLS_CA": "kafka", "CLICKHOUSE_CA": "clickhouse", "REDIS_CA": "redis", "NATS_CA": "nats"}
    for trust, expected in (
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
                wanted = expected.get(server, "/run/spillway/trust/ca.crt")
                assert found.get(f"SPILLWAY_{variable}", wanted) == wanted, (workload, server)
        template = charts.of(objects, "Deployment")["spillway-graph"]["spec"]["template"]
        [volume] = [v for v in template["spec"]["volumes"] if v["name"] == "trust"]
        assert volume["configMap"]["optional"] is (len(trust) == len(names))


@pytest.mark.parametrize(
    ("kafka", "ports", "wanted"),
    [
        ("kafka-0.example:9092,kafka-1.example:19092,kafka-2.example:9092", [], [9092, 19092]),
        ("kafka.example:9092", [9092, 9194], [9092, 9194]),
    ],
)
def test_egress_to_kafka_is_to_the_ports_of_its_addresses(kafka: str, ports: list[int], wanted: list[int]):
    """By default only the ports of the given brokers are open.

    If brokers advertise other ports, the values name these.
    """
    values = LEAST | {
        "kafka": LEAST["kafka"] | {"brokers": kafka},
        "networkPolicy": {"kafka": {"ports": ports}},
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
    settings = {"SASL": "OAUTHBEARER", "SASL_TOKEN_URL": "https://login.example:8443/token?a=b"}
    settings |= {"SASL_TOKEN_CA": "system", "SASL_SCOPE": "kafka"}
    settings |= {"SASL_PASSWORD_FILE": "/run/spillway/kafka/kafka-password"}
    for workload in ("spillway-admit", "spillway-topics"):
        assert {f"SPILLWAY_KAFKA_{n}": v for n, v in settings.items()}.items() <= environment(
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
