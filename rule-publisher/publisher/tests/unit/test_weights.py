"""The arithmetic of steps: sums stay 10 000, and no step goes past the proposal."""

from hypothesis import given
from hypothesis import strategies as st
from spillway_publisher.rules import weights

CLUSTERS = ["a", "b", "c", "d", "e"]


@st.composite
def splits(draw):
    """Weights over some clusters that sum to 10 000, including zero weights."""
    clusters = draw(st.lists(st.sampled_from(CLUSTERS), min_size=1, unique=True))
    cuts = sorted(
        draw(st.lists(st.integers(0, 10_000), min_size=len(clusters) - 1, max_size=len(clusters) - 1))
    )
    edges = [0, *cuts, 10_000]
    return {c: edges[i + 1] - edges[i] for i, c in enumerate(clusters)}


@given(splits(), splits(), st.integers(1, 10_000))
def test_clamp_stays_between_and_sums(base, target, maximum):
    """A clamped step sums to 10 000, moves at most the maximum, and lies between the two."""
    result = weights.clamp(base, target, maximum)
    assert sum(result.values()) == 10_000
    assert weights.shift(base, result) == min(maximum, weights.shift(base, target))
    for c in CLUSTERS:
        low, high = sorted((base.get(c, 0), target.get(c, 0)))
        assert low <= result.get(c, 0) <= high


@given(splits(), splits(), st.integers(100, 10_000))
def test_clamped_steps_arrive(base, target, maximum):
    """Repeating the step reaches the proposal exactly, in as many steps as the distance needs."""
    steps = -(-weights.shift(base, target) // maximum)
    for _ in range(steps):
        base = weights.clamp(base, target, maximum)
    assert {c: w for c, w in base.items() if w} == {c: w for c, w in target.items() if w}


@given(splits(), st.sampled_from(CLUSTERS), st.integers(0, 10_000))
def test_raise_local_keeps_the_sum_and_takes_from_others_only(split, local, minimum):
    """The local share reaches its minimum, the others only shrink, and the sum stays."""
    result = weights.raise_local(split, local, minimum)
    assert sum(result.values()) == 10_000
    assert result.get(local, 0) == max(minimum, split.get(local, 0))
    assert all(result[c] <= split[c] for c in split if c != local)
