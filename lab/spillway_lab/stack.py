"""A running copy of the local stack: ports, secrets, rendered files and the supervisor.

    run/<name>/  secrets.env · topology.yaml, endpoints-*.yaml, envoy/ … (see render) · log/ · data/
"""

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template

from spillway_lab import files, pods, ports
from spillway_lab.pods import HOST, Plan
from spillway_lab.render import Surroundings, render
from spillway_lab.scenario import Scenario
from spillway_lab.supervisor import Supervisor

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".spillway"
SECRETS = (
    "REDIS_PASSWORD",
    "CLICKHOUSE_PASSWORD",
    "NATS_PROPOSER_PASSWORD",
    "NATS_PUBLISHER_PASSWORD",
    "NATS_RELAY_PASSWORD",
)


@dataclass(frozen=True)
class Stack:
    """Where a prepared copy is and how to reach its parts; it runs inside `running`."""

    scenario: Scenario
    run: Path
    environment: Mapping[str, str]  # of every process
    cluster_ports: Mapping[str, Mapping[str, int]]
    plan: Plan
    supervisor: Supervisor

    @property
    def redis_url(self) -> str:
        return self.environment["SPILLWAY_REDIS_URL"]

    @property
    def clickhouse_url(self) -> str:
        return self.environment["SPILLWAY_CLICKHOUSE_URL"]

    def port(self, name: str) -> int:
        return int(self.environment[ports.environment_name(name)])

    def nats_url(self, user: str) -> str:
        password = self.environment[f"NATS_{user.upper()}_PASSWORD"]
        return f"nats://{user}:{password}@{HOST}:{self.port('nats')}"

    def addresses(self) -> dict[str, str]:
        """What a person may want to reach, by name."""
        shared = {name: f"{HOST}:{self.port(name)}" for name in ("kafka", "nats", "redis", "clickhouse", "toxiproxy")}
        pods_ = {
            pod.name: f"http://{HOST}:{pod.inbound_port} (Envoy admin http://{HOST}:{pod.admin_port})"
            for pod in self.plan.pods
        }
        collectors = {f"collector-{c}": f"{HOST}:{p['OTLP_GRPC_PORT']} (OTLP gRPC)" for c, p in self.cluster_ports.items()}
        relays = {f"relay-{c}": f"http://{HOST}:{p['RELAY_HEALTH_PORT']}/status" for c, p in self.cluster_ports.items()}
        return shared | collectors | relays | pods_


def prepare(scenario: Scenario, name: str, policy: str, with_pods: bool = True) -> Stack:
    """Writes a fresh run folder for the scenario. Ports are free at the time of the call.

    Without pods there are no clusters' relays either: what is left takes spans in and makes curves.
    """
    run = HOME / "run" / name
    shutil.rmtree(run, ignore_errors=True)
    for folder in ("data", "log", "envoy"):
        (run / folder).mkdir(parents=True)
    for folder in ("kafka", "nats"):
        (run / "data" / folder).mkdir()
    shared, per_cluster = ports.assign(ports.free_base(), scenario.clusters, ports.declared(ROOT / "infra/ports.yaml"))
    lab_base = min(shared.values()) + ports.LAB_OFFSET
    for cluster in scenario.clusters:
        for role in ("collector", "relay"):
            (run / "data" / f"{role}-{cluster}").mkdir()
    rendered = render(scenario, lab_base, _surroundings(scenario, run, shared, per_cluster))
    for cluster, own in per_cluster.items():
        rendered[f"cluster-{cluster}.yaml"] = _cluster(cluster, own)
    files.write(run, rendered)
    environment = _environment(run, shared, policy)
    compose = [ROOT / "infra/local/process-compose.yaml"]
    compose += [run / f"cluster-{cluster}.yaml" for cluster in scenario.clusters]
    if with_pods:
        compose.append(run / "lab.process-compose.yaml")
    return Stack(
        scenario=scenario,
        run=run,
        environment=environment,
        cluster_ports=per_cluster,
        plan=pods.plan(scenario, lab_base),
        supervisor=Supervisor(run, compose, environment, ROOT),
    )


@contextmanager
def running(stack: Stack, only: list[str] | None = None) -> Iterator[Stack]:
    """Starts the stack (or only some processes and what they depend on); stops all of it at the end."""
    try:
        stack.supervisor.start(only or [])
        yield stack
    finally:
        stack.supervisor.stop()


def _surroundings(scenario: Scenario, run: Path, shared: Mapping, per_cluster: Mapping) -> Surroundings:
    return Surroundings(
        xds=[f"{HOST}:{per_cluster[c]['XDS_PORT']}" for c in scenario.clusters],
        otlp=[f"{HOST}:{per_cluster[c]['OTLP_GRPC_PORT']}" for c in scenario.clusters],
        toxiproxy=f"{HOST}:{shared['TOXIPROXY_PORT']}",
        envoy_template=(ROOT / "infra/envoy/pod.yaml").read_text(),
        filter_wasm=HOME / "wasm/spillway_filter.wasm",
        out=run,
    )


class _AtTemplate(Template):
    """@NAME@: the supervisor's own ${NAME} stay as they are."""

    delimiter = "@"
    pattern = r"@(?:(?P<escaped>@)|(?P<named>[A-Z_]+)@|(?P<braced>\b\B)|(?P<invalid>\b\B))"


def _cluster(cluster: str, own: Mapping[str, int]) -> str:
    return _AtTemplate((ROOT / "infra/local/cluster.yaml").read_text()).substitute({"CLUSTER": cluster, **own})


def _environment(run: Path, shared: Mapping[str, int], policy: str) -> dict[str, str]:
    made = {name: f"s{secrets.token_hex(16)}" for name in SECRETS}
    secret_file = run / "secrets.env"
    secret_file.touch(mode=0o600)
    secret_file.write_text("".join(f"{name}={value}\n" for name, value in made.items()))
    path = os.pathsep.join([str(HOME / "bin"), str(HOME / "venv/bin"), os.environ["PATH"]])
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")},
        **{name: str(port) for name, port in shared.items()},
        **made,
        "PATH": path,
        "PYTHONUNBUFFERED": "1",
        # numpy's and the engine's threads would only fight over the machine.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "SPILLWAY_HOME": str(HOME),
        "SPILLWAY_RUN": str(run),
        "SPILLWAY_POLICY": policy,
        "SPILLWAY_TOPOLOGY": str(run / "topology.yaml"),
        "SPILLWAY_KAFKA": f"{HOST}:{shared['KAFKA_PORT']}",
        "SPILLWAY_REDIS_URL": f"redis://:{made['REDIS_PASSWORD']}@{HOST}:{shared['REDIS_PORT']}/0",
        "SPILLWAY_CLICKHOUSE_URL": (
            f"clickhouse://spillway:{made['CLICKHOUSE_PASSWORD']}@{HOST}:{shared['CLICKHOUSE_PORT']}/spillway"
        ),
    }
