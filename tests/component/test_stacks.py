"""docker-compose.yml and the local stack agree: same services, ports, topics and files."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from spillway_contracts import names
from spillway_lab.keys import accounts, certificates, signing
from spillway_lab.render import bus, pods, ports, render, templates
from spillway_lab.render.surroundings import Surroundings
from spillway_lab.scenario import scenario
from spillway_lab.stack.stack import _cluster, relays

pytestmark = pytest.mark.component
ROOT = Path(__file__).resolve().parents[2]
SCENARIO = scenario.load(ROOT / "lab/scenarios/two-clusters.yaml")
TEMPLATES = templates.read(ROOT / "infra")
# In Compose a container renders the scenario. Locally the command that starts the stack does it.
COMPOSE_ONLY = {"render"}
# Input of the renderer in Compose.
AROUND_COMPOSE = Surroundings(
    xds=[f"relay-{c}:18000+relay-{c}-2:18000" for c in SCENARIO.clusters],
    otlp=[f"collector-{c}:4317" for c in SCENARIO.clusters],
    toxiproxy="toxiproxy:8474", templates=TEMPLATES, filter_wasm=Path("f"),
    out=Path("/run/spillway"), tls=Path("/run/spillway-tls"), network=pods.COMPOSE,
)  # fmt: skip
BETWEEN_HOSTS = {"SPILLWAY_PLAINTEXT"}  # for Compose's network; the local stack is one host
# Variables in the environment of every process of the local stack.
FROM_THE_STACK = {"SPILLWAY_KAFKA", "SPILLWAY_TOPOLOGY", "SPILLWAY_XDS_IDENTITY"}


@pytest.fixture(scope="module")
def secrets() -> dict[str, str]:
    out = subprocess.run([ROOT / "infra/compose/secrets"], check=True, capture_output=True, text=True).stdout
    return dict(line.split("=", 1) for line in out.splitlines())


def load(environment: dict[str, str]) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_PASSWORD")}
    return subprocess.run(
        ["go", "run", "./compose", ROOT / "docker-compose.yml"],
        cwd=ROOT / "tools", env=clean | environment, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def compose(secrets) -> dict:
    """The project as the Compose specification's own loader parses it."""
    result = load(secrets)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def local() -> dict[str, dict]:
    """Processes of the local stack for the same scenario, with the ports of Compose."""
    text = (ROOT / "infra/local/process-compose.yaml").read_text()
    processes = yaml.safe_load(text)["processes"]
    variables = {
        ports.environment_name(n): p for n, p in ports.declared(ROOT / "infra/ports.yaml")["cluster"].items()
    }
    for name in SCENARIO.clusters:
        processes |= yaml.safe_load(_cluster(name, variables))["processes"]
    around = Surroundings(
        ["h:1"] * 2, ["h:2"] * 2, "h:3", templates=TEMPLATES, filter_wasm=Path("f"), out=Path("/o")
    )
    files = render.render(SCENARIO, 20_100, around)
    return processes | yaml.safe_load(files["lab.process-compose.yaml"])["processes"]


def test_both_name_the_same_services(compose, local):
    assert set(compose["services"]) - COMPOSE_ONLY == set(local)


def test_both_depend_on_the_same_servers(compose, local):
    """The start order is the same, except for the renderer."""
    for name, process in local.items():
        service = compose["services"][name]
        wanted = set(process.get("depends_on", {}))
        assert wanted <= set(service.get("depends_on") or {}), name


def test_compose_listens_on_the_declared_ports(compose):
    """Every port of infra/ports.yaml is exposed by exactly the service that it is named after."""
    declared = ports.declared(ROOT / "infra/ports.yaml")
    exposed = {name: {int(p) for p in s.get("expose") or []} for name, s in compose["services"].items()}
    owners = {name: name.replace("_health", "").replace("_controller", "").replace("_monitor", "").replace("_", "-")
              for name in declared["shared"]}  # fmt: skip
    for name, port in declared["shared"].items():
        # A real ClickHouse is checked through its own client. One process with all jobs of streams
        # is a variant, which test_streams_variants.py compares.
        if name not in ("clickhouse_health", "streams_all_health"):
            assert port in exposed[owners[name]], name
    for cluster in SCENARIO.clusters:
        for name, port in declared["cluster"].items():
            owner = f"relay-{cluster}" if name.endswith(("xds", "relay_health")) else f"collector-{cluster}"
            assert port in exposed[owner + "-2" * name.startswith("second_")], name


def test_pods_have_the_same_ports_and_addresses_in_both(compose):
    """A pod's environment and ports in Compose are those that the renderer gives it."""
    for pod in pods.plan(SCENARIO, 20_100).pods:
        expected = render.environment(SCENARIO, pod, AROUND_COMPOSE)
        assert compose["services"][pod.name]["environment"] == expected
        envoy = compose["services"][f"{pod.name}-envoy"]
        assert envoy["networks"]["default"]["ipv4_address"] == pods.COMPOSE.envoy(pod)
        assert {int(p) for p in envoy["expose"]} == {pod.inbound_port, pod.outbound_port, pod.admin_port}
    toxiproxy = compose["services"]["toxiproxy"]["networks"]["default"]["ipv4_address"]
    assert toxiproxy == pods.COMPOSE.toxiproxy()


def test_both_use_the_same_files(compose, local):
    """Compose mounts every configuration file of the local stack, and every mount exists."""
    mounted = {
        str(Path(v["source"]).relative_to(ROOT))
        for s in compose["services"].values()
        for v in s.get("volumes") or []
        if v["type"] == "bind"
    }
    assert all((ROOT / source).exists() for source in mounted)
    text = json.dumps(local)
    used = set(re.findall(r"(?:infra|contracts|collectors)/[\w./-]+\.(?:yaml|conf|properties)", text))
    used |= set(re.findall(r"infra/[\w/]+/run|contracts/clickhouse", text))
    assert used, "the local stack names its files"
    # A ClickHouse server reads the same roles from another file, which is generated from this one.
    used = used - {"infra/clickhouse/grants.yaml"} | {"infra/clickhouse/users.xml"}
    assert used <= mounted
    assert {"infra/envoy", "infra/nats", "lab/scenarios", "lab/applications"} <= mounted


def test_relays_and_collectors_have_the_same_identity_and_settings_in_both(compose, local):
    """Collectors and relays have the same variables and NATS users in both stacks.

    Only the variables that trust Compose's network differ. Their certificates are those that
    `render` issues, with their own cluster's authority.
    """
    issued = {identity.name: identity for identity in render.identities(SCENARIO, 20_100, AROUND_COMPOSE)}
    for cluster in SCENARIO.clusters:
        environments = {
            name: compose["services"][name]["environment"]
            for name in (f"collector-{cluster}", *relays(cluster))
        }
        for name, environment in environments.items():
            role, prefix = (
                ("relay", "SPILLWAY_XDS") if "relay" in name else ("collector", "SPILLWAY_OTLP_TLS")
            )
            held = f"{role}-{cluster}"
            files = [environment[f"{prefix}_{file}"] for file in ("CERT", "KEY", "CLIENT_CA")]
            folder = AROUND_COMPOSE.tls_folder(held)
            assert files == [f"{folder}/{file}" for file in ("tls.crt", "tls.key", "ca.crt")]
            hosts = tuple(relays(cluster)) if role == "relay" else (held,)
            assert (issued[held].cluster, issued[held].hosts) == (cluster, hosts)
            given = dict(line.split("=", 1) for line in local[name]["environment"])
            assert set(environment) <= set(given) | FROM_THE_STACK | BETWEEN_HOSTS
            if role == "relay":
                assert given["SPILLWAY_RELAY"] == environment["SPILLWAY_RELAY"] == name
                assert environment["SPILLWAY_XDS_IDENTITY"] == certificates.SERVICE_PATTERN
                assert f"nats://{bus.relay_user(cluster)}:" in environment["SPILLWAY_NATS_URL"]


def test_private_keys_are_mounted_by_their_owners_alone(compose):
    """Only `render` sees the authorities' keys and all certificates.

    Each relay, each collector and the publisher see their own, and a pod's two containers see the
    pod's. They are mounted where the configuration expects them, and no other service sees any.
    """
    servers = [f"{role}-{cluster}" for role in ("relay", "collector") for cluster in SCENARIO.clusters]
    owners = {name: name for name in (*servers, "publisher")}
    owners |= {relay: f"relay-{cluster}" for cluster in SCENARIO.clusters for relay in relays(cluster)}
    for pod in pods.plan(SCENARIO, 20_100).pods:
        owners |= {pod.name: pod.name, f"{pod.name}-envoy": pod.name}
    mounts = {
        (service, volume["source"], (volume.get("volume") or {}).get("subpath"), volume["target"])
        for service, document in compose["services"].items()
        for volume in document.get("volumes") or []
        if volume["source"] in ("certificates", "authority")
    }
    signing_key = compose["services"]["publisher"]["environment"]["SPILLWAY_SIGNING_KEY"]
    assert signing_key == str(AROUND_COMPOSE.tls_folder(signing.OWNER) / signing.KEY)
    keystore = AROUND_COMPOSE.tls_folder()
    assert mounts == {
        ("render", "certificates", None, str(keystore)),
        ("render", "authority", None, str(keystore / "authority")),
        *((who, "certificates", name, str(AROUND_COMPOSE.tls_folder(name))) for who, name in owners.items()),
    }
    assert f"--tls={keystore}" in compose["services"]["render"]["command"]
    assert not keystore.is_relative_to(AROUND_COMPOSE.out)


def test_relays_trust_the_key_that_render_makes(compose, local):
    """Both stacks give relays and the publisher the path of the rendered public key."""
    for service in ("publisher", *(relay for cluster in SCENARIO.clusters for relay in relays(cluster))):
        given = compose["services"][service]["environment"]["SPILLWAY_RULESET_KEYS"]
        assert given == str(AROUND_COMPOSE.out / signing.PUBLIC_KEYS)
        assert (
            f"SPILLWAY_RULESET_KEYS=${{SPILLWAY_RUN}}/{signing.PUBLIC_KEYS}" in local[service]["environment"]
        )


def test_each_user_of_nats_has_a_password_in_compose(compose, secrets):
    """The server gets every user's password, and infra/compose/secrets creates all of them."""
    wanted = {bus.password_variable(user) for user in bus.users(SCENARIO.clusters)}
    given = compose["services"]["nats"]["environment"]
    assert wanted == {name for name in given if name.endswith("_PASSWORD")}
    assert all(given[name] == secrets[name] for name in wanted)
    assert len({given[name] for name in wanted}) == len(wanted)


# The users that programs have in ClickHouse and Redis, as in terraform/modules/global/secrets.tf.
SPEAKS_AS = {
    "clickhouse-migrate": ("migrate", None), "streams-exclusive": ("streams", None), "streams-classify": ("streams", None),
    "streams-curves": ("streams", "streams"), "streams-graph": ("streams", "streams"),
    "optimizer": ("optimizer", "optimizer"), "papa": ("optimizer", "papa"), "publisher": ("publisher", "publisher"),
}  # fmt: skip
_USER = re.compile(r"^(?:clickhouse|redis)://(\w+):\$?{?(\w+)}?@")


def speaks_as(environment: dict[str, str]) -> tuple[str | None, str | None]:
    urls = [environment.get(f"SPILLWAY_{server}_URL") for server in ("CLICKHOUSE", "REDIS")]
    return tuple(url and _USER.match(url)[1] for url in urls)


def test_programs_have_the_users_of_production_in_both(compose, local, secrets):
    """Each program has only its own role's user and password. None is the administrator."""
    for name, process in local.items():
        lines = dict(line.split("=", 1) for line in process.get("environment", []))
        assert speaks_as(lines) == SPEAKS_AS.get(name, (None, None)), name
        given = compose["services"][name].get("environment") or {}
        assert speaks_as(given) == SPEAKS_AS.get(name, (None, None)), name
        for server, user in zip(("CLICKHOUSE", "REDIS"), speaks_as(given), strict=True):
            if user:
                variable = accounts.password_variable(server.lower(), user)
                assert _USER.match(lines[f"SPILLWAY_{server}_URL"])[2] == variable
                assert _USER.match(given[f"SPILLWAY_{server}_URL"])[2] == secrets[variable]


def test_redis_and_clickhouse_have_every_users_password_in_compose(compose, secrets):
    """Only the servers have them, and infra/compose/secrets creates all of them."""
    wanted = set(accounts.variables(ROOT / "infra"))
    made = {secrets[variable] for variable in wanted}
    assert len(made) == len(wanted)
    has = lambda name: {k for k in compose["services"][name].get("environment") or {} if k in wanted}  # noqa: E731
    assert has("redis") | has("clickhouse") == wanted
    assert all(variable.startswith("REDIS_") for variable in has("redis"))
    assert all(variable.startswith("CLICKHOUSE_") for variable in has("clickhouse"))
    assert not any(has(name) for name in compose["services"] if name not in ("redis", "clickhouse"))


def test_topics_are_the_declared_ones():
    """Both stacks apply infra/kafka/topics.yaml.

    It lists the topics of the contract, and the templates of the topics that every cluster has.
    """
    kinds = ("KAFKA_TOPIC_", "KAFKA_CLUSTER_TOPIC_")
    declared = {value for key, value in vars(names).items() if key.startswith(kinds)}
    assert set(yaml.safe_load((ROOT / "infra/kafka/topics.yaml").read_text())) == declared


def test_every_box_has_an_image(compose):
    """Our services are built from a Dockerfile that exists, with a user other than root."""
    for name, service in compose["services"].items():
        if build := service.get("build"):
            dockerfile = ROOT / build["dockerfile"]
            assert re.search(r"^USER (?!root)", dockerfile.read_text(), re.MULTILINE), name


@pytest.mark.parametrize(
    "missing",
    ["REDIS_PASSWORD", "REDIS_PAPA_PASSWORD", "CLICKHOUSE_STREAMS_PASSWORD", "NATS_RELAY_WEST_PASSWORD"],
)
def test_compose_refuses_to_start_without_a_secret(secrets, missing):
    """No secret has a default. The error names the variable and how to create one."""
    result = load({k: v for k, v in secrets.items() if k != missing})
    assert result.returncode != 0
    assert missing in result.stderr
    assert "infra/compose/secrets" in result.stderr


@pytest.mark.parametrize("box", ["collectors/distribution", "rule-publisher/relay", "lab/emulator"])
def test_an_image_copies_every_module_that_its_build_needs(box):
    """Our modules that go.mod replaces by a folder are copied.

    The image's Go version is new enough.
    """
    module = json.loads(
        subprocess.run(
            ["go", "mod", "edit", "-json"], cwd=ROOT / box, check=True, capture_output=True, text=True
        ).stdout
    )
    dockerfile = next(
        path for path in (ROOT / box / "Dockerfile", ROOT / box / "../Dockerfile") if path.exists()
    )
    text = dockerfile.read_text()
    copied = [
        line.split()[1] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line
    ]
    needed = [r["New"]["Path"] for r in module.get("Replace", []) if r["New"]["Path"].startswith(".")]
    for path in needed:
        folder = (ROOT / box / path).resolve().relative_to(ROOT)
        assert any(folder.is_relative_to(source) for source in copied), folder
    image = re.search(r"^ARG GOLANG=golang:(\d+)\.(\d+)", text, re.MULTILINE)
    assert image is not None
    assert (int(image[1]), int(image[2])) >= tuple(int(part) for part in module["Go"].split(".")[:2])
