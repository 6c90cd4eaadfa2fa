"""Under constant load something dies or hangs: in the end every accepted span is in Kafka.

SPILLWAY_TEST_KAFKA_AWAY_S: how long Kafka is away; what is asserted does not depend on it. The default is longer
than every timeout and pause of the producer (3 s and 5 s).
"""

import os
import signal
import time

import pytest
from collector_process import Collector, collector
from constant_load import ConstantLoad, check_nothing_lost
from spillway_lab.testing.kafka import kafka_process

AWAY_S = float(os.environ.get("SPILLWAY_TEST_KAFKA_AWAY_S", "10"))
pytestmark = [pytest.mark.component, pytest.mark.timeout(180 + 3 * AWAY_S)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with kafka_process(tmp_path_factory.mktemp("broker")) as kafka:
        yield kafka


@pytest.fixture
def running(tmp_path, kafka, clean_environment):
    running = collector(tmp_path / "collector", kafka.url, clean_environment)
    running.server.start()
    yield running
    running.server.stop()


def kill_and_restart(running: Collector) -> None:
    running.server.kill()
    running.server.start()


def test_collector_killed_three_times(kafka, running, record_property):
    """SIGKILL in the middle of exports, batches and writes, three times: what was answered OK arrives."""
    with ConstantLoad(running.address) as load:
        for pause_s in (1.5, 0.7, 2.1):
            assert load.run(pause_s).accepted
            kill_and_restart(running)
        assert load.run(2.0).accepted
    account = load.account()
    assert account.open, "no export was under way when the collector died: the test shows nothing"
    check_nothing_lost(kafka.url, account, record_property)


def test_kafka_hangs(kafka, running, record_property):
    """Kafka keeps its connections but answers nothing (SIGSTOP): exports go on being accepted, and arrive after."""
    with ConstantLoad(running.address) as load:
        assert load.run(2.0).accepted
        kafka.process.send_signal(signal.SIGSTOP)
        try:
            away = load.run(AWAY_S)
        finally:
            kafka.process.send_signal(signal.SIGCONT)
        load.run(2.0)
    assert away.accepted and not away.open
    check_nothing_lost(kafka.url, load.account(), record_property)


def test_kafka_dies_and_the_collector_too(kafka, running, record_property):
    """Kafka is killed, and the collector while its queue is all there is: after both are back all has arrived."""
    with ConstantLoad(running.address) as load:
        assert load.run(2.0).accepted
        kafka.kill()
        assert load.run(AWAY_S / 2).accepted
        kill_and_restart(running)
        assert load.run(AWAY_S / 2).accepted
        kafka.start()
        load.run(2.0)
    check_nothing_lost(kafka.url, load.account(), record_property)


def test_collector_stops_by_itself_while_kafka_is_away(kafka, running, record_property):
    """SIGTERM ends it with 0 although Kafka does not answer; the next start sends what it had."""
    kafka.kill()
    with ConstantLoad(running.address) as load:
        assert load.run(1.0).accepted
    process = running.server.process
    process.terminate()
    began = time.monotonic()
    assert process.wait(30) == 0
    record_property("seconds", time.monotonic() - began)
    kafka.start()
    running.server.start()
    check_nothing_lost(kafka.url, load.account(), record_property)
