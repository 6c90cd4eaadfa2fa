"""The operator's guardrails: one YAML file, checked strictly against the topology.

The publisher enforces it. The optimizer routes within it, so that the publisher has nothing left to
enforce. Keys under "optimizer" are enforced by the optimizer alone, because a publisher knows
neither loads nor prices.

maximum_shift: 2000              # parts of 10 000 that a version may move of a rule; default: all
minimum_local_share: 1000        # parts of 10 000 kept local where the service has a live Envoy
maximum_age_seconds: 60          # older proposals are refused
maximum_expiry_seconds: 3600     # later expiries are cut to this
denied_destinations:             # data residency, in Envoy's failover too; omitted key: every
  - {traffic_class: "users GET /profiles/{id}", source_cluster: eu-1, clusters: [us-1]}
pins:                            # the rule is exactly this, whatever is proposed
  - {source_cluster: eu-1, source_service: web, traffic_class: "users GET /profiles/{id}",
     destinations: {eu-1: 10000}}
operator_hold: true              # others do not replace an operator's ruleset until it expires
kill: false                      # kill switch: only local-first is published, within a second
freeze: false                    # the weights in force stay; optimizer and PAPA propose no others
shadow: false                    # compute and log, publish nothing
canary:                          # changes of weights are tried by some Envoys first; omitted: not
  clusters: [eu-2]               # whose Envoys take part; omitted: all
  share: 1000                    # of them, in parts of 10 000; default: 10 000
  seconds: 60                    # 10 to 3600; a refusal (NACK) ends it earlier
  failed_share: 0.01             # calls that may fail beyond those of others; omitted: any
  cost_rise: 0.2                 # by which calls may cost more than before it; omitted: any
drained_clusters: [us-1]         # take no requests from others; emptied at once, no local share
# optimizer
egress_budget_usd_per_hour: 40   # US dollars per hour of all egress; default: no bound
utilisation_ceiling: 0.8         # of every capacity, above 0 and at most 1; default: no bound
minimum_share: 100               # parts of 10 000; a destination gets nothing or at least this
maximum_destinations: 4          # of a rule; default: no bound
whole_classes: ["users GET /profiles/{id}"]  # each cluster sends all of them to one destination
extrapolation_caution: 2         # queueing beyond the loads seen counts more, 0 to 100; default: 0
latency_values:                  # what a ms of users' requests is worth, 0.01 to 100; default: 1
  - {traffic_class: "web GET /checkout", value: 5}
tail_targets:                    # a ms of p99 above p99_ms counts like `value` ms of the mean
  - {traffic_class: "web GET /checkout", p99_ms: 250, value: 5}
"""

import logging
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from spillway.v1.topology_pb2 import Topology
from spillway_runtime import yaml_file

from spillway_contracts import ContractError, names, traffic_class

TOTAL = names.VALUE_WEIGHT_TOTAL
# After this time beyond its seconds, relays end a trial that nobody has concluded.
CANARY_GRACE_S = 60
_FORMER = {"frozen": "kill"}  # former names of keys, which are accepted for one version
_LOG = logging.getLogger("spillway.guardrails")


def _class_id(value: str) -> str:
    traffic_class.parse(value)
    return value


ClassId = Annotated[str, AfterValidator(_class_id)]
Parts = Annotated[int, Field(ge=0, le=TOTAL)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Denial(_Strict):
    """Clusters to which requests of a class, from a source cluster, must never be sent.

    A key that is None matches every value.
    """

    traffic_class: ClassId | None = None
    source_cluster: str | None = None
    clusters: list[str] = Field(min_length=1)

    def matches(self, source_cluster: str, class_id: str) -> bool:
        return self.source_cluster in (None, source_cluster) and self.traffic_class in (None, class_id)


class Pin(_Strict):
    """A rule that the operator has fixed."""

    source_cluster: str
    source_service: str = Field(min_length=1)
    traffic_class: ClassId
    destinations: dict[str, Parts] = Field(min_length=1)


class LatencyValue(_Strict):
    """What a millisecond of users' requests of a class is worth, relative to other classes."""

    traffic_class: ClassId
    value: float = Field(ge=0.01, le=100, allow_inf_nan=False)


class TailTarget(_Strict):
    """The p99 that users' requests of a class shall not exceed.

    Each ms above it counts like `value` ms of the mean of each of these requests.
    """

    traffic_class: ClassId
    p99_ms: float = Field(gt=0, le=3_600_000, allow_inf_nan=False)
    value: float = Field(ge=0.01, le=100, allow_inf_nan=False)


class CanaryPolicy(_Strict):
    """Which Envoys try a change of weights first, and what ends the trial early."""

    clusters: list[str] = []
    share: Annotated[int, Field(ge=1, le=TOTAL)] = TOTAL
    seconds: float = Field(ge=10, le=3600, allow_inf_nan=False)
    failed_share: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] | None = None
    cost_rise: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None

    @property
    def compares(self) -> bool:
        """Whether calls under the trial are compared with others."""
        return self.failed_share is not None or self.cost_rise is not None


class Guardrails(_Strict):
    """What may be published.

    The default guards only expiry, freshness, the operator's hold and the least share.
    """

    maximum_shift: Annotated[int, Field(ge=1, le=TOTAL)] | None = None
    minimum_local_share: Parts = 0
    maximum_age_seconds: float = Field(default=60, gt=0, allow_inf_nan=False)
    maximum_expiry_seconds: float = Field(default=3600, gt=0, le=86_400 * 365)
    denied_destinations: Annotated[list[Denial], Field(max_length=names.VALUE_DENIALS_PER_CLUSTER)] = []
    pins: list[Pin] = []
    operator_hold: bool = True
    kill: bool = False
    freeze: bool = False
    shadow: bool = False
    canary: CanaryPolicy | None = None
    drained_clusters: list[str] = []
    egress_budget_usd_per_hour: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    utilisation_ceiling: Annotated[float, Field(gt=0, le=1)] | None = None
    minimum_share: Annotated[int, Field(ge=0, le=TOTAL // 2)] = 100
    maximum_destinations: Annotated[int, Field(ge=1)] | None = None
    whole_classes: list[ClassId] = []
    extrapolation_caution: Annotated[float, Field(ge=0, le=100)] = 0
    latency_values: list[LatencyValue] = []
    tail_targets: list[TailTarget] = []

    @property
    def holding(self) -> str | None:
        """Why neither the optimizer nor PAPA may change weights now; None: they may."""
        for key in ("kill", "freeze"):
            if getattr(self, key):
                return f"{key}: true in the guardrails"
        return None

    def denies(self, source_cluster: str, class_id: str, destination: str) -> bool:
        """Returns whether a denial keeps the class's requests from going to the destination."""
        return any(
            destination in denial.clusters and denial.matches(source_cluster, class_id)
            for denial in self.denied_destinations
        )


class GuardrailFile:
    """The last good guardrails of a file that may change while it is read.

    The constructor raises ContractError when the file is wrong at the start.
    """

    def __init__(self, path: Path | None, topology: Topology):
        self.path, self._topology = path, topology
        self._seen = self._next = self._stamp()
        self.current = load(path, topology)

    def changed(self) -> bool:
        """Reads the file again if it changed, and returns whether the guardrails changed.

        A change counts when two calls in a row find the file the same, because a file that differs
        may still be being written. Raises ContractError once for each wrong state of the file;
        `current` then stays the last good one. Guardrails are lifted by `{}`, never by an empty
        file, which a full disk may leave.
        """
        if self.path is None:
            return False  # the default, which never changes
        stamp = self._stamp()
        before, self._next = self._next, stamp
        if stamp == self._seen or stamp != before:
            return False
        self._seen = stamp
        document = _read(self.path)
        if document is None and self.current != Guardrails():
            raise ContractError(f"{self.path}: is empty; write {{}} to lift all guardrails")
        last, self.current = self.current, _parse(self.path, document, self._topology)
        return self.current != last

    def _stamp(self) -> tuple[int, ...] | None:
        """Returns a value that changes with the content.

        It also changes when the file is replaced, or is a link that changes its target
        (Kubernetes).
        """
        if self.path is None:
            return None
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


def load(path: Path | None, topology: Topology) -> Guardrails:
    """Reads and checks a guardrail file; None: the default.

    Raises ContractError, which lists everything that is wrong.
    """
    return Guardrails() if path is None else _parse(path, _read(path), topology)


def _read(path: Path) -> object:
    """Returns the document; None when it is empty."""
    try:
        return yaml_file.read(path)
    except yaml_file.FileError as error:
        raise ContractError(str(error)) from error


def _parse(path: Path, document: object, topology: Topology) -> Guardrails:
    document = _renamed(path, {} if document is None else document)
    try:
        guardrails = Guardrails.model_validate(document)
    except ValidationError as error:
        raise ContractError("\n".join(f"{path}: {line}" for line in _explain(error))) from error
    if problems := check(guardrails, topology):
        raise ContractError("\n".join(f"{path}: {problem}" for problem in problems))
    return guardrails


def _renamed(path: Path, document: object) -> object:
    """Returns the document with the present names of keys that it has under their former names.

    Logs each former name. Raises ContractError for a key that is there under both names.
    """
    if not isinstance(document, dict) or not (former := [key for key in _FORMER if key in document]):
        return document
    renamed = dict(document)
    for key in former:
        present = _FORMER[key]
        if present in document:
            raise ContractError(f"{path}: {key}, {present}: two names of one key; only {present} is allowed")
        _LOG.warning("%s: %s is now %s; the next version refuses %s", path, key, present, key)
        renamed[present] = renamed.pop(key)
    return renamed


def check(guardrails: Guardrails, topology: Topology) -> list[str]:
    """Returns what contradicts the topology or itself, with key, value and what is allowed."""
    clusters = sorted(cluster.name for cluster in topology.clusters)
    services = sorted(service.name for service in topology.services)
    problems = []
    if guardrails.kill and guardrails.shadow:
        problems.append(
            "kill, shadow: both true; a kill switch must publish local-first, shadow publishes nothing"
        )

    def known(key: str, name: str | None) -> None:
        if name is not None and name not in clusters:
            problems.append(f"{key}: unknown cluster {name!r}; clusters: {', '.join(clusters)}")

    def served(key: str, name: str) -> None:
        if services and name not in services:
            problems.append(f"{key}: unknown service {name!r}; services: {', '.join(services)}")

    for i, denial in enumerate(guardrails.denied_destinations):
        if denial.traffic_class is not None:
            served(
                f"denied_destinations[{i}].traffic_class", traffic_class.parse(denial.traffic_class).service
            )
        known(f"denied_destinations[{i}].source_cluster", denial.source_cluster)
        for j, name in enumerate(denial.clusters):
            known(f"denied_destinations[{i}].clusters[{j}]", name)
    for name in guardrails.drained_clusters:
        known("drained_clusters", name)
    if clusters and set(guardrails.drained_clusters) >= set(clusters):
        problems.append(f"drained_clusters: {clusters}; at least one cluster must stay to take requests")
    problems += _canary_problems(guardrails, clusters)
    for i, class_id in enumerate(guardrails.whole_classes):
        served(f"whole_classes[{i}]", traffic_class.parse(class_id).service)
        if class_id in guardrails.whole_classes[:i]:
            problems.append(f"whole_classes[{i}]: {class_id!r} is named twice; once is allowed")
    for name, what, entries in (
        ("latency_values", "value", [value.traffic_class for value in guardrails.latency_values]),
        ("tail_targets", "target", [target.traffic_class for target in guardrails.tail_targets]),
    ):
        for i, class_id in enumerate(entries):
            key = f"{name}[{i}].traffic_class"
            served(key, traffic_class.parse(class_id).service)
            if class_id in entries[:i]:
                problems.append(f"{key}: a second {what} for {class_id!r}; one is allowed")
    seen = set()
    for i, pin in enumerate(guardrails.pins):
        key = f"pins[{i}]"
        known(f"{key}.source_cluster", pin.source_cluster)
        served(f"{key}.source_service", pin.source_service)
        served(f"{key}.traffic_class", traffic_class.parse(pin.traffic_class).service)
        for name in pin.destinations:
            known(f"{key}.destinations", name)
        problems += [f"{key}.{problem}" for problem in _pin_problems(pin, guardrails, topology)]
        identity = (pin.source_cluster, pin.source_service, pin.traffic_class)
        if identity in seen:
            problems.append(f"{key}: a second pin for {identity}")
        seen.add(identity)
    return problems


def _canary_problems(guardrails: Guardrails, clusters: list[str]) -> list[str]:
    canary = guardrails.canary
    if canary is None:
        return []
    problems = [
        f"canary.clusters[{i}]: unknown cluster {name!r}; clusters: {', '.join(clusters)}"
        for i, name in enumerate(canary.clusters)
        if name not in clusters
    ]
    if canary.share == TOTAL and (not canary.clusters or set(canary.clusters) >= set(clusters)):
        problems.append(
            f"canary: every Envoy takes part; share must be below {TOTAL}, or clusters must leave one out"
        )
    if canary.seconds + CANARY_GRACE_S > guardrails.maximum_expiry_seconds:
        problems.append(
            f"canary.seconds: {canary.seconds:g}; must be at most maximum_expiry_seconds "
            f"{guardrails.maximum_expiry_seconds:g} minus {CANARY_GRACE_S}"
        )
    return problems


def _pin_problems(pin: Pin, guardrails: Guardrails, topology: Topology) -> list[str]:
    links = {(link.source_cluster, link.destination_cluster) for link in topology.links}
    total = sum(pin.destinations.values())
    problems = [] if total == TOTAL else [f"destinations: weights sum to {total}; must be {TOTAL}"]
    used = sorted(name for name, weight in pin.destinations.items() if weight)
    if used and set(used) <= set(guardrails.drained_clusters) - {pin.source_cluster}:
        problems.append(f"destinations: {used} are all drained; at least one must not be")
    for name in sorted(pin.destinations):
        if name != pin.source_cluster and (pin.source_cluster, name) not in links:
            problems.append(f"destinations: no link {pin.source_cluster!r} to {name!r}")
        if guardrails.denies(pin.source_cluster, pin.traffic_class, name):
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


def _keys(location: tuple[int | str, ...]) -> set[str]:
    """Returns the allowed keys of the place where an unknown one was found."""
    models: dict[int | str, type[_Strict]] = {
        "canary": CanaryPolicy,
        "denied_destinations": Denial,
        "pins": Pin,
        "latency_values": LatencyValue,
        "tail_targets": TailTarget,
    }
    model = models.get(location[0], Guardrails) if len(location) > 1 else Guardrails
    return set(model.model_fields)
