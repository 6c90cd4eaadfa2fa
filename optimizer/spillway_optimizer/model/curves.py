"""A latency curve for each class of an application: fitted, or constant for small loads. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from spillway_optimizer.inputs.refusals import Found, Kind, Refusal, Scope
from spillway_optimizer.inputs.telemetry import CurveRow, Telemetry
from spillway_optimizer.problem.problem import Curve

# Largest share of its service's load that a class without a curve may have.
SMALL_SHARE = 0.05


def newest(telemetry: Telemetry) -> Mapping[str, CurveRow]:
    """Returns the newest curve row of each class."""
    return {row.class_id: row for row in sorted(telemetry.curves, key=lambda row: row.fitted_at)}


def curves(
    telemetry: Telemetry,
    latest: Mapping[str, CurveRow],
    classes: Mapping[str, str],
    now: float,
    board_max_age_s: float,
    model_max_age_s: float,
) -> Found[Mapping[str, Curve]]:
    """Returns a curve for each class.

    `latest` is the result of `newest`. `classes` maps class ids to services. A class without a
    fresh row gets a constant curve if it has little of its service's load. Otherwise it is a
    refusal.
    """
    found: dict[str, Curve] = {}
    notes, refusals = [], []
    for class_id, service in classes.items():
        row = latest.get(class_id)
        if row is not None and now - row.fitted_at <= model_max_age_s:
            found[class_id] = _curve(row)
            continue
        state = "none" if row is None else f"{now - row.fitted_at:.0f} s old"
        share, mean_ms = _observed(telemetry, class_id, service, now, board_max_age_s)
        if mean_ms is None or share > SMALL_SHARE:
            text = f"curves: {class_id!r}: {state}; it has {share:.0%} of the load of {service!r}"
            refusals.append(Refusal(Scope(Kind.CLASS, class_id), text, no_model=True))
        else:
            notes.append(f"curves: {class_id!r}: {state}; assumed to be constant at {mean_ms:.1f} ms")
            found[class_id] = Curve(0.0, mean_ms)
    return Found(found, tuple(notes), tuple(refusals))


def _curve(row: CurveRow) -> Curve:
    """Returns the curve of a row, within the bounds of a curve.

    A spread that cannot be is unknown.
    """
    a_ms = max(row.a_ms, 0.0)
    curve = Curve(a_ms, max(row.b_ms, -a_ms), row.norm_weight)
    if row.sd_a_ms is None or row.sd_b_ms is None or row.sd_a_ms < 0 or row.sd_a_ms + row.sd_b_ms < 0:
        return curve
    return replace(curve, sd_a_ms=row.sd_a_ms, sd_b_ms=row.sd_b_ms)


def at_idle(curve: Curve) -> Curve:
    """Returns the curve that has the mean and the spread of an idle service at every load."""
    flat = Curve(0.0, curve.a_ms + curve.b_ms, curve.norm_weight)
    if curve.sd_a_ms is None or curve.sd_b_ms is None:
        return flat
    return replace(flat, sd_a_ms=0.0, sd_b_ms=curve.sd_a_ms + curve.sd_b_ms)


def _observed(
    telemetry: Telemetry, class_id: str, service: str, now: float, max_age_s: float
) -> tuple[float, float | None]:
    """Returns the class's share of its service's load, and its mean exclusive time in ms.

    Both come from the load boards. The time is None if no board has the class.
    """
    boards = telemetry.load.values()
    entries = [(k, e) for board in boards for k, e in board.items() if now - e.at <= max_age_s]
    class_entries = [e for k, e in entries if k == class_id]
    total = sum(e.rps for k, e in entries if k.split(" ", 1)[0] == service)
    rps = sum(e.rps for e in class_entries)
    if rps <= 0:
        return 0.0, class_entries[0].exclusive_ms if class_entries else None
    return rps / total, sum(e.rps * e.exclusive_ms for e in class_entries) / rps
