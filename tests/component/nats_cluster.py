"""The bundled NATS as the chart's pods run it: three servers, each with a reloader.

They use the rendered configuration and mounts. Their certificates have the key usages that
Terraform issues.
"""

import json
import re
import secrets
import shutil
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import nats
from nats.aio.client import Client
from permitted_nats import INBOXES
from spillway_contracts import names
from spillway_lab.render import bus, templates
from spillway_lab.testing import servers
from spillway_lab.testing.tls_files import Authority

SERVERS = 3
RELOADER = servers.ROOT / ".spillway/bin/nats-server-config-reloader"
CERTIFICATES = servers.ROOT / "terraform/modules/identity/certificates.tf"


def issued_uses(kind: str) -> list[str]:
    """Returns the key usages that Terraform's module identity gives to a `server` or a `peer`.

    A NATS server is a `peer`.
    """
    [words] = re.findall(rf"^ +{kind} += \[(.*)\]$", CERTIFICATES.read_text(), re.MULTILINE)
    return re.findall(r'"(\w+)"', words)


def users_conf(passwords: Mapping[str, str]) -> str:
    """Returns the Secret's key users.conf for these users, as Terraform renders it."""
    texts = templates.read(servers.ROOT / "infra")
    clusters = [user.removeprefix("relay-") for user in passwords if user.startswith("relay-")]
    files = bus.configuration(clusters, texts)
    users = [
        re.sub(r"\$\w+_PASSWORD", json.dumps(passwords[user]), files[f"nats/users/{user}.conf"])
        for user in passwords
    ]
    return "users: [\n" + "\n".join(f"{{\n{user}\n}}" for user in users) + "\n]\n"


class Volume:
    """A projected volume as the kubelet lays it out.

    Its files are links into a folder that is replaced as a whole.
    """

    def __init__(self, at: Path) -> None:
        self.at, self._versions = at, 0
        at.mkdir(parents=True)

    def lay(self, files: Mapping[str, bytes]) -> None:
        self._versions += 1
        folder, current, following = (
            self.at / name for name in (f"..{self._versions}", "..data", "..data_tmp")
        )
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        previous = current.resolve() if current.exists() else None
        following.symlink_to(folder.name)
        following.replace(current)
        for top in {name.partition("/")[0] for name in files}:
            if not (self.at / top).is_symlink():
                (self.at / top).symlink_to(f"..data/{top}")
        if previous:
            shutil.rmtree(previous)


class Pod:
    """One server and its reloader, with the volume that both mount."""

    def __init__(self, folder: Path, index: int, client: int) -> None:
        self.folder, self.name, self.client = folder, f"spillway-nats-{index}", client
        self.monitor, self.leaf = servers.free_port(), servers.free_port()
        (folder / "run").mkdir(parents=True)
        self.config = Volume(folder / "config")
        self.server = servers.Server(
            url=f"tls://127.0.0.1:{client}",
            command=[str(servers.BIN / "nats-server"), "-c", str(self.config.at / "nats.conf")],
            environment={"POD_NAME": self.name},
            log=folder / "server.log",
            ready=lambda: servers.answers(client, b"", b"INFO "),
        )

    def here(self, text: str, ports: Mapping[str, str]) -> str:
        """Replaces addresses and paths by those of this machine and leaves the rest as rendered."""
        moved = {"/etc/nats": str(self.config.at), "/run/nats": str(self.folder / "run")}
        for from_pod, on_machine in {**ports, **moved}.items():
            text = text.replace(from_pod, on_machine)
        return text

    def reloader(self, arguments: list[str]) -> servers.Server:
        """Returns the reloader beside the server, with the container's own arguments.

        It is ready when it watches the files.
        """
        log = self.folder / "reloader.log"
        return servers.Server(
            url="", command=[str(RELOADER), *(self.here(argument, {}) for argument in arguments)], log=log,
            ready=lambda: log.exists() and "ready to kick" in log.read_text(),
        )  # fmt: skip

    def monitored(self, page: str) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}/{page}", timeout=10) as answer:
            return json.load(answer)

    def shown(self) -> bytes:
        """Returns the certificate that the server shows to a new client, as PEM."""
        with socket.create_connection(("127.0.0.1", self.client), timeout=10) as connection:
            connection.recv(4096)  # INFO, in cleartext
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(connection) as secured:
                return ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True)).encode()

    def routes(self) -> set[str]:
        """Names of the servers to which this one has routes."""
        return {route["remote_name"] for route in self.monitored("routez").get("routes", [])}


class Cluster:
    """The NATS servers and their certificates.

    `configuration` is the rendered nats.conf. `uses` are the key usages of the servers'
    certificate.
    """

    def __init__(self, folder: Path, configuration: str, uses: Collection[str]) -> None:
        self.authority, self._uses = Authority(), uses
        self.passwords = {user: f"s{secrets.token_hex(16)}" for user in bus.users(["west"])}
        self.pods = [Pod(folder / f"pod{index}", index, servers.free_port()) for index in range(SERVERS)]
        routes = [servers.free_port() for _ in self.pods]
        self._configurations = [
            self._configuration(pod, configuration, routes[index], routes)
            for index, pod in enumerate(self.pods)
        ]
        self.certificate = self.renewed()
        self.lay()

    @staticmethod
    def _configuration(pod: Pod, text: str, route: int, routes: list[int]) -> str:
        ports = {
            "0.0.0.0:4222": f"127.0.0.1:{pod.client}",
            "0.0.0.0:6222": f"127.0.0.1:{route}",
            "0.0.0.0:8222": f"127.0.0.1:{pod.monitor}",
            "store_dir: /data": f"store_dir: {pod.folder}/data",
        }
        for index, port in enumerate(routes):
            ports[f"spillway-nats-{index}.spillway-nats.spillway.svc:6222"] = f"127.0.0.1:{port}"
        if "leafnodes" in text:
            ports["0.0.0.0:7422"] = f"127.0.0.1:{pod.leaf}"
        missing = [address for address in ports if address not in text]
        assert missing == []
        return pod.here(text, ports)

    def renewed(self) -> tuple[bytes, bytes]:
        """Returns another certificate and its key, from the same authority."""
        return self.authority.issue(self._uses)

    def lay(self) -> None:
        """Gives every pod the current content of Secrets and ConfigMap."""
        certificate, key = self.certificate
        for pod, text in zip(self.pods, self._configurations, strict=True):
            files = {"nats.conf": text.encode(), "users.conf": users_conf(self.passwords).encode()}
            tls = {"tls/tls.crt": certificate, "tls/tls.key": key, "tls/ca.crt": self.authority.pem}
            pod.config.lay(files | tls)

    @contextmanager
    def running(self, reloader: list[str] | None = None) -> Iterator["Cluster"]:
        """Runs all servers, with a reloader beside each if `reloader` gives its arguments."""
        with ExitStack() as stack:
            for pod in self.pods:
                stack.enter_context(servers.running(pod.server))
                if reloader is not None:
                    stack.enter_context(servers.running(pod.reloader(reloader)))
            yield self

    def whole(self) -> bool:
        """Whether every server has routes to both others."""
        everyone = {pod.name for pod in self.pods}
        return all(pod.routes() == everyone - {pod.name} for pod in self.pods)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.pem.decode())

    @asynccontextmanager
    async def user(
        self, name: str, password: str | None = None, at: Pod | None = None
    ) -> AsyncIterator[Client]:
        """Yields a user's connection to any of the servers.

        With `at` it connects to that server only and does not reconnect.
        """
        relays = names.NATS_INBOX_RELAY.format(cluster=name.removeprefix("relay-"))
        client = await nats.connect(
            [at.server.url] if at else [pod.server.url for pod in self.pods], tls=self.context(),
            user=name, password=password or self.passwords[name], inbox_prefix=INBOXES.get(name, relays),
            allow_reconnect=at is None, max_reconnect_attempts=-1, reconnect_time_wait=0.2,
        )  # fmt: skip
        try:
            yield client
        finally:
            await client.close()
