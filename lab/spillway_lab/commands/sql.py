"""The command `sql`: runs a query of docs/sql against the ClickHouse at SPILLWAY_CLICKHOUSE_URL."""

import os
import time
from collections.abc import Sequence

import click
from clickhouse_driver import Client
from clickhouse_driver.errors import Error
from spillway_runtime import command_line

from spillway_lab.report import questions, tables
from spillway_lab.scenario.errors import InvalidInput, LabError
from spillway_lab.stack.stack import ROOT

FOLDER = ROOT / "docs" / "sql"
URL = "SPILLWAY_CLICKHOUSE_URL"
_LAST_S = 3600


@click.command("sql", cls=command_line.Command)
@click.argument("name", metavar="[QUESTION]", required=False)
@click.option(
    "--param",
    multiple=True,
    metavar="NAME=VALUE",
    help="Times are UTC, or Unix seconds; start and end are the last hour's by default.",
)
@click.option("--about", is_flag=True, help="What it asks, its columns and parameters, then ends.")
def command(name: str | None, param: tuple[str, ...], about: bool) -> None:
    """Asks a question of docs/sql. Without a name, lists them.

    QUESTION is a file in docs/sql, without .sql.
    """
    known = questions.read_all(FOLDER)
    if name is None:
        print(tables.text(["question", "asks"], [(name, entry.title) for name, entry in known.items()]))
        return
    if name not in known:
        raise InvalidInput([f"question {name!r}: unknown; there are: {', '.join(known)}"])
    question = known[name]
    if about:
        print(question.about)
    else:
        print(_answer(question, _last_hour(question, time.time()) | _values(param)))


def _last_hour(question: questions.Question, now: float) -> dict[str, str]:
    """Default values of the parameters `start` and `end`, for those that the question takes."""
    hour = {"start": f"{now - _LAST_S:.3f}", "end": f"{now:.3f}"}
    return {name: value for name, value in hour.items() if name in question.parameters}


def _values(given: Sequence[str]) -> dict[str, str]:
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
