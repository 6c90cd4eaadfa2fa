"""Messages that a job cannot process, or need not."""

from types import SimpleNamespace

import numpy as np
import pytest
from faust.types import TP
from spillway_contracts import names
from spillway_runtime.status import Status
from spillway_streams.batches.parts import Parts
from spillway_streams.batches.positions import Batch
from spillway_streams.graph import callgraph
from spillway_streams.graph.callgraph import CallGraph
from spillway_streams.jobs import batches, runner
from spillway_streams.jobs.curves import Curves
from spillway_streams.jobs.graph import Graph
from spillway_streams.jobs.graph_state import PartitionState
from spillway_streams.process.config import CurvesSettings, GraphSettings
from spillway_streams.process.counters import Counters
from spillway_streams.process.lag import Lag

ADDRESS = {
    "kafka": "h:1",
    "health_listen": "h:2",
    "clickhouse_url": "clickhouse://localhost",
    "redis_url": "redis://localhost",
}


class App:
    """Stands in for Faust's app: gives access to the agent, and records why it crashed."""

    consumer_generation_id = 7

    def __init__(self) -> None:
        self.crashed_with: list[Exception] = []

    def topic(self, name: str, **_: object) -> str:
        return name

    def agent(self, *_: object, **__: object):
        def keep(agent) -> None:
            self.run = agent

        return keep

    async def crash(self, error: Exception) -> None:
        self.crashed_with.append(error)


class Stream:
    def __init__(self, *events: object) -> None:
        self._events = events

    def noack(self) -> "Stream":
        return self

    async def events(self):
        for event in self._events:
            yield event


def _event(topic: str, generation: int = 7) -> SimpleNamespace:
    message = SimpleNamespace(
        topic=topic,
        partition=0,
        tp=TP(topic, 0),
        offset=3,
        generation_id=generation,
        headers=[],
        timestamp=1.0,
    )
    return SimpleNamespace(message=message, value=b"\xff nonsense")


async def test_an_unforeseen_error_stops_the_worker_at_its_message():
    """If the next message were stored, a repeat of this one would look taken."""
    app, seen = App(), []

    async def take(event: SimpleNamespace) -> None:
        seen.append(event)
        raise KeyError("unforeseen")

    batches.consume(app, Lag(), "calls", take)
    with pytest.raises(KeyError):
        await app.run(Stream(_event("calls"), _event("calls")))
    assert len(seen) == len(app.crashed_with) == 1


@pytest.mark.parametrize(
    ("job", "settings", "topics"),
    [
        (
            Curves,
            CurvesSettings,
            {
                "take_calls": names.KAFKA_TOPIC_CALLS,
                "take_metrics": names.KAFKA_TOPIC_OTLP_METRICS,
                "take_arrivals": names.KAFKA_TOPIC_ARRIVALS,
            },
        ),
        (
            Graph,
            GraphSettings,
            {"take_edges": names.KAFKA_TOPIC_EDGES, "take_network": names.KAFKA_TOPIC_NETWORK},
        ),
    ],
)
async def test_what_another_worker_has_by_now_is_its_to_refuse(tmp_path, job, settings, topics):
    """A message of a revoked partition is not even decoded: the next owner dead-letters it."""
    context = runner.Context(settings(**ADDRESS, state_dir=tmp_path), Status("redis"), Counters(), None)
    made = job(App(), context)
    for take, topic in topics.items():
        await getattr(made, take)(_event(topic, generation=6))
    assert context.counters.snapshot() == {}


def test_network_times_are_computed_when_there_is_news(monkeypatch):
    """Boards ask four times a second. Without new data, the same second has the same answer."""
    state, asked = PartitionState(CallGraph(600, 10, Counters()), hot=None, outcomes=None), []
    state.graph.network_times = lambda *window: asked.append(window) or [("row", len(asked))]
    batch = Batch(names.KAFKA_TOPIC_NETWORK, 0, 0, 1)

    def new_data(second: int) -> None:
        parts = Parts(
            np.array([second]), np.array([0]), [("a", "b", 5)], np.ones((1, len(callgraph.NETWORK_PARTS) - 4))
        )
        state.add(state.graph.network, state.network_watermark, batch, parts)

    new_data(100)
    assert state.network_times(30, 2.0, 0.0) == state.network_times(30, 2.0, 0.0) == (98, [("row", 1)])
    new_data(100)
    assert state.network_times(30, 2.0, 0.0) == (98, [("row", 2)])
    new_data(101)
    assert state.network_times(30, 2.0, 0.0) == (99, [("row", 3)])
