"""A process dies or hangs under constant load: in the end every accepted span is in Kafka.

SPILLWAY_TEST_KAFKA_AWAY_S is the number of seconds for which Kafka is away. The assertions do not
depend on it. The default is longer than every timeout and pause of the producer (3 s and 5 s).
"""

import itertools
import os
import signal
import time

import pytest
from collector_process import Collector, collector
from constant_load import ConstantLoad, check_nothing_lost
from spillway_lab.testing.kafka import kafka_process
from spillway_lab.testing.waiting import STOP_S

AWAY_S = float(os.environ.get("SPILLWAY_TEST_KAFKA_AWAY_S", "10"))
MOST_KILLS = 12  # the most kills to try until one has cut an export off
pytestmark = [pytest.mark.component, pytest.mark.timeout(300 + 3 * AWAY_S)]


@pytest.fixture
def kafka(tmp_path):
    """A broker for each test, so that a failure while it is away does not affect the next test."""
    with kafka_process(tmp_path) as kafka:
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
    """The collector gets SIGKILL three times or more, in the middle of exports, batches and writes.

    Every span that was answered OK arrives.
    """
    with ConstantLoad(running.address) as load:
        for kills, pause_s in enumerate(itertools.cycle((1.5, 0.7, 2.1))):
            load.run(pause_s)
            if kills >= 3 and (load.account().cut or kills == MOST_KILLS):
                break
            load.wait_for_an_export()
            kill_and_restart(running)
    account = load.account()
    record_property("kills", kills)
    assert account.cut, f"no export was under way at {kills} deaths of the collector: the test shows nothing"
    check_nothing_lost(kafka.url, account, record_property)


def test_kafka_hangs(kafka, running, record_property):
    """Kafka keeps its connections but answers nothing (SIGSTOP).

    Exports are still accepted, and arrive afterwards.
    """
    with ConstantLoad(running.address) as load:
        load.run(2.0)
        kafka.process.send_signal(signal.SIGSTOP)
        try:
            away = load.run(AWAY_S)
        finally:
            kafka.process.send_signal(signal.SIGCONT)
        load.run(2.0)
    assert not away.codes
    check_nothing_lost(kafka.url, load.account(), record_property)


def test_kafka_dies_and_the_collector_too(kafka, running, record_property):
    """Kafka is killed. The collector is killed while only its queue has the spans.

    Once both are back, every accepted span has arrived.
    """
    with ConstantLoad(running.address) as load:
        load.run(2.0)
        kafka.kill()
        load.run(AWAY_S / 2)
        kill_and_restart(running)
        load.run(AWAY_S / 2)
        kafka.start()
        load.run(2.0)
    check_nothing_lost(kafka.url, load.account(), record_property)


def test_collector_stops_by_itself_while_kafka_is_away(kafka, running, record_property):
    """SIGTERM ends the collector with code 0 although Kafka does not answer.

    The next start sends what the queue held.
    """
    kafka.kill()
    with ConstantLoad(running.address) as load:
        load.run(1.0)
    process = running.server.process
    process.terminate()
    began = time.monotonic()
    assert process.wait(STOP_S) == 0
    record_property("seconds", time.monotonic() - began)
    kafka.start()
    running.server.start()
    check_nothing_lost(kafka.url, load.account(), record_property)
