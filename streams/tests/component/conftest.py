"""Real Kafka, Redis and ClickHouse servers for component tests, and jobs as real processes.

Each test file has servers of its own, so that files do not see each other's data.
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import broker
import pytest
from clickhouse_driver import Client
from prometheus_client.parser import text_string_to_metric_families
from spillway_lab.testing.kafka import kafka_server
from spillway_lab.testing.servers import clickhouse_server, free_port, redis_server
from spillway_lab.testing.waiting import STOP_S, eventually


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "component" in item.path.parts:
            item.add_marker(pytest.mark.component)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_server(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def clickhouse_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with clickhouse_server(tmp_path_factory.mktemp("clickhouse")) as url:
        yield url


@pytest.fixture
def clickhouse(clickhouse_url: str) -> Iterator[Client]:
    client = Client.from_url(clickhouse_url)
    yield client
    client.disconnect()


@dataclass
class Job:
    """A running process of `python -m spillway_streams NAME`."""

    process: subprocess.Popen
    health: str
    log: Path

    def state(self) -> dict:
        """Returns the answer of /readyz. A failed connection is a problem of `health`."""
        try:
            with urllib.request.urlopen(self.health, timeout=2) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)
        except OSError as error:
            return {"ready": False, "problems": {"health": str(error)}, "counters": {}, "gauges": {}}

    def counters(self) -> dict[str, int]:
        """Returns the job's counters.

        Asks until the endpoint answers, because no answer does not mean that nothing was counted.
        """

        def answer() -> dict | None:
            state = self.state()
            return None if "health" in state["problems"] else state

        return eventually(answer, "an answer of the health endpoint", seen=self.tail)["counters"]

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Returns the samples of /metrics.

        A key is the name without its prefix, then the labels' values in order of the labels' names.
        """
        with urllib.request.urlopen(self.health.replace("/readyz", "/metrics"), timeout=30) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return {
            (sample.name.removeprefix("spillway_streams_"), *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }

    def tail(self) -> str:
        """Returns the end of the job's log."""
        return self.log.read_text()[-3000:]


@contextmanager
def run_job(name: str, folder: Path, **environment: str) -> Iterator[Job]:
    """Runs a job until the block ends.

    Fails the test if the job does not end within STOP_S of SIGTERM.
    """
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"SPILLWAY_STATE_DIR": str(folder / "state"), "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{port}"}
    log = folder / f"{name}.log"
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "spillway_streams", name],
            env=os.environ | settings | environment,
            stderr=sink,
        )
    job = Job(process, f"http://127.0.0.1:{port}/readyz", log)
    try:
        yield job
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"{name} did not stop within {STOP_S:.0f} s of SIGTERM:\n{job.tail()}")


@pytest.fixture
def send(kafka: str) -> Callable[..., list[int]]:
    """Provides broker.send for this file's broker."""
    return partial(broker.send, kafka)


@pytest.fixture(name="run_job")
def _run_job() -> Callable[..., object]:
    return run_job


@pytest.fixture
def jobs(tmp_path: Path, kafka: str, clickhouse_url: str, redis_url: str) -> Iterator[Callable[..., Job]]:
    """Provides a function that starts jobs: jobs("exclusive", SPILLWAY_STREAMS_WINDOW_S="1").

    The jobs use this file's servers. The function returns when the job is ready.
    """
    with ExitStack() as running:

        def start(name: str, **environment: str) -> Job:
            servers = {
                "SPILLWAY_KAFKA": kafka,
                "SPILLWAY_CLICKHOUSE_URL": clickhouse_url,
                "SPILLWAY_REDIS_URL": redis_url,
                "SPILLWAY_STREAMS_ACCEPT_UNADMITTED": "true",  # tests write to otlp_spans directly
            }
            job = running.enter_context(run_job(name, tmp_path, **servers | environment))
            eventually(lambda: job.state()["ready"], f"{name} ready", seen=job.tail)
            return job

        yield start
