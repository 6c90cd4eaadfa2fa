"""Environment variables of the lab. A command reads and checks them once.

Invalid values end the command with exit code 64.
"""

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from spillway_runtime.settings import HostPort, Settings, problems

from spillway_lab.scenario.errors import InvalidInput


class RenderSettings(Settings):
    """Addresses of the servers around the lab, and the files and programs that it runs.

    Lists are comma-separated, with one address per cluster in the scenario's order. Several relays
    of a cluster are joined by +.
    """

    model_config = SettingsConfigDict(env_prefix="SPILLWAY_LAB_")

    xds: Annotated[list[str], NoDecode]
    otlp: Annotated[list[str], NoDecode]
    toxiproxy: str
    infra: Path
    filter_wasm: Path
    emulator: str = "spillway-emulator"
    envoy: str = "envoy"
    python: str = "python"

    @field_validator("xds", "otlp", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return (
            [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        )


class WanSettings(Settings):
    health_listen: HostPort


S = TypeVar("S", bound=BaseSettings)


def read(kind: type[S], **given: str | Path | None) -> S:
    """Reads settings from the environment. Arguments that are not None override it."""
    # Any: which type a field takes depends on `kind`, and pydantic checks it.
    fields: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    try:
        return kind(**fields)
    except ValidationError as error:
        raise InvalidInput(problems(error, kind.model_config["env_prefix"])) from error
