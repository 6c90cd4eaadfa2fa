"""Settings from environment variables with the prefix SPILLWAY_, read once at start.

A class of settings derives from Settings, and a program reads it with `load`. There are two kinds:

- Connections, paths and identities, which have one name in all boxes, such as SPILLWAY_REDIS_URL.
  Their variable is the field's name.
- What tunes one box. These fields are made with `tuning`, and their variable names the box and the
  unit: SPILLWAY_STREAMS_WINDOW_S. They may also stand in the box's file (box.py).
"""

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, AliasChoices, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from spillway_runtime import exit_codes

PREFIX = "SPILLWAY_"
_BOUNDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}  # types of errors

S = TypeVar("S", bound=BaseSettings)


class Settings(BaseSettings):
    """Base of all settings. An empty variable counts as not set."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="forbid",
        frozen=True,
        env_ignore_empty=True,
        hide_input_in_errors=True,
    )

    def __init__(self, **given: Any) -> None:
        """`given` has names of fields, also of those whose variable has another name."""
        fields = type(self).model_fields
        super().__init__(
            **{
                names(key, fields[key])[0] if key in fields and is_tuning(fields[key]) else key: value
                for key, value in given.items()
            }
        )


def tuning(variable: str, meaning: str, default: Any, *, was: str | None = None, **bounds: Any) -> Any:
    """Returns a field that tunes one box.

    Parameters
    ----------
    variable
        Name of the variable without its prefix: box, what and unit.
    meaning
        Text of the generated tables.
    default
        Value when the variable is not set.
    was
        Former name of the variable, also without prefix, which is accepted for one version.
    bounds
        Arguments of pydantic.Field, such as gt and le.
    """
    choices = [PREFIX + name for name in (variable, was) if name]
    return Field(default, validation_alias=AliasChoices(*choices), description=meaning, **bounds)


def names(field: str, info: FieldInfo) -> list[str]:
    """Returns the variables from which a field is read, the present name first."""
    alias = info.validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [PREFIX + field.upper()]


def is_tuning(info: FieldInfo) -> bool:
    """Returns whether the field tunes one box, as `tuning` makes it."""
    return isinstance(info.validation_alias, AliasChoices)


def _host_port(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError("must be host:port with a port of 1 to 65535")
    return value


# An address as host:port; `address` splits it.
HostPort = Annotated[str, AfterValidator(_host_port)]


def address(listen: str) -> tuple[str, int]:
    """Returns host and port of a HostPort. The brackets of an IPv6 host are removed."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def load(kind: type[S], origin: str | None = None, **given: Any) -> S:
    """Returns the settings. `given` takes precedence over the environment.

    `origin`: the file from which some of them are, for errors.

    If any are wrong, prints one line for each and exits with code 64. A former name of a variable
    is named on stderr.
    """
    for line in former_names(kind, os.environ):
        print(line, file=sys.stderr)
    try:
        return kind(**given)
    except ValidationError as error:
        print("\n".join(problems(error)), file=sys.stderr)
        if origin:
            print(f"some of the settings are from {origin}", file=sys.stderr)
        raise SystemExit(exit_codes.USAGE) from None


def former_names(kind: type[BaseSettings], environment: Mapping[str, str]) -> list[str]:
    """Returns one line for each variable that is set under its former name."""
    lines, given = [], variables(environment)
    for field, info in kind.model_fields.items():
        present, *former = names(field, info)
        for old in former:
            if old in given:
                then = "which is used instead" if present in given else "the next version ignores it"
                lines.append(f"{old}: is now {present}, {then}")
    return lines


def variables(environment: Mapping[str, str]) -> set[str]:
    """Returns the names of the variables that are set and not empty, in capitals.

    pydantic-settings reads a variable whatever the case of its name.
    """
    return {name.upper() for name, value in environment.items() if value}


def problems(error: ValidationError, prefix: str = PREFIX) -> list[str]:
    """Returns one line per wrong setting: its variable, and what is wrong."""
    return [_problem(wrong, prefix) for wrong in error.errors(include_url=False)]


def _problem(wrong: Mapping[str, Any], prefix: str) -> str:
    place = "_".join(str(part) for part in wrong["loc"]).upper()
    if not place:
        return reason(wrong)
    return f"{place}: {reason(wrong)}" if place.startswith(prefix) else f"{prefix}{place}: {reason(wrong)}"


def reason(wrong: Mapping[str, Any]) -> str:
    """Returns what is wrong with a value, from an item of ValidationError.errors().

    A number beyond its bounds is shown. Any other value may be a secret, and is not.
    """
    if wrong["type"] == "missing":
        return "is not set"
    text = wrong["msg"].removeprefix("Value error, ")
    return f"{text}; got {wrong['input']}" if wrong["type"] in _BOUNDS else text
