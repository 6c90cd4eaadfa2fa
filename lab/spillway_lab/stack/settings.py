"""The lab's environment: read once by a command, checked, exit code 64 when it is wrong."""

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from spillway_lab.scenario.errors import InvalidInput


class RenderSettings(BaseSettings):
    """Where the servers around the lab listen. Lists are comma-separated, one address for each
    cluster, in the scenario's order; several relays of a cluster are joined by +."""

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


class WanSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SPILLWAY_")

    health_listen: Annotated[str, Field(pattern=r"^.+:\d{1,5}$")]


Settings = TypeVar("Settings", bound=BaseSettings)


def read(kind: type[Settings], **given: object) -> Settings:
    """Settings from the environment; what is given (not None) goes before it."""
    try:
        return kind(**{key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        prefix = kind.model_config["env_prefix"]
        raise InvalidInput([_problem(prefix, item) for item in error.errors()]) from error


def _problem(prefix: str, item: dict) -> str:
    name = prefix + "_".join(str(part) for part in item["loc"]).upper()
    return (
        f"{name}: not set; it has no default"
        if item["type"] == "missing"
        else f"{name}: {item['msg']}; got {item['input']!r}"
    )
