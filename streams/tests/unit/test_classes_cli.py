"""The operator's commands about classes: what they reject, without a server."""

import pytest
from spillway_runtime import command_line
from spillway_streams.commands import classes as cli

PIN = ("pin", "--service", "s", "--reason", "r")


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs `classes ...`. Returns (exit status, stderr)."""
    monkeypatch.setenv("SPILLWAY_CLICKHOUSE_URL", "clickhouse://nobody@127.0.0.1:1/none")

    def _run(*arguments: str) -> tuple[int, str]:
        return command_line.run(cli.command, "classes", arguments), capsys.readouterr().err

    return _run


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((*PIN, "/a/*", "--becomes", "/a/b"), "does not match every path"),
        ((*PIN, "/a/b", "--becomes", "/a"), "does not match every path"),
        ((*PIN, "a", "--keep"), "must begin with '/'"),
        ((*PIN, "/a/*", "--keep"), "segment '*'"),
        ((*PIN, "/a b", "--other"), "segment 'a b'"),
        ((*PIN, "--method", "get", "/a", "--keep"), "expected 'service METHOD"),
        (("pin", "--service", "s s", "--reason", "r", "/a", "--keep"), "expected 'service METHOD"),
        (("explain", "nonsense"), "expected 'service METHOD"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(run, arguments, reason):
    status, text = run(*arguments)
    assert status == 64 and reason in text


def test_a_store_that_is_away_is_named_without_its_password(run, monkeypatch):
    monkeypatch.setenv("SPILLWAY_CLICKHOUSE_URL", "clickhouse://u:secret@127.0.0.1:1/none")
    status, text = run("list")
    assert status == 1 and "127.0.0.1:1" in text and "secret" not in text


def test_the_store_has_no_default(run, monkeypatch, capsys):
    monkeypatch.delenv("SPILLWAY_CLICKHOUSE_URL")
    with pytest.raises(SystemExit) as exit_:
        run("list")
    assert exit_.value.code == 64 and capsys.readouterr().err == "SPILLWAY_CLICKHOUSE_URL: is not set\n"
