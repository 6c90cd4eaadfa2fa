"""Two publishers of which the network separates one from NATS, again and again: the other leads."""

import asyncio
import contextlib
import random
import time
from urllib.parse import urlsplit, urlunsplit

import httpx
import pytest
from proposed import SPREAD
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_lab.testing import servers
from spillway_lab.testing.waiting import eventually_async

pytestmark = pytest.mark.component

BUCKET = "KV_spillway_rulesets"
DIRECTIONS = ("upstream", "downstream")
ROUNDS, EACH = 6, 6
OTHER = {"north": {"north": 5000, "south": 5000}, "south": {"south": 10_000}}


class Ways:
    """A way to NATS of its own for each publisher, by Toxiproxy."""

    def __init__(self, nats_url: str, address: str) -> None:
        self._url = urlsplit(nats_url)
        self._http = httpx.Client(base_url=f"http://{address}", trust_env=False)

    def open(self, name: str) -> str:
        """Opens a way. Returns the URL of NATS at its beginning."""
        listen = f"127.0.0.1:{servers.free_port()}"
        body = {
            "name": name,
            "listen": listen,
            "upstream": self._url.netloc.rpartition("@")[2],
            "enabled": True,
        }
        self._http.post("/proxies", json=body).raise_for_status()
        user = self._url.netloc.rpartition("@")[0]
        return urlunsplit(self._url._replace(netloc=f"{user}@{listen}" if user else listen))

    def cut(self, name: str) -> None:
        """Drops every byte in both directions. Connections stay open, as in a real partition."""
        for stream in DIRECTIONS:
            toxic = {"name": stream, "type": "timeout", "stream": stream, "attributes": {"timeout": 0}}
            self._http.post(f"/proxies/{name}/toxics", json=toxic).raise_for_status()

    def heal(self, name: str) -> None:
        """Lets bytes pass again, on new connections: those that have lost some are closed."""
        for stream in DIRECTIONS:
            self._http.delete(f"/proxies/{name}/toxics/{stream}").raise_for_status()
        for enabled in (False, True):
            self._http.post(f"/proxies/{name}", json={"enabled": enabled}).raise_for_status()

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def ways(world):
    port = servers.free_port()
    process = servers.Server(
        url=f"http://127.0.0.1:{port}/version",
        command=[
            str(servers.ROOT / ".spillway/bin/toxiproxy-server"),
            "-host",
            "127.0.0.1",
            "-port",
            str(port),
        ],
        log=world.folder / "toxiproxy.log",
        ready=lambda: _answers(process.url),
    )
    with servers.running(process):
        made = Ways(world.nats.url, f"127.0.0.1:{port}")
        yield made
        made.close()


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, trust_env=False).status_code == 200
    return False


async def writes(world) -> list[tuple[str, Ruleset]]:
    """Returns every value ever written, in the server's order: cluster and ruleset."""
    js, found = await world.jetstream(), []
    state = (await js.stream_info(BUCKET)).state
    for sequence in range(state.first_seq, state.last_seq + 1):
        message = await js.get_msg(BUCKET, sequence)
        found.append((message.subject.rpartition(".")[2], Ruleset.FromString(message.data)))
    return found


async def test_versions_of_two_partitioned_publishers_never_go_backwards(world, ways, make):
    """Each of them in turn is cut off at a random moment, while proposals keep coming.

    Every proposal is published once, under one version in every cluster, and each key's versions
    only rise, also when the one that was cut off comes back with what it had decided. The other
    takes over within the time that NATS waits for an acknowledgement.
    """
    for name in ("a", "b"):
        world.publisher(SPILLWAY_NATS_URL=ways.open(name))
    chance, proposals, took = random.Random(5), [], []
    for n in range(ROUNDS):
        name = "ab"[n % 2]
        cut_after = chance.randrange(EACH)
        for i in range(EACH):
            proposals.append(make(SPREAD if i % 2 else OTHER))
            await world.propose(proposals[-1])
            await asyncio.sleep(chance.uniform(0, 0.01))
            if i == cut_after:
                ways.cut(name)
                began = time.monotonic()
        await world.published(proposals[-1])
        took.append(time.monotonic() - began)
        ways.heal(name)
        await asyncio.sleep(1)
    written, versions, latest = await writes(world), {}, {}
    for cluster, ruleset in written:
        assert ruleset.version > latest.get(cluster, 0), (cluster, ruleset.version, latest)
        latest[cluster] = ruleset.version
        versions.setdefault(ruleset.id, set()).add(ruleset.version)
    assert {proposal.id for proposal in proposals} == versions.keys()
    assert all(len(given) == 1 for given in versions.values())
    order = [versions[proposal.id].copy().pop() for proposal in proposals]
    assert order == sorted(set(order))
    assert len(written) == 3 * len(proposals)
    assert max(took) < 10, took

    async def both_lead() -> bool:
        return all(world.health(process)["status"] == 200 for process in world.publishers)

    await eventually_async(both_lead, "both publishers ready again")
