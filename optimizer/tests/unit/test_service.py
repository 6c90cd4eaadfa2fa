"""The loop around solves, with its servers in memory: leadership, readiness, and the lease."""

import asyncio
import logging
import math
from types import SimpleNamespace

import pytest
from redis.exceptions import NoPermissionError
from spillway_optimizer.clients.history import ModelRows
from spillway_optimizer.clients.lease import beside
from spillway_optimizer.inputs.telemetry import Pulse
from spillway_optimizer.process.states import States
from spillway_optimizer.service.loop import Service
from spillway_optimizer.service.reading import Reader
from spillway_optimizer.solving.schedule import Schedule
from spillway_optimizer.solving.triggers import Basis, Trigger
from test_solving import TOPOLOGY


class _History:
    lost = 0

    def __init__(self):
        self.away, self.reads = True, 0

    def model(self):
        if self.away:
            raise ConnectionRefusedError
        self.reads += 1
        return ModelRows((), (), (), ())

    def flush(self):
        return []


class _Lease:
    def __init__(self, free=True):
        self.token, self.fencing_token, self.free, self.asked = None, 0, free, 0

    async def hold(self):
        self.asked += 1
        self.token = "1" if self.free else None
        return self.free


@pytest.fixture
def service(settings, monkeypatch):
    made = Service(settings(period_s=0.001), TOPOLOGY, None, _History(), None)
    made.lease = _Lease()
    solved = []

    async def solve(trigger):
        solved.append(trigger.kind)

    async def trigger(_now):
        return SimpleNamespace(kind="start")

    async def ask():
        pass

    monkeypatch.setattr(made, "_solve", solve)
    monkeypatch.setattr(made, "_trigger", trigger)
    monkeypatch.setattr(made.following, "ask", ask)
    made.solved, made.history = solved, made.reader._history
    return made


async def test_who_has_no_rows_does_not_lead(service):
    """While ClickHouse is away, the process does not request the lease, so another may have it.

    Once it has rows, it requests the lease.
    """
    await service._tick()
    assert service.lease.asked == 0 and service.solved == []
    service.history.away = False
    await service._tick()
    assert service.lease.asked == 1 and service.solved == ["start"]
    # A leader continues to lead with the rows that it has.
    service.history.away = True
    await service._tick()
    assert service.solved == ["start"] * 2


@pytest.fixture
def leading(settings, monkeypatch):
    """A leader whose guardrails change at the first check.

    `solved`: the kinds of triggers that it solved for. `away`: for each solve, the server that
    prevents publishing. Once the list is empty, no server does.
    """
    made = Service(settings(min_interval_s=0), TOPOLOGY, None, _History(), None)
    made.lease, made.reader = _Lease(), SimpleNamespace(read=_telemetry)
    made.changes, made.away, made.solved = [True], [], []

    async def run(_now, trigger, _inputs, _following):
        made.solved.append(trigger.kind)
        return made.away.pop(0) if made.away else None

    async def pulse(*_):
        return Pulse()

    def changed(*_):
        return bool(made.changes) and made.changes.pop(0)

    monkeypatch.setattr(made.solving, "run", run)
    monkeypatch.setattr("spillway_optimizer.service.loop.hot.pulse", pulse)
    monkeypatch.setattr("spillway_optimizer.service.loop.guardrails.changed", changed)
    return made


async def test_what_is_urgent_stays_so_until_its_rules_are_out(leading):
    """NATS is away when the guardrails change.

    The change of the file is reported only once, but is solved for again.
    """
    leading.away = ["nats"]
    for _ in range(2):
        await leading._solve(await leading._trigger(math.inf))
    assert leading.solved == ["guardrails", "guardrails"] and await leading._trigger(0) is None


async def test_a_solve_of_the_period_does_not_settle_what_is_urgent(leading):
    """The guardrails change too soon after the last solve, and the period is over.

    Both reasons lead to a solve.
    """
    leading.schedule.solved(Trigger("period"), None, 0.0, math.inf)
    await leading._solve(await leading._trigger(1.0))
    await leading._solve(await leading._trigger(math.inf))
    assert leading.solved == ["start", "guardrails"]


async def _telemetry(_refresh_s=None):
    return SimpleNamespace(placement={})


def test_a_change_after_a_regular_solve_does_not_wait(settings):
    """Only an urgent solve begins a minimum interval. A slow solve is not repeated at once."""
    schedule = Schedule(settings(min_interval_s=1.0, period_s=100.0))
    basis = Basis({}, {}, "spillway")
    for kind, took_s, rest_s in (("period", 0.25, 0.25), ("load", 0.25, 1.0), ("period", 3.0, 3.0)):
        schedule.begun(100.0)
        schedule.solved(Trigger(kind), basis, 100.0, 100.0 + took_s)
        free_at = 100.0 + took_s + rest_s
        assert schedule.rest_s(free_at) == math.inf
        assert schedule.trigger(Pulse(), "local", False, free_at - 0.1) is None
        assert schedule.rest_s(free_at - 0.1) == pytest.approx(0.1)
        found = schedule.trigger(Pulse(), "local", False, free_at)
        assert found is not None and found.kind == "policy" and schedule.rest_s(free_at + 1.0) == 0.0
        schedule.forget()


async def test_a_change_of_load_is_answered_with_the_rows_that_are_there(leading, monkeypatch):
    """Curves and capacities are read again for other reasons, and when they are two periods old."""
    asked = []

    async def read(refresh_s):
        asked.append(refresh_s)
        return await _telemetry()

    monkeypatch.setattr(leading.reader, "read", read)
    for kind in ("period", "load", "placement"):
        await leading._solve(Trigger(kind))
    assert asked == [None, 2 * leading.settings.period_s, None]


async def test_an_announced_change_ends_the_rest(service, monkeypatch):
    """Without one, the next tick comes after half a second. What was announced meanwhile counts."""

    async def changes(_redis):
        yield "west"

    monkeypatch.setattr("spillway_optimizer.service.loop.hot.changes", changes)
    monkeypatch.setattr("spillway_optimizer.service.loop._TICK_S", 0.05)
    listening = asyncio.create_task(service._listen())
    await asyncio.wait_for(service._changed.wait(), 1)
    listening.cancel()
    began = asyncio.get_running_loop().time()
    await service._rest(asyncio.Event())
    assert asyncio.get_running_loop().time() - began < 0.04
    await service._rest(asyncio.Event())
    assert asyncio.get_running_loop().time() - began >= 0.05


async def test_a_loop_that_may_not_listen_goes_on(service, monkeypatch):
    """A user of Redis without the right to subscribe, as before an upgrade of its rights."""

    async def changes(_redis):
        raise NoPermissionError("this user has no permissions to access one of the channels")
        yield

    monkeypatch.setattr("spillway_optimizer.service.loop.hot.changes", changes)
    monkeypatch.setattr("spillway_optimizer.service.loop._LISTEN_AGAIN_S", 0.0)
    listening = asyncio.create_task(service._listen())
    await asyncio.sleep(0.01)
    assert not listening.done() and not service._changed.is_set()
    listening.cancel()


async def test_history_is_written_beside_the_loop(service, monkeypatch):
    """A server that takes long to answer delays no tick, and gets one connection at a time."""
    written, answered = [], asyncio.Event()

    async def flush():
        written.append(True)
        await answered.wait()

    service.history.away = False
    monkeypatch.setattr(service.reader, "flush", flush)
    for _ in range(3):
        await asyncio.wait_for(service._tick(), 1)
        await asyncio.sleep(0)
    assert service.solved == ["start"] * 3 and written == [True]
    answered.set()
    await service._flushing
    await service._tick()
    await asyncio.sleep(0)
    assert written == [True, True]


async def test_a_standby_reads_what_it_would_lead_with(service):
    """Rows are read in the background while another process leads."""
    service.history.away, service.lease = False, _Lease(free=False)
    for _ in range(4):
        await service._tick()
        await service._warming
        await asyncio.sleep(0.002)
    assert service.history.reads >= 3 and service.solved == []


async def test_who_does_not_lead_audits_nothing(service, monkeypatch):
    """The running audit ends at each tick at which another process holds the lease."""
    stopped = []

    async def stop():
        stopped.append(True)

    monkeypatch.setattr(service.auditing, "stop", stop)
    service.history.away = False
    await service._tick()
    assert stopped == []
    service.lease.free = False
    await service._tick()
    assert stopped == [True]
    await service._warming


async def test_only_a_concluded_run_is_offered_to_the_auditor(leading, monkeypatch):
    """A run that ended with an error has no solutions to audit."""
    offered = []
    monkeypatch.setattr(leading.auditing, "offer", lambda *solves: offered.append(solves))
    await leading._solve(Trigger("period"))
    assert offered == []
    leading.solving.concluded = ("occasion", {"shop": "solved"})
    await leading._solve(Trigger("period"))
    assert offered == [("occasion", {"shop": "solved"})]


async def test_rows_are_read_again_when_they_are_old_enough():
    """They are not read earlier, and rows already read are kept while the server is away."""
    history = _History()
    reader = Reader(None, history, (), States(logging.getLogger("test")))
    await reader.refresh(100.0)
    assert not reader.ready
    history.away = False
    for _ in range(3):
        await reader.refresh(100.0)
    assert reader.ready and history.reads == 1
    await reader.refresh(0.0)
    history.away = True
    await reader.refresh(0.0)
    assert reader.ready and history.reads == 2


async def test_the_lease_is_kept_while_something_takes_long():
    """The lease is renewed repeatedly, even if Redis fails to answer once.

    An error of the work itself is raised.
    """
    lease, finished = _Lease(), asyncio.Event()

    async def hold():
        lease.asked += 1
        if lease.asked == 1:
            raise TimeoutError
        if lease.asked == 3:
            finished.set()

    lease.hold = hold
    await beside(lease, 0.001, finished.wait())
    assert lease.asked >= 3

    async def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await beside(lease, 0.001, fails())
