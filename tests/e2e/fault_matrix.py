"""The fault matrix as data: every kind of fault of every part, what is not known meanwhile, and when all is back.

Every cell has a meaning here. A part that restarts ends in an orderly way, or is killed and started by its supervisor.
A slow one is frozen, or the way to it is longer. One that lies says what is wrong by its own credential.
"""

from dataclasses import dataclass

import lies
from injecting import (
    EAST,
    WEST,
    Act,
    crash,
    exports_reset,
    exports_slow,
    exports_stop,
    far,
    freeze,
    lose,
    nothing,
    repeated,
    restart,
    stop,
)

KINDS = ("stop", "slow", "restart", "lie")
PARTS = (
    "collector",
    "worker",
    "relay",
    "Kafka",
    "Redis",
    "ClickHouse",
    "NATS",
    "one Envoy's exports",
    "region",
)


@dataclass(frozen=True)
class Fault:
    """`unknown`: (service or "" for all, cluster) of which nothing is known meanwhile. `lost`: clusters that go with their
    users, and with the requests that are inside them at that moment. `left`: clusters that weights may leave. `liars`: those
    whose own telemetry may be wrong, `steering`: so much that weights may go anywhere. `placed`: the placement's key must
    never be absent. `noticed_s`: until then a ruleset may come that was made of telemetry from before the fault.
    `taken_over`: another process takes the part over, so that after a while only what the boards say is unknown.
    `core`: it is in `make test-e2e`; `make test-matrix` has all."""

    kind: str
    part: str
    inject: Act
    heal: Act
    away_s: float
    back_s: float
    unknown: tuple[tuple[str, str], ...] = ()
    lost: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    liars: tuple[str, ...] = ()
    steering: bool = False
    placed: bool = True
    noticed_s: float = 8.0
    taken_over: bool = False
    core: bool = False

    @property
    def name(self) -> str:
        return f"{self.part}, {self.kind}"


_WEST, _EAST = (("", WEST),), (("", EAST),)
_ALL = (*_WEST, *_EAST)
_BACKEND = (("backend", WEST),)
_COLLECTOR, _RELAYS = f"collector-{WEST}", (f"relay-{WEST}", f"relay-{WEST}-2")
# What is silent is known by the age of its entries alone, of which 15 s are allowed.
_BY_AGE_S = 17.0
_WORKER = "streams-exclusive-2"  # of some of the partitions

# Weights may not collapse by themselves: the judge finds nothing where nothing happens, for the longest time of a fault.
CONTROL = Fault("nothing", "no part", nothing, nothing, away_s=60, back_s=45)

MATRIX = [
    Fault("stop", "relay", *stop(_RELAYS[0]), away_s=6, back_s=45, core=True),
    Fault("slow", "relay", *freeze(_RELAYS[1]), away_s=12, back_s=45),
    Fault("restart", "relay", *restart(_RELAYS[0]), away_s=2, back_s=45),
    Fault("lie", "relay", lies.relay, nothing, away_s=4, back_s=45, core=True),
    Fault("stop", "collector", *stop(_COLLECTOR), away_s=60, back_s=60, unknown=_WEST, core=True),
    Fault("slow", "collector", *freeze(_COLLECTOR), away_s=12, back_s=60, unknown=_WEST),
    Fault("restart", "collector", *restart(_COLLECTOR), away_s=2, back_s=60, unknown=_WEST),
    Fault("lie", "collector", lies.collector, nothing, away_s=4, back_s=45, liars=(EAST,), core=True),
    Fault("stop", "worker", *stop(_WORKER), away_s=60, back_s=60, unknown=_ALL, taken_over=True, core=True),
    Fault("slow", "worker", *freeze(_WORKER), away_s=20, back_s=90, unknown=_ALL, taken_over=True),
    Fault("restart", "worker", *crash(_WORKER), away_s=2, back_s=60, unknown=_ALL, taken_over=True),
    Fault("lie", "worker", lies.worker, nothing, away_s=4, back_s=60),
    Fault("stop", "Kafka", *stop("kafka"), away_s=12, back_s=90, unknown=_ALL, core=True),
    Fault("slow", "Kafka", *freeze("kafka"), away_s=12, back_s=90, unknown=_ALL),
    Fault("restart", "Kafka", *restart("kafka"), away_s=0, back_s=90, unknown=_ALL),
    Fault("lie", "Kafka", lies.kafka, nothing, away_s=4, back_s=60, liars=(WEST,), core=True),
    Fault("stop", "Redis", *stop("redis"), away_s=6, back_s=60, placed=False, core=True),
    Fault("slow", "Redis", *freeze("redis"), away_s=12, back_s=60, placed=False),
    Fault("restart", "Redis", *restart("redis"), away_s=0, back_s=60, placed=False),
    Fault(
        "lie", "Redis", lies.hot_state, nothing, away_s=4, back_s=60, unknown=_WEST, liars=(WEST,), placed=False,
        core=True,
    ),
    Fault("stop", "ClickHouse", *stop("clickhouse"), away_s=6, back_s=60, core=True),
    Fault("slow", "ClickHouse", *freeze("clickhouse"), away_s=12, back_s=60),
    Fault("restart", "ClickHouse", *restart("clickhouse"), away_s=0, back_s=60),
    Fault("lie", "ClickHouse", lies.history, nothing, away_s=12, back_s=60, unknown=_ALL, core=True),
    Fault("stop", "NATS", *stop("nats"), away_s=6, back_s=60, placed=False, core=True),
    Fault("slow", "NATS", *freeze("nats"), away_s=12, back_s=60, placed=False),
    Fault("restart", "NATS", *restart("nats"), away_s=0, back_s=60, placed=False),
    Fault("lie", "NATS", lies.bus, nothing, away_s=6, back_s=60, core=True),
    Fault(
        "stop", "one Envoy's exports", *exports_stop(), away_s=60, back_s=60, unknown=_BACKEND, noticed_s=_BY_AGE_S,
        core=True,
    ),
    Fault(
        "slow", "one Envoy's exports", *exports_slow(8000), away_s=30, back_s=60, unknown=_BACKEND, noticed_s=_BY_AGE_S
    ),
    Fault("restart", "one Envoy's exports", *exports_reset(), away_s=2, back_s=45, unknown=_BACKEND),
    # Its own counters go on beside, so nothing of it is unknown.
    Fault(
        "lie", "one Envoy's exports", repeated(lies.exports, 12), nothing, away_s=0, back_s=60, liars=(WEST,),
        core=True,
    ),
    Fault("slow", "region", *far(EAST, 100), away_s=12, back_s=60, left=(EAST,)),
    Fault("stop", "region", *lose(EAST), away_s=15, back_s=90, lost=(EAST,), unknown=_EAST, core=True),
    Fault("restart", "region", *lose(EAST), away_s=0, back_s=90, lost=(EAST,), unknown=_EAST),
    # The last: what it has told of the curve, which clusters share, stays for minutes.
    Fault("lie", "region", repeated(lies.region, 12), nothing, away_s=0, back_s=60, liars=(EAST,), steering=True),
]  # fmt: skip

# Parts that the matrix does not name apart.
MORE = [
    *(
        Fault(kind, part, *how(process), away_s=30, back_s=back_s, unknown=_ALL, noticed_s=_BY_AGE_S, core=kind == "stop")
        # The graph's worker reads 90 s of calls again before its boards: 50 to 82 s on two cores.
        for part, process, back_s in (
            ("worker of curves", "streams-curves", 90),
            ("worker of the graph", "streams-graph", 120),
        )
        for kind, how in (("stop", stop), ("slow", freeze))
    ),
    Fault("stop", "admission", *stop("streams-admit"), away_s=12, back_s=60, unknown=_ALL, core=True),
    Fault("slow", "admission", *freeze("streams-admit"), away_s=12, back_s=60, unknown=_ALL),
    Fault("slow", "all workers of spans", *freeze("streams-exclusive", _WORKER), away_s=12, back_s=60, unknown=_ALL),
    Fault("stop", "optimizer", *stop("optimizer"), away_s=6, back_s=60, core=True),
]  # fmt: skip

# The core first. What a cluster says of itself steers others' weights for minutes: such lies are last.
FAULTS = sorted(
    [CONTROL, *MORE, *MATRIX], key=lambda fault: (not fault.core, bool(fault.liars), fault.steering)
)
