"""A service with counters, for tests of totals."""

from pathlib import Path

from spillway_contracts.hot_state import DemandEntry
from spillway_streams.boards.boards import Came
from spillway_streams.boards.counted import CountedBoards
from spillway_streams.boards.totals import Report, TotalsTable
from spillway_streams.process.counters import Counters

T0 = 1_700_000_000
A, B = "shop GET /a", "shop GET /b"
PLACE = ("west", "shop")
GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden" / "filter_totals.binpb"


class World:
    """Envoys of one service, each with a given request rate, and a board made from spans."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.table = TotalsTable(5, 100, 10, self.counters)
        self.board: CountedBoards = CountedBoards(True, self.counters)
        self.counts: dict[str, dict] = {}
        self.connected: int | None = None  # number of Envoys in the placement

    def run(
        self,
        first: int,
        end: int,
        rates: dict[str, dict],
        clock_ahead_s: float = 0.0,
        began: float = T0 - 1000,
    ) -> None:
        for now in range(first, end):
            for envoy, by_series in rates.items():
                counts = self.counts.setdefault(envoy, {})
                for series, rate in by_series.items():
                    counts[series] = counts.get(series, 0) + rate
                self.report(envoy, now + 0.3, dict(counts), clock_ahead_s, began)

    def report(
        self, envoy: str, at: float, counts: dict, ahead_s: float = 0.0, began: float = T0 - 1000
    ) -> bool:
        """Returns whether the report came early.

        `ahead_s`: how far the Envoy's clock is ahead; `began`: start by the clock of then.
        """
        sent_ns = int((T0 + at + ahead_s) * 1e9)
        report = Report(*PLACE, envoy, sent_ns, int(began * 1e9), counts)
        return self.table.add([report], T0 + at)

    def show(
        self, now: float, spans: dict[str, float], samples: float | None = None
    ) -> dict[str, DemandEntry]:
        entries = {class_id: DemandEntry(T0 + now - 1, rps, 0.0, 5.0) for class_id, rps in spans.items()}
        came = {PLACE: Came(*[sum(spans.values()) if samples is None else samples] * 2)}
        connected = {PLACE: self.connected}
        shown = self.board.apply(
            {"west": entries}, self.table, came, T0 + now, lambda *place: connected.get(place)
        )
        return shown.get("west", {})

    def rps(self, now: float, spans: dict[str, float], samples: float | None = None) -> dict[str, float]:
        return {class_id: entry.rps for class_id, entry in self.show(now, spans, samples).items()}
