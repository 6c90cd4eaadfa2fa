"""The command `sql`: runs a query of docs/sql against the ClickHouse at SPILLWAY_CLICKHOUSE_URL."""

import argparse
import os
import time

from clickhouse_driver import Client
from clickhouse_driver.errors import Error

from spillway_lab.report import questions, tables
from spillway_lab.scenario.errors import InvalidInput, LabError
from spillway_lab.stack.stack import ROOT

FOLDER = ROOT / "docs" / "sql"
URL = "SPILLWAY_CLICKHOUSE_URL"
HELP = "asks a question of docs/sql; without a name, lists them"
_LAST_S = 3600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question", nargs="?", help="file in docs/sql, without .sql")
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="times are UTC, or Unix seconds; start and end are the last hour's by default",
    )
    parser.add_argument(
        "--about", action="store_true", help="what it asks, its columns and parameters, then ends"
    )


def run(arguments: argparse.Namespace) -> int:
    known = questions.read_all(FOLDER)
    if arguments.question is None:
        print(tables.text(["question", "asks"], [(name, one.title) for name, one in known.items()]))
        return 0
    if arguments.question not in known:
        raise InvalidInput([f"question {arguments.question!r}: unknown; there are: {', '.join(known)}"])
    if arguments.about:
        print(known[arguments.question].about)
        return 0
    question = known[arguments.question]
    print(_answer(question, _last_hour(question, time.time()) | _values(arguments.param)))
    return 0


def _last_hour(question: questions.Question, now: float) -> dict[str, str]:
    """Default values of the parameters `start` and `end`, for those that the question takes."""
    hour = {"start": f"{now - _LAST_S:.3f}", "end": f"{now:.3f}"}
    return {name: value for name, value in hour.items() if name in question.parameters}


def _values(given: list[str]) -> dict[str, str]:
    if wrong := [text for text in given if "=" not in text]:
        raise InvalidInput([f"--param {text}: must be NAME=VALUE" for text in wrong])
    return dict(text.split("=", 1) for text in given)


def _answer(question: questions.Question, values: dict[str, str]) -> str:
    sql = questions.bound(question, values)
    if not os.environ.get(URL):
        raise InvalidInput([f"{URL}: missing; must be clickhouse://user:password@host:port/database"])
    try:
        with Client.from_url(os.environ[URL]) as client:
            rows, columns = client.execute(sql, with_column_types=True)
    except (Error, OSError) as error:
        raise LabError(
            f"{question.name}: {' '.join(str(error).partition('Stack trace')[0].split())}"
        ) from None
    return tables.text([name for name, _ in columns], rows)
