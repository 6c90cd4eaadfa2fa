"""Sends recorded traces through collector, Kafka, streams and ClickHouse, then plans a dry run."""

import gzip
import json
import math
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from clickhouse_driver import Client
from pydantic import Field, ValidationError

from spillway_lab.keys import keystore
from spillway_lab.report import questions, tables
from spillway_lab.report.progress import Progress
from spillway_lab.scenario.application import Model, read_yaml
from spillway_lab.scenario.errors import InvalidInput, LabError, from_validation
from spillway_lab.scenario.scenario import Cluster, Link, NotNegative
from spillway_lab.stack import stack
from spillway_lab.stack.stack import ROOT, Stack

SQL = ROOT / "docs/sql"
_START_S, _DRAIN_S, _SETTLED_S = 180.0, 180.0, 12.0


class Setting(Model):
    """Content of the file for `--setting`: origin of the traces, and the clusters to plan for."""

    recorded_cluster: str
    clusters: Annotated[dict[str, Cluster], Field(min_length=1)]
    links: list[Link]
    usd_per_ms_per_million_requests: NotNegative
    demand: dict[str, NotNegative]

    def unknown(self) -> list[str]:
        named = [
            ("recorded_cluster", self.recorded_cluster),
            *((f"demand.{name}", name) for name in self.demand),
        ]
        for i, link in enumerate(self.links):
            named += [(f"links[{i}].source_cluster", link.source_cluster)]
            named += [(f"links[{i}].destination_cluster", link.destination_cluster)]
        allowed = ", ".join(self.clusters)
        return [
            f"{key}: unknown cluster {name!r}; clusters: {allowed}"
            for key, name in named
            if name not in self.clusters
        ]


@dataclass(frozen=True)
class Recording:
    """One trace file: load recorded between two times in Unix seconds."""

    path: Path
    spans: int
    start: float
    end: float

    @property
    def name(self) -> str:
        return self.path.name.split(".")[0]


def load_setting(path: Path) -> Setting:
    """Reads a setting file. Raises InvalidInput that lists every wrong key."""
    try:
        setting = Setting.model_validate(read_yaml(path))
    except ValidationError as error:
        raise from_validation(path, error) from error
    if problems := setting.unknown():
        raise InvalidInput([f"{path}: {problem}" for problem in problems])
    return setting


def recordings(paths: list[Path]) -> list[Recording]:
    """Returns the files ordered by their start times.

    Raises InvalidInput that names the files that are not Jaeger UI JSON.
    """
    found, problems = [], []
    for path in paths:
        try:
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            starts = [
                span["startTime"] / 1e6 for trace in json.loads(data)["data"] for span in trace["spans"]
            ]
            found.append(Recording(path, len(starts), min(starts), max(starts)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems.append(f"{path}: not Jaeger UI JSON, {{'data': [trace, ...]}}: {error!r}")
    if problems:
        raise InvalidInput(problems)
    return sorted(found, key=lambda r: r.start)


def run(setting: Setting, files: list[Recording], name: str) -> None:
    """Sends the traces, waits until they are processed, and prints what was learned."""
    progress = Progress()
    cluster = setting.recorded_cluster
    prepared = stack.prepare_bare([cluster], name, policy="local")
    with stack.running(prepared, [*stack.STREAMS[stack.streams()], f"collector-{cluster}"]):
        prepared.supervisor.wait_ready(_START_S, progress.starting)
        progress.end("collector, Kafka and streams are ready")
        _send(prepared, files, cluster)
        client = Client.from_url(prepared.clickhouse_url())
        _drain(client, progress)
        _print_learned(client, files)
        _print_plan(client, setting, files, prepared)


def _send(running: Stack, files: list[Recording], cluster: str) -> None:
    command = ["python", "-m", "spillway_streams.recorded.send", "--cluster", cluster]
    command += ["--endpoint", f"127.0.0.1:{running.cluster_ports[cluster]['OTLP_GRPC_PORT']}"]
    held = running.sender(cluster)
    command += ["--ca", str(held / keystore.TRUST)]
    command += ["--cert", str(held / keystore.CERTIFICATE), "--key", str(held / keystore.KEY)]
    sent = subprocess.run(
        [*command, *(str(f.path.resolve()) for f in files)], env=dict(running.environment), cwd=ROOT
    )
    if sent.returncode:
        raise LabError(f"sending the traces ended with {sent.returncode}")


def _drain(client: Client, progress: Progress) -> None:
    """Waits until calls, edges and curve samples have been constant for _SETTLED_S seconds.

    Raises LabError after _DRAIN_S seconds.
    """
    progress.stage("streams")
    seen, since, deadline = None, time.monotonic(), time.monotonic() + _DRAIN_S
    while time.monotonic() < deadline:
        now = client.execute(
            "SELECT (SELECT count() FROM calls), (SELECT count() FROM edges), (SELECT sum(samples) FROM buckets)"
        )[0]
        if now != seen:
            seen, since = now, time.monotonic()
        progress.show(f"{now[0]} calls, {now[1]} edges")
        if now[0] and time.monotonic() - since > _SETTLED_S:
            progress.end(f"{now[0]} calls, {now[1]} edges")
            return
        time.sleep(0.5)
    raise LabError(f"streams were not done within {_DRAIN_S:.0f} s; calls and edges so far: {seen}")


def _print_learned(client: Client, files: list[Recording]) -> None:
    print(f"\nClasses ({sum(f.spans for f in files)} spans in {len(files)} files)\n")
    whole = {"start": min(f.start for f in files), "end": max(f.end for f in files)}
    print(tables.answer(client, SQL / "classes.sql", whole))
    print("\nCall graph\n")
    print(tables.answer(client, SQL / "who_calls_whom.sql", whole))
    print("\nOwn (exclusive) time at each load, mean ms (requests per second, corrected for sampling)\n")
    print(_own_times(client, files))
    print("\nCurves, L(u) = a / (1 - u) + b\n")
    print(tables.answer(client, SQL / "curves.sql"), flush=True)


def _own_times(client: Client, files: list[Recording]) -> str:
    """Returns a table with one row per class and one column per file, ordered by load."""
    cells: dict[str, dict[str, str]] = {}
    loads: dict[str, float] = {}
    for file in files:
        for name, rps, mean_ms, _ in _measured(client, file):
            cells.setdefault(name, {})[file.name] = f"{mean_ms:.2f} ({rps:.0f})"
            loads[file.name] = loads.get(file.name, 0.0) + rps
    names = sorted(loads, key=loads.__getitem__)
    return tables.text(
        ["class", *names], [[c, *(row.get(n) for n in names)] for c, row in sorted(cells.items())]
    )


def _measured(client: Client, file: Recording) -> list[tuple[str, float, float, float]]:
    return questions.ask(client, SQL / "own_time.sql", {"start": file.start, "end": file.end})[1]


def _print_plan(client: Client, setting: Setting, files: list[Recording], running: Stack) -> None:
    """Runs and prints a dry run of the solver for the recorded cluster and its copies.

    Demand is a share of what saturates the busiest service.
    """
    busiest = max(files, key=lambda f: sum(row[1] for row in _measured(client, f)))
    model = _model(client, setting, {name: rps for name, rps, *_ in _measured(client, busiest)})
    services = sorted({row["service"] for row in model["curves"]})
    document = {
        "clusters": [{"name": name, "region": cluster.region} for name, cluster in setting.clusters.items()],
        "links": [
            {
                "source_cluster": a,
                "destination_cluster": b,
                "rtt_ms": link.rtt_ms,
                "egress_usd_per_gb": link.egress_usd_per_gb,
            }
            for link in setting.links
            for a, b in _ways(link)
        ],
        "services": [{"name": s, "placements": [{"cluster": c} for c in setting.clusters]} for s in services],
        "usd_per_ms_per_million_requests": setting.usd_per_ms_per_million_requests,
    }
    model_file, topology_file = running.run / "model.json", running.run / "topology.yaml"
    model_file.write_text(json.dumps(model, default=str, indent=2))
    topology_file.write_text(yaml.safe_dump(document, sort_keys=False))
    shares = ", ".join(f"{share:.0%} of saturation in {name}" for name, share in setting.demand.items())
    print(f"\nWhat the solver would do: {shares}\n", flush=True)
    command: list[str | Path] = [
        "python",
        "-m",
        "spillway_optimizer",
        "plan",
        "--model",
        model_file,
        "--topology",
        topology_file,
    ]
    planned = subprocess.run(command, env=dict(running.environment), cwd=ROOT)
    if planned.returncode:
        raise LabError(f"the dry run ended with {planned.returncode}")


def _ways(link: Link) -> list[tuple[str, str]]:
    way = (link.source_cluster, link.destination_cluster)
    return [way, way[::-1]] if link.both_ways else [way]


def _model(client: Client, setting: Setting, rps: Mapping[str, float]) -> dict:
    """Returns the optimizer's input, in the shape of contracts/golden/3_model.json."""
    curves = _newest(client, "curves", "class", "fitted_at")
    capacities = _newest(client, "capacities", "service", "measured_at")
    ratios = _newest(client, "call_ratios", "source_class, class", "window_end")
    called = {row["class"] for row in ratios}
    entries = {name: rate for name, rate in rps.items() if name not in called}
    service_of = {row["class"]: row["service"] for row in curves}
    weight = {row["class"]: row["norm_weight"] for row in curves}
    load: dict[str, float] = {}
    for name, rate in rps.items():
        load[service_of[name]] = load.get(service_of[name], 0.0) + rate * weight[name]
    saturating = min(
        row["capacity_rps"] / load[row["service"]] for row in capacities if load.get(row["service"])
    )
    # Curves carry the time of fitting, and other rows the time of recording. All get one time,
    # because the plan is computed for one moment.
    at = max(row["fitted_at"] for row in curves)
    capacities = [
        row | {"cluster": cluster, "measured_at": at} for row in capacities for cluster in setting.clusters
    ]
    return {
        "curves": [row | {"fitted_at": at} for row in curves],
        "capacities": capacities,
        "call_ratios": [row | {"window_end": at} for row in ratios],
        "network_times": [],
        "load": {},
        "demand": {
            cluster: {
                name: {
                    "at": at.timestamp(),
                    "rps": rate * saturating * share,
                    "failed_share": 0.0,
                    "duration_ms": 0.0,
                }
                for name, rate in entries.items()
            }
            for cluster, share in setting.demand.items()
        },
        "network": {},
    }


def _newest(client: Client, table: str, key: str, at: str) -> list[dict]:
    """Returns the newest row of each `key`. NaN, which is unknown and not in JSON, becomes None."""
    rows, columns = client.execute(
        f"SELECT * FROM {table} ORDER BY {at} DESC LIMIT 1 BY {key}", with_column_types=True
    )
    return [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for (name, _), value in zip(columns, row, strict=True)
        }
        for row in rows
    ]
