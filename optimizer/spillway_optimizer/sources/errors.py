"""Errors of `spillway` commands that only read, with their exit codes."""

import re

from spillway_runtime import exit_codes

from spillway_optimizer import OptimizerError


class CommandError(OptimizerError):
    """An error with one line per problem. Each line names file or argument, key and value."""

    exit_code = exit_codes.FAILED


class InputError(CommandError):
    """The given input cannot be used."""


class SettingError(CommandError):
    """An environment variable has a wrong value. The message names it and the problem."""

    exit_code = exit_codes.USAGE


class UnavailableError(CommandError):
    """A required server or program is not available."""

    exit_code = exit_codes.UNAVAILABLE


# Where the next problem begins in a joined text: before a key and a colon, not before more words
# about the same problem.
_NEXT = re.compile(r"; (?=(?!closest|known|allowed)\w+(?:\.\w+|\[[^\]]*\])*: )")


def in_lines(about: str, error: Exception | str) -> str:
    """Splits the problems that an error of this package joins into one text, one per line."""
    return "\n".join(f"{about}: {problem}" for problem in _NEXT.split(str(error)))
