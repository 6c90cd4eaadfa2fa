"""Sampling thresholds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_streams.sampling import adjusted_count, tracestate


@pytest.mark.parametrize(
    ("state", "count"),
    [
        ("", 1.0),
        ("vendor=x", 1.0),
        ("ot=th:0", 1.0),
        ("ot=th:8", 2.0),
        ("ot=th:c", 4.0),
        ("vendor=x, ot=rv:abc;th:fd70a4", pytest.approx(100, rel=1e-3)),
        ("ot=th:", None),
        ("ot=th:XYZ", None),
        ("ot=th:000000000000000", None),
    ],
)
def test_thresholds_of_the_specification(state, count):
    """Trailing zeros are dropped in the text; broken thresholds are told apart from absent ones."""
    assert adjusted_count(state) == count


@given(st.floats(1e-6, 1.0))
def test_a_probability_survives_the_way_there_and_back(probability):
    """What the converter writes, the decoder reads."""
    assert adjusted_count(tracestate(probability)) == pytest.approx(1 / probability, rel=1e-6)
