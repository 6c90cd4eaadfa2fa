"""Errors of the lab.

LabError              base class; its message is for people, with one problem per line
├── InvalidInput      a file or setting is wrong; names the file, key, value and what is allowed
└── LoadError         the load generator failed or sent less than it was asked to
"""

from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails


class LabError(Exception):
    """A lab command cannot continue."""


class InvalidInput(LabError):
    """A file or a setting is wrong. `problems` holds one sentence for each mistake."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class LoadError(LabError):
    """The load generator failed, or sent less than it was asked to."""


def from_validation(source: Path | str, error: ValidationError) -> InvalidInput:
    """Returns one problem per wrong key: `file: key: what is allowed; got value`."""
    return InvalidInput([f"{source}: {_problem(item)}" for item in error.errors()])


def _problem(item: ErrorDetails) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "(document)"
    if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key}: unknown key; got {item['input']!r}"
    message = item["msg"].removeprefix("Value error, ")
    # messages of our own validators already name the key and the value
    if item["type"] == "value_error":
        return message if key == "(document)" else f"{key}: {message}"
    return f"{key}: {message}; got {item['input']!r}"
