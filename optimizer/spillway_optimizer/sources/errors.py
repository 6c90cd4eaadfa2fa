"""Why a command of `spillway` that only looks cannot answer, and its exit code."""

import re

from spillway_optimizer import OptimizerError

EXIT_INPUT, EXIT_SETTING, EXIT_UNAVAILABLE = 1, 64, 69  # EX_USAGE, EX_UNAVAILABLE of sysexits.h


class CommandError(OptimizerError):
    """One line for everything that is wrong, each naming file or argument, key and value."""

    exit_code = EXIT_INPUT


class InputError(CommandError):
    """What was given cannot be used."""


class SettingError(CommandError):
    """Names the variable and what is wrong with what it says."""

    exit_code = EXIT_SETTING


class UnavailableError(CommandError):
    """What is needed does not answer."""

    exit_code = EXIT_UNAVAILABLE


# Where a joined text goes on with another problem: a key and a colon, not more words on the same one.
_NEXT = re.compile(r"; (?=(?!closest|known|allowed)\w+(?:\.\w+|\[[^\]]*\])*: )")


def in_lines(about: str, error: Exception | str) -> str:
    """The problems that an error of this package joins to one text, a line each."""
    return "\n".join(f"{about}: {problem}" for problem in _NEXT.split(str(error)))
