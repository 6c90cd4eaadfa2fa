"""How often the pipeline acts in a run that `time_scale` stretches.

The periods of collectors and streams jobs are stretched as the requests are. A second of the
scenario then has as many messages, inserts and boards as in production, and a machine that is k
times as slow can run them too. Windows, and all other processes, keep their seconds.
"""

import yaml

# Program of streams -> period -> its default and its largest value, in seconds.
PERIODS = {
    "exclusive": {"flush_period_s": (0.2, 10), "arrivals_period_s": (0.2, 10), "insert_period_s": (2.0, 60)},
    "curves": {"board_period_s": (0.25, 60), "store_period_s": (1.0, 60), "fit_period_s": (5.0, 600)},
    "graph": {"board_period_s": (0.25, 60), "store_period_s": (1.0, 60), "graph_period_s": (5.0, 600)},
}
FROZEN_S = 600  # longest time between two fits that streams allow, and so the longest frozen round
_FLUSH_MS = 200  # default of collectors/config.yaml


def settings(k: float, frozen_curves: bool = False) -> str:
    """Returns the settings file of streams for a run that is stretched k times.

    With `frozen_curves`, the next fit of curves comes as late as streams allow.
    """
    found = {
        program: {name: min(default * k, most) for name, (default, most) in periods.items()}
        for program, periods in PERIODS.items()
    }
    if frozen_curves:
        found["curves"]["fit_period_s"] = FROZEN_S
    return yaml.safe_dump(found)


def flush_timeout(k: float) -> str:
    """Returns how long a small batch waits in a collector, as a value of SPILLWAY_FLUSH_TIMEOUT."""
    return f"{_FLUSH_MS * k:.0f}ms"
