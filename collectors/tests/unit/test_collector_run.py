"""The launcher's check of the environment: it needs no collector to refuse."""

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
    """Runs the launcher with a stand-in for the collector that prints its arguments and metrics address."""
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
    """Without arguments the configuration beside the launcher is used; given arguments are passed on."""
    assert launch(GOOD).stdout.split() == ["--config", str(RUN.parent / "config.yaml")]
    assert launch(GOOD, "--config", "other.yaml").stdout.split() == ["--config", "other.yaml"]


def test_metrics_address_adds_the_metrics_file(launch):
    """SPILLWAY_METRICS_LISTEN turns the collector's own metrics on, at that address."""
    done = launch(GOOD | {"SPILLWAY_METRICS_LISTEN": "127.0.0.1:8888"})
    assert done.stdout.split()[2:] == ["--config", str(RUN.parent / "metrics.yaml"), "127.0.0.1", "8888"]


@pytest.mark.parametrize("name", GOOD)
def test_unset_variable_is_named(launch, name):
    """A process that does not know a part of its identity refuses to start and says which."""
    done = launch({key: value for key, value in GOOD.items() if key != name})
    assert done.returncode == 64 and f"{name}: not set" in done.stderr and not done.stdout


def test_every_unset_variable_is_named_at_once(launch):
    """All that is wrong is listed in one go."""
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
    ],
)
def test_malformed_value_is_named_and_shown(launch, name, value):
    """The message carries the variable and the value that it refuses."""
    done = launch(GOOD | {name: value})
    assert done.returncode == 64 and f"{name}: '{value}'" in done.stderr and not done.stdout
