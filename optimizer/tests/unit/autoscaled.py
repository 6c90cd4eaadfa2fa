"""A mesh with an autoscaled backend in the west: the service's decisions against an emulated plant.

The plant is fluid: loads follow weights at once, times follow the curve, and pods the algorithm of
Kubernetes. Demand has the noise of counts over 5 s.
"""

import copy
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from google.protobuf import json_format
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.solving.config import OptimizerTuning, PapaTuning
from spillway_optimizer.steps.stepping import Stepping

MODEL = json.loads(
    (Path(__file__).resolve().parents[3] / "contracts" / "golden" / "3_model.json").read_text()
)
BEGIN, STEP_S, SETTLED_S = 1767225631.0, 5, 180
POD_RPS, EAST_RPS = 100.0, 3000.0
ENTRY, FRONTEND, BACKEND = (f"{name} GET /items/{{id}}" for name in ("gateway", "frontend", "backend"))
RTT_MS, BACKEND_A_MS, BACKEND_B_MS = 8.0, 4.0, 6.0


def topology(target: float | None, most: int) -> Topology:
    """Two clusters. Without a target, no autoscaler is declared."""
    scaled = {} if target is None else {"autoscaler": {"target_utilisation": target, "max_pods": most}}
    link = {"rtt_ms": RTT_MS, "egress_usd_per_gb": 0.01}
    document = {
        "clusters": [{"name": "west", "region": "w"}, {"name": "east", "region": "e"}],
        "links": [
            {"source_cluster": "west", "destination_cluster": "east"} | link,
            {"source_cluster": "east", "destination_cluster": "west"} | link,
        ],
        "services": [{"name": "backend", "placements": [{"cluster": "west"} | scaled, {"cluster": "east"}]}],
        "usd_per_ms_per_million_requests": 0.1,
    }
    return json_format.ParseDict(document, Topology())


@dataclass
class Horizontal:
    """The algorithm of Kubernetes: a period of 15 s, and a tolerance of a tenth."""

    target: float
    most: int
    pods: int
    start_s: float = 30.0
    stabilisation_s: float = 300.0
    broken: bool = False
    starting: list[float] = field(default_factory=list)
    advice: list[tuple[float, int]] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)  # pods, since the last decision

    def act(self, now: float, load_pods: float) -> None:
        """Pods that have started are ready. Every 15 s, their number follows the mean utilisation.

        `load_pods`: the load, in what pods serve at most.
        """
        self.busy.append(min(load_pods, self.pods))
        self.pods += sum(at <= now for at in self.starting)
        self.starting = [at for at in self.starting if at > now]
        if (now - BEGIN) % 15 or self.broken:
            return
        wanted, ratio = self.pods + len(self.starting), np.mean(self.busy) / self.pods / self.target
        self.busy = []
        idle = ratio * self.pods / wanted  # those that start count as idle
        if ratio < 0.9 or (ratio > 1.1 and idle > 1.1):
            counted, ratio = (self.pods, ratio) if ratio < 1 else (wanted, idle)
            wanted = min(max(math.ceil(round(counted * ratio, 9)), 1), self.most, 2 * wanted + 4)
        self.advice = [(at, n) for at, n in self.advice if at >= now - self.stabilisation_s]
        self.advice.append((now, wanted))
        all_pods = self.pods + len(self.starting)
        if wanted > all_pods:
            self.starting += [now + self.start_s] * (wanted - all_pods)
        elif (stable := max(n for _, n in self.advice)) < all_pods:
            self.pods, self.starting = stable, []


@dataclass(frozen=True)
class Moment:
    """What holds at one step: the west's pods, their utilisation, and the share that stays.

    The share is that of the west's own calls of the backend, of both hops together.
    """

    at_s: float
    pods: int
    utilisation: float
    stays: float


class Loop:
    """One optimizer, and PAPA unless it is left out, and the plant."""

    def __init__(
        self, autoscaler: Horizontal, declared: bool = True, seed: int | None = 1, papa: bool = False, **tuning: float
    ) -> None:  # fmt: skip
        mesh = topology(autoscaler.target if declared else None, autoscaler.most)
        settings = PapaTuning() if papa else None
        file = GuardrailFile(None, mesh)
        self._stepping = Stepping(mesh, "spillway", file, OptimizerTuning(**tuning), settings)
        self.autoscaler, self._at, self._stays = autoscaler, BEGIN, 1.0
        self._upstream = 1.0  # share of frontend's requests that stay in the west
        self._chance = None if seed is None else np.random.default_rng(seed)
        self._counts = [(BEGIN - SETTLED_S, autoscaler.pods)]

    def run(self, seconds: float, rps: float, east_rps: float = 300.0) -> list[Moment]:
        """Steps with these requests per second of each cluster's users."""
        found = []
        for _ in range(0, int(seconds), STEP_S):
            self._at += STEP_S
            pods = self.autoscaler.pods
            utilisation = rps * self._stays / (pods * POD_RPS)
            found.append(Moment(self._at - BEGIN, pods, utilisation, self._stays))
            self.autoscaler.act(self._at, rps * self._stays / POD_RPS)
            if self.autoscaler.pods != self._counts[-1][1]:
                self._counts.append((self._at, self.autoscaler.pods))
            model = self._model(rps, east_rps, min(utilisation, 0.99))
            answer = self._stepping.step(self._at, telemetry.from_document(model))
            self._upstream = _stays(answer["rules"], FRONTEND)
            self._stays = self._upstream * _stays(answer["rules"], BACKEND)
        return found

    def _settled(self) -> int:
        """Returns the fewest pods of the last three minutes."""
        old = [n for at, n in self._counts if at <= self._at - SETTLED_S]
        return min(old[-1:] + [n for at, n in self._counts if at > self._at - SETTLED_S])

    def _model(self, rps: float, east_rps: float, utilisation: float) -> dict:
        model, pods = copy.deepcopy(MODEL), self.autoscaler.pods
        for row in model["curves"]:
            if row["class"] == BACKEND:
                row |= {"a_ms": BACKEND_A_MS, "b_ms": BACKEND_B_MS}
        for row in model["capacities"]:
            west = (row["service"], row["cluster"]) == ("backend", "west")
            row["capacity_rps"] = POD_RPS * pods if west else EAST_RPS
            row |= {"pods": pods, "settled": self._settled()} if west else {}
        asked = {"west": self._noisy(rps), "east": self._noisy(east_rps)}
        here_ms = BACKEND_A_MS / (1 - utilisation) + BACKEND_B_MS
        there_ms = BACKEND_A_MS + BACKEND_B_MS + RTT_MS
        users_ms = {"west": self._stays * here_ms + (1 - self._stays) * there_ms + 6, "east": 16.0}
        backend = {"west": asked["west"] * self._stays, "east": asked["east"]}
        backend["east"] += asked["west"] - backend["west"]
        frontend = {"west": asked["west"] * self._upstream, "east": asked["east"]}
        frontend["east"] += asked["west"] - frontend["west"]
        for cluster in asked:
            for name, entry in model["load"][cluster].items():
                entry |= {"at": self._at, "failed_share": 0.0}
                entry["rps"] = {BACKEND: backend, FRONTEND: frontend, ENTRY: asked}[name][cluster]
            model["load"][cluster][BACKEND]["exclusive_ms"] = here_ms if cluster == "west" else 10.0
            model["demand"][cluster][ENTRY] |= {
                "at": self._at, "rps": asked[cluster], "duration_ms": users_ms[cluster]
            }  # fmt: skip
        for pair, entry in model["network"].items():
            entry |= {"at": self._at, "mean_ms": 0.4 if len(set(pair.split(">"))) == 1 else RTT_MS}
        services = {"gateway": 1, "frontend": 1}
        model["placement"] = {"west": services | {"backend": pods}, "east": services | {"backend": 1}}
        return model

    def _noisy(self, rps: float) -> float:
        return rps if self._chance is None else float(self._chance.poisson(5 * rps) / 5)


def _stays(rules: list[dict], class_id: str) -> float:
    for rule in rules:
        if (rule["source_cluster"], rule["class"]) == ("west", class_id):
            return rule["weights"].get("west", 0) / 10_000
    return 1.0
