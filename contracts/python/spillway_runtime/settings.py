"""Settings from environment variables with the prefix SPILLWAY_, read once at start.

A class of settings derives from Settings, and a program reads it with `load`.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from spillway_runtime import exit_codes

PREFIX = "SPILLWAY_"

S = TypeVar("S", bound=BaseSettings)


class Settings(BaseSettings):
    """Base of all settings. An empty variable counts as not set."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, env_ignore_empty=True, hide_input_in_errors=True
    )


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


def load(kind: type[S], **given: Any) -> S:
    """Returns the settings. `given` takes precedence over the environment.

    If any are wrong, prints one line for each and exits with code 64.
    """
    try:
        return kind(**given)
    except ValidationError as error:
        print("\n".join(problems(error)), file=sys.stderr)
        raise SystemExit(exit_codes.USAGE) from None


def problems(error: ValidationError, prefix: str = PREFIX) -> list[str]:
    """Returns one line per wrong setting: its variable, and what is wrong.

    pydantic's own messages would show the value, which may be a secret. These do not.
    """
    return [_problem(wrong, prefix) for wrong in error.errors(include_input=False, include_url=False)]


def _problem(wrong: Mapping[str, Any], prefix: str) -> str:
    what = "is not set" if wrong["type"] == "missing" else wrong["msg"].removeprefix("Value error, ")
    place = "_".join(str(part) for part in wrong["loc"]).upper()
    return f"{prefix}{place}: {what}" if place else what
