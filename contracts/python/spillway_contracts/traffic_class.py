"""Traffic class ids: `service METHOD /path/{template}`."""

import re

from spillway.v1.ruleset_pb2 import TrafficClass

from spillway_contracts import ContractError

_SERVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_METHOD = re.compile(r"[A-Z]+")
_PATH = re.compile(r"/[^\s?#]*")


def format_id(traffic_class: TrafficClass) -> str:
    return f"{traffic_class.service} {traffic_class.method} {traffic_class.path_template}"


def parse(class_id: str) -> TrafficClass:
    """Parses a class id. Raises ContractError for anything else."""
    parts = class_id.split(" ")
    patterns = (_SERVICE, _METHOD, _PATH)
    if len(parts) != 3 or not all(p.fullmatch(part) for p, part in zip(patterns, parts, strict=True)):
        raise ContractError(f"traffic class {class_id!r}: expected 'service METHOD /path/{{template}}'")
    return TrafficClass(service=parts[0], method=parts[1], path_template=parts[2])
