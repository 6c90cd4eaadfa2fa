"""Command lines: exit codes, options that exclude each other, and options with several values."""

import click
import pytest
from spillway_runtime import command_line, exit_codes


@click.command(cls=command_line.SpreadingCommand)
@click.option("--code", type=int)
@click.option("--traces", cls=command_line.Spread, multiple=True)
@click.option("--to")
@click.option("--before-time")
@click.argument("rest", nargs=-1)
@command_line.exclusive("to", "before_time")
def command(code: int | None, traces: tuple[str, ...], rest: tuple[str, ...], **_: str) -> int | None:
    print(*traces, "|", *rest)
    return code


@click.command
@click.option("--keep", is_flag=True)
@click.option("--other", is_flag=True)
@command_line.exclusive("keep", "other", required=True)
def pin(**_: bool) -> None:
    """Takes exactly one of two options."""


def test_what_a_command_returns_is_the_exit_code(capsys):
    """None is 0, and so is help. A wrong argument has a code of its own and is named on stderr."""
    assert [command_line.run(command, "p", given) for given in ([], ["--code", "7"], ["-h"])] == [0, 7, 0]
    assert command_line.run(command, "p", ["--code", "x"]) == exit_codes.ARGUMENT == 2
    assert command_line.run(command, "p", ["--code", "x"], wrong_argument=64) == 64
    printed = capsys.readouterr()
    assert "Usage: p " in printed.out and "'--code': 'x' is not a valid integer" in printed.err


def test_an_unknown_command_is_answered_with_those_that_are_known(capsys):
    group = click.Group(commands={"pin": pin, "list": command})
    assert command_line.run(group, "p", ["unpin"]) == 2
    assert "No such command 'unpin'. Known: list, pin.\n" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, EOFError, BrokenPipeError])
def test_errors_of_a_command_pass(error):
    """Click's own main would end the program instead, with a code and a text of its own."""

    @click.command
    def failing() -> None:
        raise error

    with pytest.raises(error):
        command_line.run(failing, "p", [])


def test_options_that_exclude_each_other_are_named(capsys):
    """The message says how many are allowed, of which, and what was given."""
    assert command_line.run(command, "p", ["--to", "1", "--before-time", ""]) == 2
    assert "at most one of --to, --before-time; given: --to, --before-time" in capsys.readouterr().err
    assert [command_line.run(pin, "p", given) for given in ([], ["--keep"], ["--keep", "--other"])] == [
        2,
        0,
        2,
    ]
    assert "exactly one of --keep, --other\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("--traces a b --code 0 c", "a b | c"),
        ("c --traces a --code 0 --traces b", "a b | c"),
        ("--traces a b -- c --traces", "a b | c --traces"),
    ],
)
def test_an_option_takes_all_values_up_to_the_next(capsys, given, printed):
    assert command_line.run(command, "p", given.split()) == 0
    assert capsys.readouterr().out == printed + "\n"


@pytest.mark.parametrize("given", ["--to --code=5", "--to --code 5", "--traces --to 1", "--code --traces a"])
def test_the_next_option_is_no_value(capsys, given):
    """An empty variable after --reason must not make the reason of the option behind it."""
    assert command_line.run(command, "p", given.split()) == 2
    flag, following, *_ = given.split()
    printed = capsys.readouterr().err
    assert f"Option '{flag}' requires an argument, not the option '{following}'." in printed


@pytest.mark.parametrize("given", ["--to -5", "--to=--code", "--to x -- --to --code"])
def test_what_is_no_option_is_a_value(given):
    assert command_line.run(command, "p", given.split()) == 0


def test_commands_of_a_group_are_of_the_same_kind(capsys):
    group = command_line.Group()

    @group.command()
    @click.option("--reason")
    @click.option("--to")
    def rollback(**_: str) -> None:
        raise AssertionError("must not run")

    assert command_line.run(group, "p", ["rollback", "--reason", "--to=5"]) == 2
    assert "Option '--reason' requires an argument, not the option '--to=5'." in capsys.readouterr().err


def test_a_path_that_cannot_be_read_is_left_to_the_program(tmp_path):
    """Its error says why, and has a code of its own. Root reads all, so the type is asked."""
    assert not command_line.PATH.readable
    assert command_line.PATH.convert(str(tmp_path / "absent"), None, None) == tmp_path / "absent"
