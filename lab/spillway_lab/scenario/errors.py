"""What goes wrong in the lab.

LabError              everything below; the message is for people, one problem per line
├── InvalidInput      a file or setting is wrong: names the file, the key, the value, what is allowed
└── LoadError         the load generator did not do what it was asked
"""

from pathlib import Path

from pydantic import ValidationError


class LabError(Exception):
    """A lab command cannot go on."""


class InvalidInput(LabError):
    """A file or a setting is wrong; `problems` has one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class LoadError(LabError):
    """The load generator failed, or sent less than it was asked to."""


def from_validation(source: Path | str, error: ValidationError) -> InvalidInput:
    """One problem per wrong key: `file: key: what is allowed; got value`."""
    return InvalidInput([f"{source}: {_one(item)}" for item in error.errors()])


def _one(item: dict) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "(document)"
    if item["type"] == "extra_forbidden":
        return f"{key}: unknown key; got {item['input']!r}"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error":  # our own sentences name key and value already
        return message if key == "(document)" else f"{key}: {message}"
    return f"{key}: {message}; got {item['input']!r}"
