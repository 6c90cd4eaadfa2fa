"""What "just enough" means, as numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Bounds of the decisions. Shares and effects are 0..1, times seconds."""

    classes_per_service: int = 200
    confirm: int = 3  # decisions in a row before a merge or its end
    min_samples: int = 300  # good calls of a class before it is compared
    alpha: float = 0.01  # of all comparisons of one service's decision together (Holm), where it is said that classes differ
    # Alike: the upper confidence bounds of all three stay below these, however many samples there are.
    max_distance: float = 0.15  # between the distribution functions of exclusive time at equal load
    max_ratio: float = 1.25  # between the means of exclusive time at equal load
    max_child_difference: float = 0.1  # calls per request, of each callee class
    # A position holds words: this many different ones, and this share of requests met a word seen once
    # (Good and Turing's estimate of what is still unseen).
    learn_words: int = 30
    learn_samples: int = 1000
    learn_unseen: float = 0.02
    heavy_share: float = 0.01  # a word with this share of a position's requests is a class of its own
    heavy_samples: int = 50
    max_heavy: int = 20
    # Two modes (of log-normal times at equal load) are clear when all four hold.
    min_separation: float = 2.0  # Ashman's D
    min_bic_gain: float = 10.0
    min_mode_share: float = 0.05
    max_valley: float = 0.7  # density between the modes over the lower one
    min_explained: float = 0.1  # share of the modes' entropy that makes an attribute worth naming
    lease: float = 3600.0  # how long the rest of a service stays in /other before it is looked at again
    look: float = 30.0  # how long it is then looked at before classes are bounded anew
    drain: float = 120.0  # how long a merged class that ended goes to /other, until Envoys forget its route
    retire_after: float = 86_400.0  # a learned class without requests that long ends
