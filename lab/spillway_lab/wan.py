"""The WAN between clusters: Toxiproxy's delays, and the bytes that crossed it.

Toxiproxy's configuration file can carry no toxics and a restart forgets them, so a keeper process
compares what is there with the plan once a second and puts back what is missing."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
from pydantic import Field, TypeAdapter, ValidationError

from spillway_lab.application import Model
from spillway_lab.errors import InvalidInput, LabError, from_validation

_GB = 1e9  # clouds bill decimal gigabytes
_STREAMS = ("upstream", "downstream")  # Toxiproxy's names: requests, responses


class WanLink(Model):
    """One proxy of wan.json, see render.wan."""

    name: str
    listen: str
    upstream: str
    enabled: bool = True
    source_cluster: str
    destination_cluster: str
    rtt_ms: Annotated[float, Field(ge=0)]
    request_usd_per_gb: Annotated[float, Field(ge=0)]
    response_usd_per_gb: Annotated[float, Field(ge=0)]

    def proxy(self) -> dict:
        return {"name": self.name, "listen": self.listen, "upstream": self.upstream, "enabled": self.enabled}

    def toxics(self) -> dict[str, dict]:
        """By name: whole milliseconds of delay, the round trip's half each way (the odd one out
        goes upstream)."""
        total = round(self.rtt_ms)
        delays = {"upstream": total - total // 2, "downstream": total // 2}
        return {
            f"wan-{stream}": {
                "name": f"wan-{stream}",
                "type": "latency",
                "stream": stream,
                "toxicity": 1.0,
                "attributes": {"latency": delays[stream], "jitter": 0},
            }
            for stream in _STREAMS
            if delays[stream] > 0
        }


def load_plan(path: Path) -> list[WanLink]:
    """Reads wan.json; InvalidInput lists what is wrong in it."""
    try:
        return TypeAdapter(list[WanLink]).validate_python(json.loads(path.read_text()))
    except ValidationError as error:
        raise from_validation(path, error) from error
    except (OSError, ValueError) as error:
        raise InvalidInput([f"{path}: cannot be read: {error}"]) from error


def repairs(plan: Iterable[WanLink], present: dict) -> list[tuple[str, str, dict]]:
    """Requests (method, path, body) that bring Toxiproxy from what GET /proxies says to the plan;
    none when all is as planned. Proxies and toxics that the plan does not name are left alone."""
    needed: list[tuple[str, str, dict]] = []
    for link in plan:
        proxy = present.get(link.name)
        if proxy is None:
            needed.append(("POST", "/proxies", link.proxy()))
        elif any(proxy[key] != link.proxy()[key] for key in ("listen", "upstream")):
            needed.append(("POST", f"/proxies/{link.name}", link.proxy()))
        toxics = {toxic["name"]: toxic for toxic in (proxy or {}).get("toxics", [])}
        for name, toxic in link.toxics().items():
            found = toxics.get(name)
            if found is None:
                needed.append(("POST", f"/proxies/{link.name}/toxics", toxic))
            elif found["attributes"] != toxic["attributes"] or found["toxicity"] != toxic["toxicity"]:
                needed.append(("POST", f"/proxies/{link.name}/toxics/{name}", toxic))
    return needed


class Wan:
    """Client of one Toxiproxy, for one plan."""

    def __init__(self, address: str, plan: list[WanLink], timeout_s: float = 5.0) -> None:
        self._plan = plan
        # Toxiproxy refuses requests whose agent looks like a browser's; ours is httpx's own.
        self._http = httpx.Client(base_url=f"http://{address}", timeout=timeout_s, trust_env=False)

    def apply(self) -> int:
        """Brings Toxiproxy to the plan; returns how many changes that took. LabError when it is
        away or refuses. Harmless to repeat."""
        try:
            present = self._http.get("/proxies").raise_for_status().json()
            needed = repairs(self._plan, present)
            for method, path, body in needed:
                self._http.request(method, path, json=body).raise_for_status()
        except (httpx.HTTPError, ValueError) as error:
            raise LabError(f"toxiproxy at {self._http.base_url}: {error}") from error
        return len(needed)

    def traffic(self) -> "Traffic":
        """Bytes that crossed each proxy since Toxiproxy started. LabError when it is away or runs
        without -proxy-metrics."""
        try:
            return parse_metrics(self._http.get("/metrics").raise_for_status().text)
        except httpx.HTTPError as error:
            raise LabError(f"toxiproxy at {self._http.base_url}, -proxy-metrics: {error}") from error


@dataclass(frozen=True)
class Traffic:
    """Bytes sent on by each proxy: (proxy name, Toxiproxy stream) -> bytes since its start."""

    sent: dict[tuple[str, str], float]


_SAMPLE = re.compile(r"^toxiproxy_proxy_sent_bytes_total\{([^}]*)\}\s+(\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse_metrics(text: str) -> Traffic:
    """Reads Toxiproxy's Prometheus text. A proxy that nothing has crossed yet is not in it."""
    sent: dict[tuple[str, str], float] = {}
    for labels, value in _SAMPLE.findall(text):
        named = dict(_LABEL.findall(labels))
        key = (named["proxy"], named["direction"])
        sent[key] = sent.get(key, 0.0) + float(value)
    return Traffic(sent)


@dataclass(frozen=True)
class Egress:
    """What crossed between clusters in a time."""

    bytes_by_pair: dict[tuple[str, str], float]  # (from, to): direction of the bytes
    usd_per_hour: float


def egress(plan: Iterable[WanLink], before: Traffic, after: Traffic, seconds: float) -> Egress:
    """Bytes and cost between two readings, `seconds` apart. A counter that went down was restarted
    in between: what it shows then is all that is known."""
    totals: dict[tuple[str, str], float] = {}
    usd = 0.0
    for link in plan:
        for stream in _STREAMS:
            key = (link.name, stream)
            now, then = after.sent.get(key, 0.0), before.sent.get(key, 0.0)
            grown = now - then if now >= then else now
            pair = (link.source_cluster, link.destination_cluster)
            price = link.request_usd_per_gb
            if stream == "downstream":
                pair, price = pair[::-1], link.response_usd_per_gb
            totals[pair] = totals.get(pair, 0.0) + grown
            usd += grown / _GB * price
    return Egress(totals, usd * 3600 / seconds)
