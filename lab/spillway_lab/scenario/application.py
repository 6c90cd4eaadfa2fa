"""The parts of an application's YAML that the lab needs to place, price and override services.

The emulator checks the same file when it starts, including path matching and call cycles.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationError, model_validator

from spillway_lab.scenario.base import Model, Positive
from spillway_lab.scenario.behaviour import Cache, Contention, Keys, ServiceTime, Share
from spillway_lab.scenario.errors import InvalidInput, from_validation

__all__ = ["Application", "Endpoint", "Model", "Override", "Positive", "Service", "ServiceTime"]

_VARIABLE = re.compile(r"\{([^}]+)\}")


class Call(Model):
    service: str
    method: str
    path: str
    probability: Annotated[float, Field(gt=0, le=1)] | None = None
    count: Annotated[int, Field(ge=1, le=1000)] | None = None
    request_bytes: Annotated[int, Field(ge=0)] = 0
    optional: bool = False

    @property
    def class_id(self) -> str:
        """The called class, such as "shop GET /items/{id}"."""
        return f"{self.service} {self.method} {self.path}"

    @property
    def mean_count(self) -> float:
        """Mean number of these calls per request."""
        return float(self.count or 1) if self.probability is None else self.probability


class Endpoint(Model):
    method: str
    path: str
    service_time: ServiceTime
    response_bytes: Annotated[int, Field(ge=0)]
    calls: list[list[Call]] = Field(default_factory=list)
    error_rate: Share = 0.0  # probability that a request fails after its service time
    cache: Cache | None = None
    contention: list[Contention] = Field(default_factory=list)

    @property
    def variables(self) -> list[str]:
        """Names of the variables of the path, in order."""
        return _VARIABLE.findall(self.path)

    def class_id(self, service: str) -> str:
        """Returns the endpoint's class, such as "shop GET /items/{id}"."""
        return f"{service} {self}"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Service(Model):
    workers: Annotated[int, Field(ge=1)]
    queue: Annotated[int, Field(ge=0)]
    queue_timeout_ms: Positive
    silent: bool = False  # whether the service reports no CPU use
    endpoints: Annotated[list[Endpoint], Field(min_length=1)]


class Application(Model):
    call_timeout_ms: Positive
    services: Annotated[dict[str, Service], Field(min_length=1)]
    # keys that users ask for, by path variable
    keys: dict[str, Keys] = Field(default_factory=dict)

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

    @model_validator(mode="after")
    def _behaviour_fits_the_endpoints(self) -> "Application":
        if problems := [*_behaviour_problems(self), *_key_problems(self)]:
            raise ValueError("; ".join(problems))
        return self


def _behaviour_problems(application: Application) -> Iterator[str]:
    for name, service in application.services.items():
        for i, endpoint in enumerate(service.endpoints):
            key = f"services.{name}.endpoints[{i}]"
            if endpoint.cache and endpoint.cache.key not in endpoint.variables:
                allowed = f'a variable of the path "{endpoint.path}"'
                yield f'{key}.cache.key: "{endpoint.cache.key}"; allowed: {allowed}'
            others = [str(other) for other in service.endpoints if other is not endpoint]
            listed = [rival.endpoint for rival in endpoint.contention]
            for j, rival in enumerate(listed):
                if rival not in others:
                    allowed = ", ".join(others) or "none; the service has one endpoint"
                    yield f'{key}.contention[{j}]: "{rival}"; allowed: {allowed}'
                elif rival in listed[:j]:
                    yield f'{key}.contention[{j}]: "{rival}" is listed twice; allowed: each once'


def _key_problems(application: Application) -> Iterator[str]:
    endpoints = [endpoint for service in application.services.values() for endpoint in service.endpoints]
    variables = sorted({variable for endpoint in endpoints for variable in endpoint.variables})
    for variable in application.keys:
        if variable not in variables:
            allowed = ", ".join(variables) or "none; no path has a variable"
            yield f"keys.{variable}: no path has this variable; allowed: {allowed}"


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
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
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
    changed: dict[str, object] = {"service_time": _divided(endpoint.service_time, speed)}
    if endpoint.cache and endpoint.cache.hit:
        changed["cache"] = endpoint.cache.model_copy(update={"hit": _divided(endpoint.cache.hit, speed)})
    return endpoint.model_copy(update=changed)


def _divided(time: ServiceTime, speed: float) -> ServiceTime:
    return time.model_copy(update={"mean_ms": time.mean_ms / speed})


def to_yaml(application: Application) -> str:
    document = application.model_dump(exclude_none=True, exclude_defaults=True)
    return yaml.safe_dump(document, sort_keys=False)


def capacity_rps(service: Service, endpoint: Endpoint) -> float:
    """Most requests per second that one pod can process if it serves only this endpoint."""
    return service.workers / (endpoint.service_time.mean_ms / 1000)
