"""Traffic class of a request: service, HTTP method, path template (SLATE 4.2).

A template is a valid Envoy `uri_template` pattern: literal segments and whole-segment variables
{id}, {id2}, ..., at most five of them (Envoy's bound).
"""

import re

from spillway.v1.ruleset_pb2 import TrafficClass
from spillway_contracts import ContractError, traffic_class

from spillway_streams.counters import Counters

OTHER = "/other"
MAX_VARIABLES = 5
_LITERAL = re.compile(r"[A-Za-z0-9\-._~%!$&'()+,;:@]+")
_METHOD = re.compile(r"[A-Z]+")
_VARIABLE = re.compile(r"\{[^{}]*\}|<[^<>]*>|:[A-Za-z_]\w*|\*+\w*")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*")
_UUID = re.compile(r"\{?[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\}?")
_HEX = re.compile(r"(0x)?[0-9a-fA-F]{8,}")
_VERSION = re.compile(r"[vV]\d+([._]\d+)*((alpha|beta|rc)\d*)?")
_MAX_SEGMENT = 64


def is_identifier(segment: str) -> bool:
    """Whether a path segment looks like the name of one thing and not of a kind of thing."""
    if _VERSION.fullmatch(segment):
        return False
    if len(segment) > _MAX_SEGMENT or not _LITERAL.fullmatch(segment):
        return True
    digits = sum(character.isdigit() for character in segment)
    if _NUMBER.fullmatch(segment) or _UUID.fullmatch(segment):
        return True
    if _HEX.fullmatch(segment) and (digits or len(segment) >= 16):
        return True
    return digits >= 2


def _assemble(segments: list[str | None]) -> str:
    """Segments to a template, None being a variable; OTHER when there are too many variables."""
    if sum(segment is None for segment in segments) > MAX_VARIABLES:
        return OTHER
    parts, count = [], 0
    for segment in segments:
        if segment is None:
            count += 1
            parts.append("{id}" if count == 1 else f"{{id{count}}}")
        else:
            parts.append(segment)
    return "/" + "/".join(parts)


def _segments(path: str) -> list[str]:
    path = re.split(r"[?#]", path, maxsplit=1)[0]
    if "://" in path:
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    return [segment for segment in path.split("/") if segment]


def path_template(path: str) -> str:
    """The template that a raw path (or URL) falls into; query and fragment are dropped."""
    return _assemble([None if is_identifier(segment) else segment for segment in _segments(path)])


def route_template(route: str) -> str:
    """A framework's route (`/users/:id`, `/users/<int:id>`, `/users/{id:[0-9]+}`) as a template."""
    segments = _segments(_VARIABLE.sub("{}", route))
    return _assemble([None if "{}" in s or not _LITERAL.fullmatch(s) else s for s in segments])


def class_id(service: str, method: str, template: str) -> str | None:
    """The class's id, or None when service or method cannot be part of one."""
    text = traffic_class.format_id(TrafficClass(service=service, method=method, path_template=template))
    return text if is_class_id(text) else None


def is_class_id(text: str) -> bool:
    try:
        traffic_class.parse(text)
    except ContractError:
        return False
    return True


class Templates:
    """Templates known per service, bounded: past the bound a new one becomes OTHER, counted."""

    def __init__(self, counters: Counters, per_service: int = 200) -> None:
        self._known: dict[str, set[tuple[str, str]]] = {}
        self._counters = counters
        self._per_service = per_service

    def classify(self, service: str, method: str, path: str = "", route: str = "") -> str | None:
        """Class id of a request to `service`; None when it names neither a method nor a path."""
        if not _METHOD.fullmatch(method) or not (path or route):
            return None
        template = route_template(route) if route else path_template(path)
        known = self._known.setdefault(service, set())
        if (method, template) not in known:
            if len(known) >= self._per_service:
                self._counters.add("class_other")
                template = OTHER
            else:
                known.add((method, template))
        return class_id(service, method, template)
