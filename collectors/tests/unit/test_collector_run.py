"""The launcher's check of the environment. These tests need no collector."""

import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / "run"
GOOD = {
    "SPILLWAY_CLUSTER": "west",
    "SPILLWAY_KAFKA": "127.0.0.1:9092,kafka-2:9092",
    "SPILLWAY_OTLP_GRPC_LISTEN": "0.0.0.0:4317",
    "SPILLWAY_OTLP_HTTP_LISTEN": "[::1]:4318",
    "SPILLWAY_HEALTH_LISTEN": "localhost:13133",
    "SPILLWAY_STATE_DIR": "/var/lib/spillway",
}


@pytest.fixture
def launch(clean_environment, tmp_path):
    """Runs the launcher with a stand-in for the collector.

    The stand-in prints its arguments and the metrics address.
    """
    stand_in = tmp_path / "spillway-collector"
    stand_in.write_text('#!/bin/sh\necho "$@" "${SPILLWAY_METRICS_HOST:-} ${SPILLWAY_METRICS_PORT:-}"\n')
    stand_in.chmod(0o755)

    def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
        path = f"{tmp_path}:{clean_environment['PATH']}"
        return subprocess.run(
            [RUN, *arguments],
            env=clean_environment | environment | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=10,
        )

    return run


def test_good_environment_starts_the_collector_with_the_shared_configuration(launch):
    """Without arguments, the launcher uses the configuration beside it.

    Given arguments are passed on.
    """
    assert launch(GOOD).stdout.split() == ["--config", str(RUN.parent / "config.yaml")]
    assert launch(GOOD, "--config", "other.yaml").stdout.split() == ["--config", "other.yaml"]


def test_metrics_address_adds_the_metrics_file(launch):
    """SPILLWAY_METRICS_LISTEN turns the collector's own metrics on, at that address."""
    done = launch(GOOD | {"SPILLWAY_METRICS_LISTEN": "127.0.0.1:8888"})
    assert done.stdout.split()[2:] == ["--config", str(RUN.parent / "metrics.yaml"), "127.0.0.1", "8888"]


def test_flush_timeout_may_be_set(launch):
    """It is added to the configuration as a placeholder."""
    done = launch(GOOD | {"SPILLWAY_FLUSH_TIMEOUT": "400ms"})
    name = f"{KAFKA}::sending_queue::batch::flush_timeout"
    assert f"{name}: ${{env:SPILLWAY_FLUSH_TIMEOUT}}" in added(done)


@pytest.mark.parametrize("name", GOOD)
def test_unset_variable_is_named(launch, name):
    """A process without a part of its identity refuses to start and names the missing variable."""
    done = launch({key: value for key, value in GOOD.items() if key != name})
    assert done.returncode == 64 and f"{name}: not set" in done.stderr and not done.stdout


def test_every_unset_variable_is_named_at_once(launch):
    """All missing variables are listed at once."""
    done = launch({})
    assert done.returncode == 64
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [
        "SPILLWAY_CLUSTER",
        "SPILLWAY_KAFKA",
        "SPILLWAY_STATE_DIR",
        "SPILLWAY_OTLP_GRPC_LISTEN",
        "SPILLWAY_OTLP_HTTP_LISTEN",
        "SPILLWAY_HEALTH_LISTEN",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPILLWAY_CLUSTER", "12"),
        ("SPILLWAY_CLUSTER", "true"),
        ("SPILLWAY_CLUSTER", "a b"),
        ("SPILLWAY_CLUSTER", "a.b"),
        ("SPILLWAY_KAFKA", "kafka"),
        ("SPILLWAY_KAFKA", "kafka:"),
        ("SPILLWAY_KAFKA", "a:1,,b:2"),
        ("SPILLWAY_KAFKA", "a:1,b"),
        ("SPILLWAY_OTLP_GRPC_LISTEN", "4317"),
        ("SPILLWAY_OTLP_GRPC_LISTEN", ":4317"),
        ("SPILLWAY_OTLP_HTTP_LISTEN", "host:port"),
        ("SPILLWAY_OTLP_HTTP_LISTEN", "host:0"),
        ("SPILLWAY_HEALTH_LISTEN", "host:65536"),
        ("SPILLWAY_METRICS_LISTEN", "host"),
        ("SPILLWAY_FLUSH_TIMEOUT", "200"),
        ("SPILLWAY_FLUSH_TIMEOUT", "0ms"),
        ("SPILLWAY_FLUSH_TIMEOUT", "ms"),
        ("SPILLWAY_FLUSH_TIMEOUT", "1.5ms"),
        ("SPILLWAY_FLUSH_TIMEOUT", "100000ms"),
        ("SPILLWAY_KAFKA_TLS", "yes"),
        ("SPILLWAY_KAFKA_TLS_CA", "/nowhere/ca.pem"),
        ("SPILLWAY_KAFKA_TLS_CERT", "/nowhere/tls.pem"),
        ("SPILLWAY_KAFKA_SASL", "GSSAPI"),
        ("SPILLWAY_KAFKA_SASL_PASSWORD_FILE", "/nowhere/password"),
        ("SPILLWAY_OTLP_TLS_KEY", "/nowhere/tls.key"),
    ],
)
def test_malformed_value_is_named_and_shown(launch, name, value):
    """The message contains the variable and the refused value."""
    done = launch(GOOD | {name: value})
    assert done.returncode == 64 and f"{name}: '{value}'" in done.stderr and not done.stdout


KAFKA = "yaml:exporters::kafka_partition"
HERE = str(RUN)


def added(done: subprocess.CompletedProcess) -> list[str]:
    """Returns the settings that the launcher added to the configuration.

    Fails with the launcher's error if there is one.
    """
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split(" --config ")[1:]


@pytest.mark.parametrize(
    ("kafka", "choice", "plaintext"),
    [
        ("127.0.0.1:9092,localhost:9093,[::1]:9094", None, True),
        ("127.0.0.1:9092,kafka:9092", None, False),
        ("127.0.0.1.example.org:9092", None, False),
        ("kafka:9092", "off", True),
        ("127.0.0.1:9092", "on", False),
    ],
)
def test_tls_to_kafka_is_off_only_by_choice_or_on_loopback(launch, kafka, choice, plaintext):
    """A broker that is not on loopback is used without TLS only when that was requested."""
    done = launch(GOOD | {"SPILLWAY_KAFKA": kafka} | ({"SPILLWAY_KAFKA_TLS": choice} if choice else {}))
    assert added(done) == ([f"{KAFKA}::tls::insecure: true"] if plaintext else [])


def test_certificates_and_user_reach_the_exporter_without_their_values(launch):
    """Every setting becomes one key with a placeholder, so the list of processes shows no value."""
    environment = {
        f"SPILLWAY_KAFKA_{name}": HERE for name in ("TLS_CA", "TLS_CERT", "TLS_KEY", "SASL_PASSWORD_FILE")
    }
    environment |= {"SPILLWAY_KAFKA_SASL": "SCRAM-SHA-512", "SPILLWAY_KAFKA_SASL_USER": "west"}
    assert added(launch(GOOD | environment | {"SPILLWAY_KAFKA_TLS_SERVER_NAME": "kafka"})) == [
        f"{KAFKA}::tls::ca_file: ${{env:SPILLWAY_KAFKA_TLS_CA}}",
        f"{KAFKA}::tls::cert_file: ${{env:SPILLWAY_KAFKA_TLS_CERT}}",
        f"{KAFKA}::tls::key_file: ${{env:SPILLWAY_KAFKA_TLS_KEY}}",
        f"{KAFKA}::tls::server_name_override: ${{env:SPILLWAY_KAFKA_TLS_SERVER_NAME}}",
        f"{KAFKA}::sasl::mechanism: ${{env:SPILLWAY_KAFKA_SASL}}",
        f"{KAFKA}::sasl::username: ${{env:SPILLWAY_KAFKA_SASL_USER}}",
        f"{KAFKA}::sasl::password_file: ${{env:SPILLWAY_KAFKA_SASL_PASSWORD_FILE}}",
    ]


def test_the_systems_roots_are_the_collectors_own_default(launch):
    """`system` is no file. Without a CA file, the collector trusts the machine's root certificates.

    TLS is on.
    """
    home = {"SPILLWAY_KAFKA": "127.0.0.1:9092", "SPILLWAY_KAFKA_TLS_CA": "system"}
    assert added(launch(GOOD | home)) == []
    done = launch(GOOD | home | {"SPILLWAY_KAFKA_TLS": "off"})
    assert done.returncode == 64 and "SPILLWAY_KAFKA_TLS_CA: set, although" in done.stderr


OAUTH = {
    "SPILLWAY_KAFKA_SASL": "OAUTHBEARER",
    "SPILLWAY_KAFKA_SASL_USER": "west",
    "SPILLWAY_KAFKA_SASL_PASSWORD_FILE": HERE,
    "SPILLWAY_KAFKA_SASL_TOKEN_URL": "https://login.test/token?tenant=1",
}


def test_the_token_endpoint_reaches_the_exporter(launch):
    """The settings are placeholders, and the token endpoint can have its own CA.

    `system` is the collector's own default.
    """
    given = {"SPILLWAY_KAFKA_SASL_TOKEN_CA": HERE, "SPILLWAY_KAFKA_SASL_SCOPE": "kafka produce"}
    keys = [f"{KAFKA}::sasl::{key}" for key in ("mechanism", "username", "password_file", "oauth::token_url")]
    names = ["", "_USER", "_PASSWORD_FILE", "_TOKEN_URL"]
    least = [f"{key}: ${{env:SPILLWAY_KAFKA_SASL{name}}}" for key, name in zip(keys, names, strict=True)]
    assert added(launch(GOOD | OAUTH)) == least
    assert added(launch(GOOD | OAUTH | {"SPILLWAY_KAFKA_SASL_TOKEN_CA": "system"})) == least
    assert added(launch(GOOD | OAUTH | given)) == [
        *least,
        f"{KAFKA}::sasl::oauth::tls::ca_file: ${{env:SPILLWAY_KAFKA_SASL_TOKEN_CA}}",
        f"{KAFKA}::sasl::oauth::scope: ${{env:SPILLWAY_KAFKA_SASL_SCOPE}}",
    ]


@pytest.mark.parametrize("url", ["http://localhost/t", "http://127.0.0.1:8080", "http://[::1]:8080/t?a=b"])
def test_tokens_come_in_clear_from_this_machine(launch, url):
    assert launch(GOOD | OAUTH | {"SPILLWAY_KAFKA_SASL_TOKEN_URL": url}).returncode == 0


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"TOKEN_URL": ""}, "TOKEN_URL: not set"),
        *(
            ({"TOKEN_URL": url}, "TOKEN_URL: must be https://host")
            for url in (
                "login.test/token",
                "ftp://login.test",
                "https://",
                "https://me:top-secret@login.test",
                "https://login.test/#top-secret",
                "https://login.test/top secret",
                "https://login.test:top-secret",
                "https://login.test/\nhttps://top-secret",
            )
        ),
        ({"TOKEN_URL": "http://login.test/token"}, "TOKEN_URL: http:// in clear"),
        ({"TOKEN_URL": "http://127.0.0.1.login.test"}, "TOKEN_URL: http:// in clear"),
        ({"TOKEN_CA": "/nowhere"}, "TOKEN_CA: '/nowhere' is not a readable file"),
        ({"TOKEN_URL": "http://localhost", "TOKEN_CA": HERE}, "TOKEN_CA: set, although"),
    ],
)
def test_a_wrong_token_endpoint_is_refused_without_its_value(launch, changed, expected):
    """The message does not contain the URL, which may hold a password."""
    done = launch(GOOD | OAUTH | {f"SPILLWAY_KAFKA_SASL_{name}": value for name, value in changed.items()})
    assert done.returncode == 64 and not done.stdout
    assert f"SPILLWAY_KAFKA_SASL_{expected}" in done.stderr and "top" not in done.stderr


def test_a_network_of_its_own_allows_tokens_in_clear(launch):
    far = GOOD | OAUTH | {"SPILLWAY_KAFKA_SASL_TOKEN_URL": "http://login.test/token"}
    done = launch(far | {"SPILLWAY_PLAINTEXT": "allow"})
    assert f"{KAFKA}::sasl::oauth::tls::insecure: true" in added(done)
    assert "SPILLWAY_PLAINTEXT: 'yes' must be" in launch(far | {"SPILLWAY_PLAINTEXT": "yes"}).stderr


def test_a_token_endpoint_is_of_oauthbearer_alone(launch):
    for name in ("TOKEN_URL", "TOKEN_CA", "SCOPE"):
        name = f"SPILLWAY_KAFKA_SASL_{name}"
        done = launch(GOOD | OAUTH | {"SPILLWAY_KAFKA_SASL": "PLAIN", name: HERE})
        assert done.returncode == 64 and f"{name}: set, although SPILLWAY_KAFKA_SASL is not" in done.stderr


def test_tls_of_the_receivers_is_added_by_its_certificate(launch):
    """A certificate makes the receivers use TLS. A client CA makes senders show a certificate."""
    server = {"SPILLWAY_OTLP_TLS_CERT": HERE, "SPILLWAY_OTLP_TLS_KEY": HERE}
    assert added(launch(GOOD | server)) == [str(RUN.parent / "otlp-tls.yaml")]
    assert added(launch(GOOD | server | {"SPILLWAY_OTLP_TLS_CLIENT_CA": HERE})) == [
        str(RUN.parent / "otlp-tls.yaml"),
        str(RUN.parent / "otlp-client-ca.yaml"),
    ]


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"SPILLWAY_KAFKA_TLS_CERT": HERE}, "SPILLWAY_KAFKA_TLS_KEY: not set"),
        ({"SPILLWAY_KAFKA_TLS_KEY": HERE}, "SPILLWAY_KAFKA_TLS_CERT: not set"),
        (
            {"SPILLWAY_KAFKA_TLS": "off", "SPILLWAY_KAFKA_TLS_CA": HERE},
            "SPILLWAY_KAFKA_TLS_CA: set, although",
        ),
        ({"SPILLWAY_KAFKA_TLS": "off", "SPILLWAY_KAFKA_SASL": "PLAIN"}, "SPILLWAY_KAFKA_SASL: set, although"),
        ({"SPILLWAY_KAFKA_SASL": "PLAIN"}, "SPILLWAY_KAFKA_SASL_USER: not set"),
        ({"SPILLWAY_KAFKA_SASL": "PLAIN"}, "SPILLWAY_KAFKA_SASL_PASSWORD_FILE: not set"),
        ({"SPILLWAY_KAFKA_SASL_USER": "west"}, "SPILLWAY_KAFKA_SASL: not set"),
        ({"SPILLWAY_OTLP_TLS_CERT": HERE}, "SPILLWAY_OTLP_TLS_KEY: not set"),
        ({"SPILLWAY_OTLP_TLS_CLIENT_CA": HERE}, "SPILLWAY_OTLP_TLS_CERT: not set"),
    ],
)
def test_half_of_a_pair_is_refused(launch, environment, named):
    """Settings that need or contradict another setting are named."""
    done = launch(GOOD | environment)
    assert done.returncode == 64 and named in done.stderr and not done.stdout


AGENT = {name: value for name, value in GOOD.items() if name != "SPILLWAY_KAFKA"} | {
    "SPILLWAY_NODE": "10.0.0.7",
    "SPILLWAY_GATEWAY": "https://collector.west:4317",
}


def test_agent_needs_its_own_environment(launch):
    """An agent needs no Kafka, but its node and its gateway.

    A kubelet adds a configuration file and needs the label of services.
    """
    config = str(RUN.parent / "agent.yaml")
    assert launch(AGENT, "--config", config).stdout.split() == ["--config", config]
    done = launch({}, "--config", config)
    named = [line.split(": ")[1] for line in done.stderr.splitlines()]
    assert done.returncode == 64 and named[-2:] == ["SPILLWAY_NODE", "SPILLWAY_GATEWAY"]
    assert "SPILLWAY_KAFKA" not in named
    kubelet = {"SPILLWAY_KUBELET": "10.0.0.7:10250"}
    done = launch(AGENT | kubelet, "--config", config)
    assert done.returncode == 64 and "SPILLWAY_SERVICE_LABEL: not set" in done.stderr
    done = launch(AGENT | kubelet | {"SPILLWAY_SERVICE_LABEL": "app"}, "--config", config)
    assert done.stdout.split()[2:] == ["--config", str(RUN.parent / "agent-kubernetes.yaml")]


@pytest.mark.parametrize("node", ["1234", "1e3", "0x1f", "1.5", "true", "Null", "two words"])
def test_node_that_yaml_would_not_read_as_text_is_refused(launch, node):
    """host.name must stay a string. Names and addresses pass."""
    done = launch(AGENT | {"SPILLWAY_NODE": node}, "--config", "agent.yaml")
    assert done.returncode == 64 and f"SPILLWAY_NODE: '{node}'" in done.stderr
    for good in ("ip-10-0-0-7.ec2.internal", "fd00::7", "1a", "n1"):
        assert launch(AGENT | {"SPILLWAY_NODE": good}, "--config", "agent.yaml").returncode == 0
