"""Writing rows to ClickHouse: rows wait for a server that is away, but refused rows are dropped."""

import pytest
from clickhouse_driver import errors
from spillway_optimizer.clients.history import History


class _Server:
    def __init__(self, answers):
        self.answers, self.written = answers, []

    def execute(self, sql, rows):
        answer = self.answers.get(rows[0]["reason"])
        if answer is not None:
            raise answer
        self.written.append(rows[0]["reason"])


def _history(**answers):
    history = History("clickhouse://u:p@nowhere:1/d")
    history._client = _Server(answers)
    for reason in ("first", "second", "third"):
        history.add("solves", {"reason": reason})
    return history


@pytest.mark.parametrize(
    "answer",
    [
        errors.ServerException("Unknown column", errors.ErrorCodes.NO_SUCH_COLUMN_IN_TABLE),
        errors.ServerException("No table", errors.ErrorCodes.UNKNOWN_TABLE),
        errors.TypeMismatchError("not a float"),
    ],
)
def test_a_row_that_is_refused_holds_nobody_up(answer):
    """It is dropped, counted and reported with its table. Later rows are written."""
    history = _history(first=answer)
    (refused,) = history.flush()
    assert refused.startswith("solves: Code: ") and history.lost == 1
    assert history._client.written == ["second", "third"] and history.flush() == []


@pytest.mark.parametrize(
    "answer",
    [
        errors.NetworkError("refused"),
        EOFError(),
        errors.ServerException("Too many parts", 252),
        errors.ServerException("Wrong password", 516),
    ],
)
def test_a_server_that_is_away_or_busy_is_waited_for(answer):
    """Nothing is lost: rows that were not written stay in order."""
    history = _history(second=answer)
    with pytest.raises(type(answer)):
        history.flush()
    history._client.answers = {}
    assert history.flush() == [] and history.lost == 0
    assert history._client.written == ["first", "second", "third"]
