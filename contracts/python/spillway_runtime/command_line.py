"""Command lines by Click: the exit code of a command, and options that depend on each other."""

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from spillway_runtime import exit_codes

Callback = Callable[..., Any]  # the function that a command calls
# A path that is not checked. The program's own error says why a file cannot be read.
PATH = click.Path(path_type=Path, readable=False)


def run(
    command: click.Command,
    name: str,
    arguments: Sequence[str] | None = None,
    wrong_argument: int = exit_codes.ARGUMENT,
) -> int:
    """Runs a command and returns its exit code, 0 if it returns None.

    `name`: of the program, for help. A wrong argument is reported on stderr and ends with the code
    `wrong_argument`. All other exceptions pass, also those that Click's own `main` would hide.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with command.make_context(name, given, help_option_names=["-h", "--help"]) as context:
            return command.invoke(context) or 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        # Click does not name the known commands. Its errors about options are subclasses.
        if type(error) is click.UsageError and error.ctx and isinstance(error.ctx.command, click.Group):
            error.message += f" Known: {', '.join(error.ctx.command.list_commands(error.ctx))}."
        error.show()
        return wrong_argument


def exclusive(*names: str, required: bool = False) -> Callable[[Callback], Callback]:
    """Makes a command accept at most one of these parameters, or exactly one if `required`."""

    def decorate(command: Callback) -> Callback:
        @functools.wraps(command)
        def checked(**values: Any) -> Any:
            context = click.get_current_context()
            flags = {p.name: p.opts[0] for p in context.command.params if p.name in names}
            given = [
                flag
                for name, flag in flags.items()
                if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            ]
            if len(given) > 1 or (required and not given):
                allowed = "exactly" if required else "at most"
                was = f"; given: {', '.join(given)}" if given else ""
                raise click.UsageError(f"allowed: {allowed} one of {', '.join(flags.values())}{was}")
            return command(**values)

        return checked

    return decorate


class Command(click.Command):
    """A command that refuses an option where a value is missing: --reason --to=5."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises BadOptionUsage where Click would take the next option for the value."""
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        known = {flag for option in options for flag in (*option.opts, *option.secondary_opts)}
        valued = {flag for option in options if not (option.is_flag or option.count) for flag in option.opts}
        for flag, following in itertools.pairwise(itertools.takewhile(lambda text: text != "--", args)):
            if flag in valued and following.partition("=")[0] in known:
                problem = f"Option {flag!r} requires an argument, not the option {following!r}."
                raise click.BadOptionUsage(flag, problem, ctx)
        return super().parse_args(ctx, args)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


class SpreadingCommand(Command):
    """A command whose options of type `Spread` take all arguments up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeats the option before each value: --traces a b -> --traces a --traces b."""
        spread = {flag for option in self.params if isinstance(option, Spread) for flag in option.opts}
        made: list[str] = []
        latest = ""
        for n, text in enumerate(args):
            if text == "--":
                made += args[n:]
                break
            if text.startswith("-"):
                latest = text
            elif latest in spread and made[-1] != latest:
                made.append(latest)
            made.append(text)
        return super().parse_args(ctx, made)


class Spread(click.Option):
    """An option of a SpreadingCommand with one or more values; goes with `multiple=True`."""
