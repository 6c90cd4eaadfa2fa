"""The numbers that define how many classes are just enough."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Bounds of the decisions. Shares and effects are between 0 and 1, times are in seconds."""

    classes_per_service: int = 200
    confirm: int = 3  # decisions in a row before a merge begins or ends
    min_samples: int = 300  # calls of a class that did not fail, before it is compared
    # Of all comparisons in one decision about a service together (Holm), for stating a difference.
    alpha: float = 0.01
    # Alike: the upper confidence bounds of all three are below these, however many samples exist.
    max_distance: float = 0.15  # between the distribution functions of exclusive time at equal load
    max_ratio: float = 1.25  # between the means of exclusive time at equal load
    max_child_difference: float = 0.1  # calls per request, for each callee class
    # A position holds words if it has so many different ones, and if so large a share of requests
    # met a word seen once (Good and Turing's estimate of what is still unseen).
    learn_words: int = 30
    learn_samples: int = 1000
    learn_unseen: float = 0.02
    heavy_share: float = 0.01  # a word with this share of a position's requests is its own class
    heavy_samples: int = 50
    max_heavy: int = 20
    # Two modes (of log-normal times at equal load) are clear when all four hold.
    min_separation: float = 2.0  # Ashman's D
    min_bic_gain: float = 10.0
    min_mode_share: float = 0.05
    max_valley: float = 0.7  # density between the modes over that of the lower mode
    min_explained: float = 0.1  # share of the modes' entropy from which on an attribute is named
    lease: float = 3600.0  # how long the rest of a service is /other before it is observed again
    look: float = 30.0  # how long it is then observed before classes are bounded again
    drain: float = 120.0  # how long an ended merged class is /other, until Envoys drop its route
    retire_after: float = 86_400.0  # a learned class without requests for so long ends
