"""The parts of an application's YAML that the lab needs to place, price and override services.

The emulator checks the same file when it starts, including path matching and call cycles.
"""

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from spillway_lab.scenario.errors import InvalidInput, from_validation

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Model(BaseModel):
    """Base model: instances are frozen and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ServiceTime(Model):
    distribution: Literal["exponential", "lognormal", "constant"]
    mean_ms: Positive
    cv: Positive | None = None


class Call(Model):
    service: str
    method: str
    path: str
    probability: Annotated[float, Field(gt=0, le=1)] | None = None
    count: Annotated[int, Field(ge=1, le=1000)] | None = None
    request_bytes: Annotated[int, Field(ge=0)] = 0
    optional: bool = False


class Endpoint(Model):
    method: str
    path: str
    service_time: ServiceTime
    response_bytes: Annotated[int, Field(ge=0)]
    calls: list[list[Call]] = Field(default_factory=list)


class Service(Model):
    workers: Annotated[int, Field(ge=1)]
    queue: Annotated[int, Field(ge=0)]
    queue_timeout_ms: Positive
    silent: bool = False  # whether the service reports no CPU use
    endpoints: Annotated[list[Endpoint], Field(min_length=1)]


class Application(Model):
    call_timeout_ms: Positive
    services: Annotated[dict[str, Service], Field(min_length=1)]

    @model_validator(mode="after")
    def _calls_lead_somewhere(self) -> "Application":
        allowed = ", ".join(self.services)
        for name, service in self.services.items():
            for i, endpoint in enumerate(service.endpoints):
                for call in (call for stage in endpoint.calls for call in stage):
                    if call.service not in self.services:
                        key = f"services.{name}.endpoints[{i}].calls"
                        raise ValueError(f"{key}: unknown service {call.service!r}; services: {allowed}")
        return self


class Override(Model):
    """Settings of one service that differ in one cluster."""

    workers: Annotated[int, Field(ge=1)] | None = None
    speed: Positive = 1.0  # factor; at 0.5 every service time is twice as long


def load(path: Path) -> Application:
    """Reads an application file. Raises InvalidInput that lists everything that is wrong in it."""
    return parse(path, read_yaml(path))


def parse(source: Path, document: object) -> Application:
    try:
        return Application.model_validate(document)
    except ValidationError as error:
        raise from_validation(source, error) from error


def read_yaml(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput([f"{path}: cannot be read: {error}"]) from error


def overridden(application: Application, overrides: dict[str, Override]) -> Application:
    """Returns the application as one cluster runs it, with its own worker counts and speeds."""
    services = dict(application.services)
    for name, override in overrides.items():
        service = services[name]
        endpoints = [_slowed(endpoint, override.speed) for endpoint in service.endpoints]
        workers = override.workers or service.workers
        services[name] = service.model_copy(update={"workers": workers, "endpoints": endpoints})
    return application.model_copy(update={"services": services})


def _slowed(endpoint: Endpoint, speed: float) -> Endpoint:
    mean_ms = endpoint.service_time.mean_ms / speed
    return endpoint.model_copy(
        update={"service_time": endpoint.service_time.model_copy(update={"mean_ms": mean_ms})}
    )


def to_yaml(application: Application) -> str:
    document = application.model_dump(exclude_none=True, exclude_defaults=True)
    return yaml.safe_dump(document, sort_keys=False)


def capacity_rps(service: Service, endpoint: Endpoint) -> float:
    """Most requests per second that one pod can process if it serves only this endpoint."""
    return service.workers / (endpoint.service_time.mean_ms / 1000)
