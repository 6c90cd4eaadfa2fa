"""The optimizer's input that a replay makes of the tables."""

import math

from spillway_lab.experiments import replay


class _Client:
    def execute(self, statement: str, **_: object) -> tuple:
        assert "FROM curves" in statement
        return [(3.0, "shop GET /", math.nan)], [
            ("a_ms", "Float64"),
            ("class", "String"),
            ("sd_a_ms", "Float64"),
        ]


def test_what_a_table_does_not_know_is_none_and_not_nan():
    """The rows become a JSON document. Unknown numbers are NaN in ClickHouse, and JSON has none."""
    [row] = replay._newest(_Client(), "curves", "class", "fitted_at")
    assert row == {"a_ms": 3.0, "class": "shop GET /", "sd_a_ms": None}
