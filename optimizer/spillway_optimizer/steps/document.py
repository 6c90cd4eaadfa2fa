"""One document of the command `steps`: a time, and the model as it is observed then."""

import math
from typing import Any

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.sources import model_file
from spillway_optimizer.sources.errors import InputError

_KEYS = ("at_ms", "model")


def read(line: str, name: str, after: float) -> tuple[float, Telemetry]:
    """Returns the time in Unix seconds, which is above `after`, and the telemetry.

    Errors refer to the document as `name`. Raises InputError with the keys that are wrong.
    """
    document = model_file.decoded(line, name)
    if not isinstance(document, dict) or set(document) != set(_KEYS):
        given = ", ".join(sorted(document)) if isinstance(document, dict) else type(document).__name__
        raise InputError(f"{name}: {given or 'no key'}; must be an object with the keys {', '.join(_KEYS)}")
    at = _seconds(document["at_ms"])
    if at is None or at <= after:
        least = f"a number above {after * 1000:.0f}, the time of the document before" if after else "above 0"
        raise InputError(f"{name}: at_ms: {document['at_ms']!r}; must be {least}")
    return at, model_file.of_document(document["model"], f"{name}: model")


def _seconds(ms: Any) -> float | None:
    is_number = isinstance(ms, int | float) and not isinstance(ms, bool) and math.isfinite(ms)
    return ms / 1000 if is_number else None
