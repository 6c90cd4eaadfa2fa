"""Over how long a time a load has had its present rate. Pure.

The mean over a window that contains a change is neither the rate before nor the one after it. A
rate is therefore taken from the longest recent time in which it has not changed. Requests of
independent users are a Poisson process, and a likelihood ratio decides: of one rate for the last
part of the window and another one for the rest, against one rate for all of it. Where counts show
no change, the whole window counts, so a steady load is known as precisely as the window allows.
"""

import numpy as np

from spillway_streams.batches.arrays import Floats

# Ages at which a change is looked for, in seconds, for a window of any length above them.
AGES_S = (0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
# In nats. Counts of a steady Poisson load exceed it about once an hour (test_changes.py).
LEAST_GAIN = 9.5
# In nats. The least gain at a change that is known already. Without it, the counts of the next
# tenths of a second would hide every sixth change again, by chance.
KEPT_GAIN = 4.0
# A known change is at these ages, as a factor of its own and in seconds: ages are few.
NEAR, NEAR_S = 1.5, 0.1
# In nats. Ages with so little less gain explain the counts as well. The oldest of them is taken:
# the youngest requests alone are where chance was largest, and would show a step as too large.
AS_GOOD = 1.5
# Relative to the larger rate. Of many requests, less is significant, but no reason to know less.
LEAST_CHANGE = 0.1


def ages_s(window_s: float) -> Floats:
    """Returns the ages to count requests at: below the window, the window, and twice the window."""
    return np.array([*(age for age in AGES_S if age < window_s), window_s, 2 * window_s])


def unchanged_s(counts: Floats, ages: Floats, known: Floats) -> Floats:
    """Returns for how long each series has had its present rate, in seconds, shape (n,).

    `ages`: shape (k,), ascending; the last one is the whole window. `counts`: requests of the last
    `ages` seconds, shape (k, n). `known`: how old the change is that was found before, NaN without
    one, shape (n,).
    """
    age, window = ages[:-1, None], ages[-1]
    recent, whole = counts[:-1], counts[-1]
    before = np.maximum(whole - recent, 0.0)
    gain = _fit(recent, age) + _fit(before, window - age) - _fit(whole, window)
    now, then = recent / age, before / (window - age)
    gain = np.where(np.abs(now - then) > LEAST_CHANGE * np.maximum(now, then), gain, 0.0)
    most = gain.max(axis=0)
    is_known = (age >= known / NEAR - NEAR_S) & (age <= known * NEAR + NEAR_S)
    has_changed = (gain > np.where(is_known, KEPT_GAIN, LEAST_GAIN)).any(axis=0)
    oldest = len(gain) - 1 - (gain >= most - AS_GOOD)[::-1].argmax(axis=0)
    found: Floats = np.where(has_changed, ages[oldest], window)
    return found


def _fit(counts: Floats, seconds: Floats | float) -> Floats:
    """Returns the log-likelihood of counts at their own rate, without what all rates share."""
    rates = np.maximum(counts, 1e-300) / seconds
    return np.where(counts > 0, counts * np.log(rates), 0.0)
