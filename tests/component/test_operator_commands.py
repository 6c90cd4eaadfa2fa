"""The operator's commands as typed in Kubernetes: in the publisher's pod, with its rights."""

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import permitted_nats
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from permitted_nats import Bus
from spillway.v1.ruleset_pb2 import ORIGIN_OPTIMIZER, Ruleset
from spillway_contracts import names, traffic_class
from spillway_lab.testing import servers
from spillway_lab.testing.waiting import eventually_async

pytestmark = pytest.mark.component
NOBODY = "127.0.0.1:1"
TOPOLOGY = "clusters: [{name: west}]\nservices: [{name: cart, placements: [{cluster: west}]}]"


class Pod:
    """The publisher's pod with its NATS user and its keys. ClickHouse and Redis are away."""

    def __init__(self, folder: Path, bus: Bus) -> None:
        self.bus, self._folder = bus, folder
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        for name, content in (("key", private), ("keys", public), ("topology", TOPOLOGY.encode())):
            (folder / name).write_bytes(content)

    def environment(self, user: str) -> dict[str, str]:
        return {
            "SPILLWAY_NATS_URL": self.bus.url(user),
            "SPILLWAY_SIGNING_KEY": str(self._folder / "key"),
            "SPILLWAY_RULESET_KEYS": str(self._folder / "keys"),
            "SPILLWAY_TOPOLOGY": str(self._folder / "topology"),
            "SPILLWAY_REDIS_URL": f"redis://u:p@{NOBODY}",
            "SPILLWAY_CLICKHOUSE_URL": f"clickhouse://u:p@{NOBODY}/spillway",
        }

    def publisher(self) -> servers.Server:
        port = servers.free_port()
        return servers.Server(
            url=f"http://127.0.0.1:{port}/readyz",
            command=[sys.executable, "-m", "spillway_publisher", "run"],
            environment=self.environment("publisher") | {"SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{port}"},
            log=self._folder / "publisher.log",
            ready=lambda: servers.healthy(port),
        )

    def types(self, *arguments: str, user: str = "publisher") -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "spillway_publisher", *arguments]
        environment = os.environ | self.environment(user)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def status(self, user: str = "publisher") -> dict:
        """Returns the row of the only cluster."""
        done = self.types("status", "--json", user=user)
        assert done.returncode == 0, done.stderr
        return next(iter(json.loads(done.stdout)), {})

    async def proposes(self, path: str) -> int:
        """Proposes, as the optimizer, to send calls of this path to west.

        Returns the version in which the proposal is published.
        """
        before = self.status().get("version")
        async with self.bus.user("optimizer") as (client, _):
            subject = names.NATS_SUBJECT_PROPOSALS.format(origin="optimizer")
            await client.jetstream().publish(subject, proposal(path).SerializeToString(), timeout=30)

        async def published() -> bool:
            return self.status().get("version") != before

        await eventually_async(published, f"rules of {path} in force", seen=self.status)
        return self.status()["version"]


def proposal(path: str) -> Ruleset:
    """Returns a ruleset with one rule that is valid for ten minutes."""
    now = time.time_ns()
    ruleset = Ruleset(id=f"p{path}", origin=ORIGIN_OPTIMIZER, policy="spillway")
    ruleset.input_window.id = "w"
    ruleset.created_at.FromNanoseconds(now)
    ruleset.expires_at.FromNanoseconds(now + 600 * 10**9)
    of = traffic_class.parse(f"cart GET {path}")
    ruleset.traffic_classes.append(of)
    rule = ruleset.rules.add(source_cluster="west", source_service="shop", reason="cheapest")
    rule.traffic_class.CopyFrom(of)
    rule.destinations.add(cluster="west", weight=10_000)
    return ruleset


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Pod]:
    with permitted_nats.running(tmp_path, ["west"]) as bus:
        pod = Pod(tmp_path, bus)
        with servers.running(pod.publisher()):
            yield pod


async def test_status_and_rollback_are_one_command_in_the_publishers_pod(pod: Pod):
    """With the pod's user, `status` shows the same rules in force as the operator sees.

    `rollback` restores the previous rules. Neither needs ClickHouse or Redis.
    """
    first = await pod.proposes("/first")
    second = await pod.proposes("/second")
    done = pod.types("rollback", "--reason", "errors in checkout")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"is in force: the rules of version {first}\n")
    seen = {user: pod.status(user) for user in ("publisher", "operator")}
    assert seen["publisher"]["version"] == seen["operator"]["version"] > second
    assert seen["publisher"]["origin"] == "operator"
