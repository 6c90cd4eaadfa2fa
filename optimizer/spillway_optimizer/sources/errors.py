"""Errors of `spillway` commands that only read, with their exit codes."""

import difflib
import re
from collections.abc import Iterable

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


def unknown(key: str, value: str, known: Iterable[str]) -> str:
    """Returns a message about an unknown name.

    It lists the closest known names, then all of them, or the first 20 and the number of the rest.
    """
    names = sorted(known)
    close = difflib.get_close_matches(value, names, n=3, cutoff=0.5)
    close += [name for name in names if value in name and name not in close][:3]
    hint = f"; closest: {', '.join(close[:3])}" if close else ""
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f"{key}: unknown {value!r}{hint}; known: {shown or 'none'}"
