"""The fault matrix as data: every kind of fault for every part of the stack.

Each entry also states what is unknown meanwhile, and when all must be back. Every combination has a
meaning here. A restarted part ends in an orderly way, or is killed and started by its supervisor. A
slow part is frozen, or the connection to it is longer. A lying part sends wrong data with its own
credential.
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
    """One fault, and the effects that it may have.

    - `unknown`: (service or "" for all, cluster) of which nothing is known meanwhile.
    - `lost`: clusters that are lost together with their users and with the requests inside them at
      that moment.
    - `left`: clusters from which weights may move away.
    - `liars`: clusters whose own telemetry may be wrong.
    - `steering`: the lie is so strong that weights may go anywhere.
    - `placed`: the placement's key must always exist.
    - `noticed_s`: until then a ruleset may arrive that was computed from telemetry before the
      fault.
    - `taken_over`: another process takes over from the part, so after a while only what the boards
      report is unknown.
    - `core`: the fault is in `make test-e2e`; `make test-matrix` has all.
    """

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
# The silence of a part is noticed only by the age of its entries, of which 15 s are allowed.
_BY_AGE_S = 17.0
_WORKER = "streams-exclusive-2"  # has some of the partitions

# Checks that weights do not collapse by themselves: without any fault, for the longest time of a
# fault, the judges must find nothing.
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
    # Its own counters continue beside the lie, so nothing of it is unknown.
    Fault(
        "lie", "one Envoy's exports", repeated(lies.exports, 12), nothing, away_s=0, back_s=60, liars=(WEST,),
        core=True,
    ),
    Fault("slow", "region", *far(EAST, 100), away_s=12, back_s=60, left=(EAST,)),
    Fault("stop", "region", *lose(EAST), away_s=15, back_s=90, lost=(EAST,), unknown=_EAST, core=True),
    Fault("restart", "region", *lose(EAST), away_s=0, back_s=90, lost=(EAST,), unknown=_EAST),
    # This comes last: what it reports about the curve, which clusters share, stays for minutes.
    Fault("lie", "region", repeated(lies.region, 12), nothing, away_s=0, back_s=60, liars=(EAST,), steering=True),
]  # fmt: skip

# Parts that the matrix does not list separately.
MORE = [
    *(
        Fault(kind, part, *how(process), away_s=30, back_s=back_s, unknown=_ALL, noticed_s=_BY_AGE_S, core=kind == "stop")
        # The graph's worker rereads 90 s of calls before it writes boards, which takes 50 to 82 s
        # on two cores.
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

# The core comes first. A cluster's reports about itself steer others' weights for minutes, so such
# lies come last.
FAULTS = sorted(
    [CONTROL, *MORE, *MATRIX], key=lambda fault: (not fault.core, bool(fault.liars), fault.steering)
)
