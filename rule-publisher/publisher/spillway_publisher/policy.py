"""The guardrail policy: a YAML file of the operator, checked strictly against the topology.

maximum_shift: 2000              # parts of 10 000 that one version may move of one rule; default: no bound
minimum_local_share: 1000        # parts of 10 000 that stay local where the service is placed locally
maximum_age_seconds: 60          # older proposals are refused
maximum_expiry_seconds: 3600     # later expiries are cut to this
denied_destinations:             # data residency; a key that is left out means every
  - {traffic_class: "users GET /profiles/{id}", source_cluster: eu-1, clusters: [us-1]}
pins:                            # the rule is exactly this, whatever is proposed
  - {source_cluster: eu-1, source_service: web, traffic_class: "users GET /profiles/{id}",
     destinations: {eu-1: 10000}}
operator_hold: true              # an operator's ruleset is not replaced by others until it expires
frozen: false                    # kill switch: only local-first is published
shadow: false                    # compute and log, publish nothing
"""

import re
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError, names, traffic_class

TOTAL = names.VALUE_WEIGHT_TOTAL


def _class_id(value: str) -> str:
    traffic_class.parse(value)
    return value


ClassId = Annotated[str, AfterValidator(_class_id)]
Parts = Annotated[int, Field(ge=0, le=TOTAL)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Denial(_Strict):
    """Clusters that requests of a class (of a source cluster) must never be sent to."""

    traffic_class: ClassId | None = None
    source_cluster: str | None = None
    clusters: list[str] = Field(min_length=1)

    def matches(self, source_cluster: str, class_id: str) -> bool:
        return self.source_cluster in (None, source_cluster) and self.traffic_class in (None, class_id)


class Pin(_Strict):
    """One rule that is fixed by the operator."""

    source_cluster: str
    source_service: str = Field(min_length=1)
    traffic_class: ClassId
    destinations: dict[str, Parts] = Field(min_length=1)


class Policy(_Strict):
    """What may be published. The default guards expiry, freshness and the operator's hold only."""

    maximum_shift: Annotated[int, Field(ge=1, le=TOTAL)] | None = None
    minimum_local_share: Parts = 0
    maximum_age_seconds: float = Field(default=60, gt=0)
    maximum_expiry_seconds: float = Field(default=3600, gt=0, le=86_400 * 365)
    denied_destinations: list[Denial] = []
    pins: list[Pin] = []
    operator_hold: bool = True
    frozen: bool = False
    shadow: bool = False


def load(path: Path | None, topology: Topology) -> Policy:
    """Reads and checks a policy file; None: the default. ContractError lists everything wrong in it."""
    if path is None:
        return Policy()
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ContractError(f"{path}: cannot be read: {error}") from error
    try:
        policy = Policy.model_validate({} if document is None else document)
    except ValidationError as error:
        raise ContractError("\n".join(f"{path}: {line}" for line in _explain(error))) from error
    if problems := check(policy, topology):
        raise ContractError("\n".join(f"{path}: {problem}" for problem in problems))
    return policy


def is_bucket_key(name: str) -> bool:
    """Whether NATS takes a cluster's name as one subject token and as a key of the bucket."""
    return re.fullmatch(r"[-/_=a-zA-Z0-9]+", name) is not None


def check(policy: Policy, topology: Topology) -> list[str]:
    """What contradicts the topology or itself, each naming its key, the value and what is allowed."""
    clusters = sorted(cluster.name for cluster in topology.clusters)
    problems = []
    if policy.frozen and policy.shadow:
        problems.append(
            "frozen, shadow: both true; a kill switch must publish local-first, shadow publishes nothing"
        )

    def known(key: str, name: str | None) -> None:
        if name is not None and name not in clusters:
            problems.append(f"{key}: unknown cluster {name!r}; clusters: {', '.join(clusters)}")

    for i, denial in enumerate(policy.denied_destinations):
        known(f"denied_destinations[{i}].source_cluster", denial.source_cluster)
        for j, name in enumerate(denial.clusters):
            known(f"denied_destinations[{i}].clusters[{j}]", name)
    seen = set()
    for i, pin in enumerate(policy.pins):
        key = f"pins[{i}]"
        known(f"{key}.source_cluster", pin.source_cluster)
        for name in pin.destinations:
            known(f"{key}.destinations", name)
        problems += [f"{key}.{problem}" for problem in _pin_problems(pin, policy, topology)]
        identity = (pin.source_cluster, pin.source_service, pin.traffic_class)
        if identity in seen:
            problems.append(f"{key}: a second pin for {identity}")
        seen.add(identity)
    return problems


def _pin_problems(pin: Pin, policy: Policy, topology: Topology) -> list[str]:
    links = {(link.source_cluster, link.destination_cluster) for link in topology.links}
    total = sum(pin.destinations.values())
    problems = [] if total == TOTAL else [f"destinations: weights sum to {total}, must be {TOTAL}"]
    for name in sorted(pin.destinations):
        if name != pin.source_cluster and (pin.source_cluster, name) not in links:
            problems.append(f"destinations: no link {pin.source_cluster!r} to {name!r}")
        if any(
            d.matches(pin.source_cluster, pin.traffic_class) and name in d.clusters
            for d in policy.denied_destinations
        ):
            problems.append(f"destinations: {name!r} is a denied destination of {pin.traffic_class!r}")
    return problems


def _explain(error: ValidationError) -> list[str]:
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"]) or "(the document)"
        if problem["type"] == "extra_forbidden":
            lines.append(f"{key}: unknown key; keys: {', '.join(sorted(_keys(problem['loc'])))}")
        else:
            lines.append(f"{key}: {problem['msg']}; got {problem['input']!r}")
    return lines


def _keys(location: tuple) -> set[str]:
    """The keys that are allowed where an unknown one was found."""
    model = {"denied_destinations": Denial, "pins": Pin}.get(location[0]) if len(location) > 1 else None
    return set((model or Policy).model_fields)
