"""The files of docs/sql: their parameters, and the errors for wrong arguments."""

import re
from pathlib import Path

import pytest
from spillway_lab.__main__ import main
from spillway_lab.commands.sql import FOLDER
from spillway_lab.report import questions
from spillway_lab.scenario.errors import InvalidInput

TEXT = """-- How much? Ask
-- often.
-- Parameters: who, since.
SELECT 1 WHERE who = {who:String} AND at > {since:DateTime64(6, 'UTC')} AND {who:String} != '{x}'
"""


@pytest.fixture
def question(tmp_path: Path) -> questions.Question:
    (tmp_path / "much.sql").write_text(TEXT)
    return questions.read(tmp_path / "much.sql")


def test_a_file_tells_what_it_asks_and_takes(question):
    """The comment is the description, its first sentence the title. {name:Type} is a parameter."""
    assert (question.name, question.title) == ("much", "How much?")
    assert question.parameters == {"who": "String", "since": "DateTime64(6, 'UTC')"}


def test_parameters_become_literals_of_their_type(question):
    """Quotes and backslashes in a value stay inside its literal.

    Braces that are not a parameter stay unchanged.
    """
    sql = questions.bound(question, {"who": "o'\\", "since": 5})
    assert "who = CAST('o\\'\\\\' AS String)" in sql
    assert "at > CAST('5' AS DateTime64(6, 'UTC')) AND" in sql and sql.endswith("!= '{x}'")


def test_missing_and_unknown_parameters_are_named_together(question):
    """One error lists all problems, with the parameters' types and what is allowed."""
    with pytest.raises(InvalidInput) as error:
        questions.bound(question, {"who": "a", "when": 1})
    assert error.value.problems == [
        "much: parameter since (DateTime64(6, 'UTC')): missing",
        "much: parameter when: unknown; it takes: who, since",
    ]


@pytest.mark.parametrize("name", sorted(questions.read_all(FOLDER)))
def test_every_question_of_the_project_says_what_it_takes(name):
    """The comment ends in a sentence that lists exactly the parameters of its statement."""
    question = questions.read_all(FOLDER)[name]
    listed = re.sub(r"\([^)]*\)", "", question.about.partition("Parameters: ")[2]).partition(".")[0]
    assert set(question.parameters) == {name.strip() for name in listed.split(",") if listed}
    assert question.title.endswith(("?", "."))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sql", "nothing"], "question 'nothing': unknown; there are: acts, audits, "),
        (["sql", "freshness", "--param", "x"], "--param x: must be NAME=VALUE"),
        (["sql", "freshness"], "SPILLWAY_CLICKHOUSE_URL: missing"),
        # start and end default to the last hour
        (["sql", "gains"], "SPILLWAY_CLICKHOUSE_URL: missing"),
        (["sql", "tail_latency"], "tail_latency: parameter class (String): missing"),
    ],
)
def test_wrong_usage_ends_with_64(arguments, expected, capsys, monkeypatch):
    """One line names what is wrong and what is allowed."""
    monkeypatch.delenv("SPILLWAY_CLICKHOUSE_URL", raising=False)
    assert main(arguments) == 64
    assert expected in capsys.readouterr().err
