"""The pods of a scenario, and the port of everything that listens in it. Pure: scenario -> plan."""

from dataclasses import dataclass

from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.scenario import Scenario

HOST = "127.0.0.1"
# Ports reserved per pod. The spare ones keep later pods' ports stable when a pod gets another port.
_PER_POD = 8
_WAN_HEALTH = 0
_FIRST_POD = 4
_FIRST_HOST = 100


@dataclass(frozen=True)
class Pod:
    """One emulator and its Envoy. All ports are ports of 127.0.0.1."""

    cluster: str
    service: str
    index: int  # position among the pods of its service in its cluster
    place: int  # position among all pods
    app_port: int
    health_port: int
    inbound_port: int
    outbound_port: int
    admin_port: int
    edge: bool  # whether users call it, and not only other pods

    @property
    def name(self) -> str:
        return f"{self.cluster}-{self.service}-{self.index}"


@dataclass(frozen=True)
class Network:
    """Where the lab's parts listen and are reached: all on this machine, or each in a container.

    Envoy gets the addresses of other Envoys through EDS, which must be numeric. In containers the
    addresses are therefore counted up from a prefix: first Toxiproxy, then the pods in order.
    """

    listen: str
    # prefix of container addresses, e.g. "172.30.0."; None: everything listens on HOST
    prefix: str | None = None

    def toxiproxy(self) -> str:
        return f"{self.prefix}{_FIRST_HOST}" if self.prefix else HOST

    def envoy(self, pod: Pod) -> str:
        return f"{self.prefix}{_FIRST_HOST + 1 + pod.place}" if self.prefix else HOST

    def emulator(self, pod: Pod) -> str:
        return pod.name if self.prefix else HOST


LOCAL = Network(listen=HOST)
# docker-compose.yml assigns these addresses to its containers.
COMPOSE = Network(listen="0.0.0.0", prefix="172.30.0.")


@dataclass(frozen=True)
class WanProxy:
    """The path from one cluster to one pod of another: a Toxiproxy listener.

    It delays each direction by half the round-trip time. Each source cluster has its own listener,
    so that bytes are counted per pair of clusters.
    """

    source_cluster: str
    destination_cluster: str
    pod: Pod
    listen_port: int
    rtt_ms: float

    @property
    def name(self) -> str:
        return f"{self.source_cluster}-to-{self.pod.name}"


@dataclass(frozen=True)
class Plan:
    """Everything that listens in the lab, with ports from one base upwards."""

    pods: list[Pod]
    wan: list[WanProxy]
    wan_health_port: int
    ports_used: int

    def entry_ports(self, service: str, cluster: str) -> list[int]:
        """Inbound ports of a service's pods in a cluster, where users' requests enter."""
        return [pod.inbound_port for pod in self.pods if (pod.service, pod.cluster) == (service, cluster)]


def placed(scenario: Scenario) -> dict[tuple[str, str], int]:
    """Returns the number of pods by (service, cluster), as placed. Events may change it."""
    return {
        (service, cluster): placement.pods
        for service, placements in scenario.document.placement.items()
        for cluster, placement in placements.items()
    }


def most(scenario: Scenario) -> dict[tuple[str, str], int]:
    """Returns the largest number of pods by (service, cluster) that there ever are."""
    found = placed(scenario)
    for event in scenario.document.events:
        if change := event.replicas:
            place = (change.service, change.cluster)
            found[place] = max(found[place], change.pods)
    return found


def plan(scenario: Scenario, port_base: int) -> Plan:
    """Assigns ports to a scenario's pods and WAN proxies, also to pods that an event adds.

    Each port is port_base plus a fixed offset, so the same scenario and base give the same ports.
    Raises InvalidInput when the ports do not fit between 1024 and 65535.
    """
    pods: list[Pod] = []
    edges, numbers = {request.service for request in scenario.document.requests}, most(scenario)
    for cluster in scenario.clusters:
        for service in scenario.document.placement:
            for index in range(numbers.get((service, cluster), 0)):
                first = port_base + _FIRST_POD + _PER_POD * len(pods)
                pods.append(
                    Pod(
                        cluster,
                        service,
                        index,
                        place=len(pods),
                        app_port=first,
                        health_port=first + 1,
                        inbound_port=first + 2,
                        outbound_port=first + 3,
                        admin_port=first + 4,
                        edge=service in edges,
                    )
                )
    next_port = port_base + _FIRST_POD + _PER_POD * len(pods)
    wan: list[WanProxy] = []
    for link in scenario.links():
        for pod in (pod for pod in pods if pod.cluster == link.destination_cluster):
            wan.append(
                WanProxy(
                    link.source_cluster, link.destination_cluster, pod, next_port + len(wan), link.rtt_ms
                )
            )
    used = next_port + len(wan) - port_base
    if port_base < 1024 or port_base + used > 65536:
        raise InvalidInput(
            [f"--port-base: {port_base}; {used} ports are needed; allowed: 1024 to {65536 - used}"]
        )
    return Plan(pods, wan, port_base + _WAN_HEALTH, used)
