"""The WAN between clusters: Toxiproxy's delays.

Toxiproxy's configuration file cannot hold toxics, and a restart of Toxiproxy loses them. A keeper
process therefore compares Toxiproxy with the plan once a second and restores what is missing.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import httpx
from pydantic import Field, TypeAdapter, ValidationError

from spillway_lab.scenario.application import Model
from spillway_lab.scenario.errors import InvalidInput, LabError, from_validation

_STREAMS = ("upstream", "downstream")  # Toxiproxy's names for requests and responses
_OURS = "wan-"  # begins the names of the toxics that the plan decides


class WanLink(Model):
    """One proxy of wan.json (see render.wan)."""

    name: str
    listen: str
    upstream: str
    enabled: bool = True
    source_cluster: str
    destination_cluster: str
    rtt_ms: Annotated[float, Field(ge=0)]

    def proxy(self) -> dict:
        return {"name": self.name, "listen": self.listen, "upstream": self.upstream, "enabled": self.enabled}

    def toxics(self) -> dict[str, dict]:
        """Returns the delays in whole milliseconds, by name: half the round-trip time each way.

        An odd millisecond goes to the upstream direction.
        """
        total = round(self.rtt_ms)
        delays = {"upstream": total - total // 2, "downstream": total // 2}
        return {
            f"{_OURS}{stream}": {
                "name": f"{_OURS}{stream}",
                "type": "latency",
                "stream": stream,
                "toxicity": 1.0,
                "attributes": {"latency": delays[stream], "jitter": 0},
            }
            for stream in _STREAMS
            if delays[stream] > 0
        }


def load_plan(path: Path) -> list[WanLink]:
    """Reads wan.json. Raises InvalidInput that lists what is wrong in it."""
    try:
        return TypeAdapter(list[WanLink]).validate_python(json.loads(path.read_text()))
    except ValidationError as error:
        raise from_validation(path, error) from error
    except (OSError, ValueError) as error:
        raise InvalidInput([f"{path}: cannot be read: {error}"]) from error


def repairs(plan: Iterable[WanLink], present: dict) -> list[tuple[str, str, dict]]:
    """Returns the requests (method, path, body) that bring Toxiproxy to the plan.

    `present` is the answer of GET /proxies. The list is empty when all is as planned. Proxies that
    the plan does not name, and toxics of others, are left alone.
    """
    needed: list[tuple[str, str, dict]] = []
    for link in plan:
        proxy = present.get(link.name)
        if proxy is None:
            needed.append(("POST", "/proxies", link.proxy()))
        elif any(proxy[key] != link.proxy()[key] for key in ("listen", "upstream", "enabled")):
            needed.append(("POST", f"/proxies/{link.name}", link.proxy()))
        toxics = {toxic["name"]: toxic for toxic in (proxy or {}).get("toxics", [])}
        for name, toxic in link.toxics().items():
            found = toxics.get(name)
            if found is None:
                needed.append(("POST", f"/proxies/{link.name}/toxics", toxic))
            elif found["attributes"] != toxic["attributes"] or found["toxicity"] != toxic["toxicity"]:
                needed.append(("POST", f"/proxies/{link.name}/toxics/{name}", toxic))
        for name in toxics:
            if name.startswith(_OURS) and name not in link.toxics():
                needed.append(("DELETE", f"/proxies/{link.name}/toxics/{name}", {}))
    return needed


class Wan:
    """Client of one Toxiproxy, for one plan."""

    def __init__(self, address: str, plan: list[WanLink], timeout_s: float = 5.0) -> None:
        self._plan = plan
        # Toxiproxy refuses requests whose user agent looks like a browser. Ours is httpx's default.
        self._http = httpx.Client(base_url=f"http://{address}", timeout=timeout_s, trust_env=False)

    def plan(self, plan: list[WanLink]) -> None:
        """Replaces the plan, which the next `apply` brings about."""
        self._plan = plan

    def apply(self) -> int:
        """Brings Toxiproxy to the plan and returns the number of changes. Repeating it is harmless.

        Raises LabError when Toxiproxy does not answer or refuses.
        """
        try:
            present = self._http.get("/proxies").raise_for_status().json()
            needed = repairs(self._plan, present)
            for method, path, body in needed:
                self._http.request(method, path, json=body or None).raise_for_status()
        except (httpx.HTTPError, ValueError) as error:
            raise LabError(f"toxiproxy at {self._http.base_url}: {error}") from error
        return len(needed)
