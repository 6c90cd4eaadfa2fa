"""A running copy of the local stack: ports, secrets, rendered files and the supervisor.

run/<name>/  secrets.env, clickhouse-users.yaml (passwords) · tls/ (see keystore) ·
ruleset-keys.pem · log/ · data/ · topology.yaml, endpoints-*.yaml, envoy/, nats/ … (see render)
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import yaml

from spillway_lab.keys import accounts, certificates, signing
from spillway_lab.keys.keystore import Keystore
from spillway_lab.render import bus, files, pods, ports, templates
from spillway_lab.render.pods import HOST, Plan
from spillway_lab.render.render import Surroundings, identities, render
from spillway_lab.scenario.errors import LabError
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.stack import kernel, periods
from spillway_lab.stack.supervisor import Supervisor

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / ".spillway"
INFRA = ROOT / "infra"
PORTS = INFRA / "ports.yaml"
GUARDRAILS = ROOT / "lab" / "guardrails.yaml"
_STREAMS_SETTINGS, _TOPICS = "streams.yaml", "topics.yaml"
PARTITIONS, ONE_PARTITION = 2, 1  # two: what tests show holds where there are several
# Processes of streams by the value of SPILLWAY_STREAMS: one for each job, or one for all jobs.
STREAMS = {
    "jobs": [f"streams-{job}" for job in ("admit", "exclusive", "classify", "curves", "graph")],
    "all": ["streams-all"],
}


def relays(cluster: str) -> dict[str, str]:
    """Returns process name -> prefix of its ports in infra/ports.yaml, for a cluster's relays."""
    return {f"relay-{cluster}": "", f"relay-{cluster}-2": "SECOND_"}


def streams() -> str:
    """Returns the value of SPILLWAY_STREAMS, a key of STREAMS; `jobs` if it is not set."""
    given = os.environ.get("SPILLWAY_STREAMS") or "jobs"
    if given not in STREAMS:
        raise LabError(f"SPILLWAY_STREAMS: is {given!r}; must be one of {', '.join(STREAMS)}")
    return given


@dataclass(frozen=True)
class Stack:
    """A prepared copy of the stack: where it is and how to reach its parts.

    Its processes run inside the context manager `running`.
    """

    run: Path
    environment: Mapping[str, str]  # variables that every process gets
    cluster_ports: Mapping[str, Mapping[str, int]]
    supervisor: Supervisor
    lock: IO  # held as long as the copy exists
    time_scale: float  # by how much requests, and the periods of the pipeline, are stretched

    @property
    def streams_settings(self) -> Path:
        """The settings file of the streams jobs, which they read when they start."""
        return self.run / _STREAMS_SETTINGS

    def redis_url(self, user: str) -> str:
        return f"redis://{user}:{self._password(accounts.REDIS, user)}@{HOST}:{self.port('redis')}/0"

    def clickhouse_url(self, user: str = "analyst") -> str:
        password = self._password(accounts.CLICKHOUSE, user)
        return f"clickhouse://{user}:{password}@{HOST}:{self.port('clickhouse')}/spillway"

    def _password(self, server: str, user: str) -> str:
        return self.environment[accounts.password_variable(server, user)]

    def port(self, name: str) -> int:
        return int(self.environment[ports.environment_name(name)])

    def relays(self, cluster: str) -> dict[str, str]:
        """URLs of health, status and metrics of a cluster's relays, by process name."""
        cluster_ports = self.cluster_ports[cluster]
        return {
            relay: f"http://{HOST}:{cluster_ports[f'{prefix}RELAY_HEALTH_PORT']}"
            for relay, prefix in relays(cluster).items()
        }

    def sender(self, cluster: str) -> Path:
        """Folder of the certificate that a sender of spans shows to a cluster's collector.

        See keystore for the files in it.
        """
        return self.run / "tls" / certificates.sender(cluster).name

    def nats_url(self, user: str) -> str:
        password = self.environment[bus.password_variable(user)]
        return f"nats://{user}:{password}@{HOST}:{self.port('nats')}"


@dataclass(frozen=True)
class LabStack(Stack):
    """A stack with a scenario's pods."""

    scenario: Scenario
    plan: Plan

    def serving(self) -> list[int]:
        """Returns the ids of the processes that serve requests: pods, their Envoys and the WAN."""
        pods = [pod.name for pod in self.plan.pods]
        names = {"toxiproxy", *pods, *(f"{pod}-envoy" for pod in pods)}
        return [found.pid for name, found in self.supervisor.processes().items() if name in names]

    def addresses(self) -> dict[str, str]:
        """Addresses that a person may want to reach, by name."""
        found = {
            name: f"{HOST}:{self.port(name)}"
            for name in ("kafka", "nats", "redis", "clickhouse", "toxiproxy")
        }
        for cluster, cluster_ports in self.cluster_ports.items():
            found[f"collector-{cluster}"] = (
                f"{HOST}:{cluster_ports['OTLP_GRPC_PORT']} (OTLP gRPC, as tls/sender-{cluster})"
            )
            found |= {relay: f"{url}/status" for relay, url in self.relays(cluster).items()}
        for pod in self.plan.pods:
            admin = f"http://{HOST}:{pod.admin_port}"
            found[pod.name] = f"http://{HOST}:{pod.inbound_port} (Envoy admin {admin})"
        return found


def prepare(scenario: Scenario, name: str, policy: str, partitions: int = PARTITIONS) -> LabStack:
    """Prepares a new run folder for a scenario and its pods.

    A scenario with a time scale is stretched. Ports are free at the time of the call. `partitions`:
    see prepare_bare. Raises LabError if the kernel's limits are too low for the scenario's Envoys.
    """
    bare = prepare_bare(scenario.clusters, name, policy, scenario.document.time_scale, partitions)
    scenario = scenario.live()
    lab_base = min(bare.port(port) for port in ports.declared(PORTS)["shared"]) + ports.LAB_OFFSET
    plan = pods.plan(scenario, lab_base)
    kernel.check(len(plan.pods))
    around = _surroundings(scenario, bare)
    files.write(bare.run, render(scenario, lab_base, around))
    Keystore(around.tls_folder()).issue(identities(scenario, lab_base, around))
    bare.supervisor.add(bare.run / "lab.process-compose.yaml")
    return LabStack(**vars(bare), scenario=scenario, plan=plan)


def prepare_bare(
    clusters: list[str], name: str, policy: str, time_scale: float = 1.0, partitions: int = PARTITIONS
) -> Stack:
    """Prepares a new run folder for the stack without pods and without a topology.

    Only the processes that route need a topology. `partitions`: of each topic. A job with one
    worker needs one, and each further one multiplies its messages.
    """
    run = HOME / "run" / name
    lock = _locked(run.with_suffix(".lock"))
    shutil.rmtree(run, ignore_errors=True)
    data_folders = [f"collector-{cluster}" for cluster in clusters]
    data_folders += [relay for cluster in clusters for relay in relays(cluster)]
    for folder in ("log", "envoy", "data", *(f"data/{name}" for name in ("kafka", "nats", *data_folders))):
        (run / folder).mkdir(parents=True)
    shared, per_cluster = ports.assign(ports.free_base(), clusters, ports.declared(PORTS))
    rendered = {
        f"cluster-{cluster}.yaml": _cluster(cluster, cluster_ports)
        for cluster, cluster_ports in per_cluster.items()
    }
    rendered[_TOPICS] = topics(partitions)
    rendered[_STREAMS_SETTINGS] = periods.settings(time_scale)
    files.write(run, rendered | bus.configuration(clusters, templates.read(INFRA)))
    Keystore(run / "tls").issue(
        identity
        for cluster in clusters
        for identity in (
            certificates.relay(cluster, (HOST,)),
            certificates.collector(cluster, (HOST,)),
            certificates.sender(cluster),
        )
    )
    signing.issue(run / "tls" / signing.OWNER, run / signing.PUBLIC_KEYS)
    environment = _environment(run, clusters, shared, policy)
    environment["SPILLWAY_FLUSH_TIMEOUT"] = periods.flush_timeout(time_scale)
    _private(run / "clickhouse-users.yaml", accounts.clickhouse_users(INFRA, environment))
    compose = [
        INFRA / "local/process-compose.yaml",
        *([INFRA / "local/streams-all.yaml"] if streams() == "all" else []),
        *(run / f"cluster-{cluster}.yaml" for cluster in clusters),
    ]
    return Stack(run, environment, per_cluster, Supervisor(run, compose, environment, ROOT), lock, time_scale)


@contextmanager
def running(stack: Stack, only: list[str] | None = None) -> Iterator[None]:
    """Starts the stack, or some processes and their dependencies. Stops all of it at the end."""
    try:
        stack.supervisor.start(only or [])
        yield
    finally:
        stack.supervisor.stop()


def _locked(path: Path) -> IO:
    """Locks the stack's name. A second stack of that name would remove the first one's files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LabError(
            f"a stack named {path.stem!r} runs already in this checkout; give this one another --name"
        ) from None
    return lock


def _surroundings(scenario: Scenario, bare: Stack) -> Surroundings:
    per_cluster = bare.cluster_ports
    return Surroundings(
        xds=[
            "+".join(f"{HOST}:{per_cluster[cluster][f'{port}XDS_PORT']}" for port in relays(cluster).values())
            for cluster in scenario.clusters
        ],
        otlp=[f"{HOST}:{per_cluster[cluster]['OTLP_GRPC_PORT']}" for cluster in scenario.clusters],
        toxiproxy=f"{HOST}:{bare.port('toxiproxy')}",
        templates=templates.read(INFRA),
        filter_wasm=HOME / "wasm/spillway_filter.wasm",
        out=bare.run,
    )


def _cluster(cluster: str, cluster_ports: Mapping[str, int]) -> str:
    user = bus.relay_user(cluster)
    values = {"CLUSTER": cluster, "NATS_USER": user, "NATS_PASSWORD": bus.password_variable(user)}
    return templates.AtTemplate((INFRA / "local/cluster.yaml").read_text()).substitute(
        values, **cluster_ports
    )


def topics(partitions: int) -> str:
    """Returns infra/kafka/topics.yaml with this number of partitions where several are declared."""
    declared = yaml.safe_load((INFRA / "kafka/topics.yaml").read_text())
    for topic in declared.values():
        if topic["partitions"] > 1:
            topic["partitions"] = partitions
    return yaml.safe_dump(declared, sort_keys=False)


def _environment(run: Path, clusters: list[str], shared: Mapping[str, int], policy: str) -> dict[str, str]:
    wanted = (*accounts.variables(INFRA), *map(bus.password_variable, bus.users(clusters)))
    # Passwords start with a letter, because NATS would read one that consists of digits as a
    # number.
    made = {name: f"s{secrets.token_hex(16)}" for name in wanted}
    _private(run / "secrets.env", "".join(f"{name}={value}\n" for name, value in made.items()))
    path = os.pathsep.join([str(HOME / "bin"), str(HOME / "venv/bin"), os.environ["PATH"]])
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")},
        **{name: str(port) for name, port in shared.items()},
        **made,
        "PATH": path,
        "PYTHONUNBUFFERED": "1",
        # Several threads of numpy and of the engine would only compete for the machine.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "SPILLWAY_HOME": str(HOME),
        "SPILLWAY_RUN": str(run),
        "SPILLWAY_POLICY": policy,
        "SPILLWAY_TOPOLOGY": str(run / "topology.yaml"),
        "SPILLWAY_GUARDRAILS": os.environ.get("SPILLWAY_GUARDRAILS", str(GUARDRAILS)),
        "SPILLWAY_STREAMS_SETTINGS": str(run / _STREAMS_SETTINGS),
        "SPILLWAY_TOPICS": str(run / _TOPICS),
        "SPILLWAY_XDS_IDENTITY": certificates.SERVICE_PATTERN,
        "SPILLWAY_CLUSTERS": ",".join(clusters),
        "SPILLWAY_KAFKA": f"{HOST}:{shared['KAFKA_PORT']}",
    }


def _private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
