"""What Redis holds for seconds: the load board. Pure."""

from spillway_contracts.hot_state import LoadBoardEntry

from spillway_streams.cpu import CpuTable
from spillway_streams.load import LoadTable, Sum


def load_board(table: LoadTable, cpu: CpuTable, first: int, end: int) -> dict[str, dict[str, LoadBoardEntry]]:
    """cluster -> class -> entry over the event seconds first <= s < end; silent classes are left out."""
    board: dict[str, dict[str, LoadBoardEntry]] = {}
    for key in sorted(table.series):
        sums = table.series[key].between(first, end)
        if sums[Sum.ARRIVALS] <= 0:
            continue
        # CPU is reported at once while calls wait for their trace: newer values are welcome.
        use = cpu.recent(key.service, key.cluster, first, end + (end - first))
        good, stamped = max(sums[Sum.OK], 1e-12), max(sums[Sum.STAMPED], 1e-12)
        board.setdefault(key.cluster, {})[key.class_id] = LoadBoardEntry(
            at=float(end),
            rps=float(sums[Sum.ARRIVALS] / (end - first)),
            failed_share=float(sums[Sum.FAILED] / sums[Sum.ARRIVALS]),
            duration_ms=float(sums[Sum.DURATION_OK] / good),
            exclusive_ms=float(sums[Sum.EXCLUSIVE] / good),
            in_flight=float(sums[Sum.IN_FLIGHT] / stamped),
            cpu=use,
        )
    return board
