"""A latency curve for every class of an application: fitted, or constant where that cannot matter. Pure."""

from collections.abc import Mapping

from spillway_optimizer.inputs.found import Found, Kind, Refusal, Scope
from spillway_optimizer.inputs.telemetry import CurveRow, Telemetry
from spillway_optimizer.problem.problem import Curve

# Share of its service's load that a class without a curve may have.
_MOST_WITHOUT_CURVE = 0.05


def newest(telemetry: Telemetry) -> Mapping[str, CurveRow]:
    """By class."""
    return {row.class_id: row for row in sorted(telemetry.curves, key=lambda row: row.fitted_at)}


def curves(
    telemetry: Telemetry,
    latest: Mapping[str, CurveRow],
    classes: Mapping[str, str],
    now: float,
    board_max_age_s: float,
    model_max_age_s: float,
) -> Found[Mapping[str, Curve]]:
    """`latest` as `newest` gives it, `classes` by id with their service."""
    found: dict[str, Curve] = {}
    notes, refusals = [], []
    for class_id, service in classes.items():
        row = latest.get(class_id)
        if row is not None and now - row.fitted_at <= model_max_age_s:
            a_ms = max(row.a_ms, 0.0)
            found[class_id] = Curve(a_ms, max(row.b_ms, -a_ms), row.norm_weight)
            continue
        state = "none" if row is None else f"{now - row.fitted_at:.0f} s old"
        share, own_ms = _observed(telemetry, class_id, service, now, board_max_age_s)
        if own_ms is None or share > _MOST_WITHOUT_CURVE:
            text = f"curves: {class_id!r}: {state}; it has {share:.0%} of the load of {service!r}"
            refusals.append(Refusal(Scope(Kind.CLASS, class_id), text))
        else:
            notes.append(f"curves: {class_id!r}: {state}; taken as constant {own_ms:.1f} ms")
            found[class_id] = Curve(0.0, own_ms)
    return Found(found, tuple(notes), tuple(refusals))


def _observed(
    telemetry: Telemetry, class_id: str, service: str, now: float, max_age_s: float
) -> tuple[float, float | None]:
    """Share of its service's load and mean own time, from the load boards."""
    boards = telemetry.load.values()
    entries = [(k, e) for board in boards for k, e in board.items() if now - e.at <= max_age_s]
    own = [e for k, e in entries if k == class_id]
    total = sum(e.rps for k, e in entries if k.split(" ", 1)[0] == service)
    rps = sum(e.rps for e in own)
    if rps <= 0:
        return 0.0, own[0].exclusive_ms if own else None
    return rps / total, sum(e.rps * e.exclusive_ms for e in own) / rps
