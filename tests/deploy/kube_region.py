"""A region's Kubernetes for tests, with a real API server (RBAC, client certificates).

The controllers and the scheduler are real too. kwok replaces kubelets, so pods run at once, and
only their objects are real. Several regions share one etcd, each with its own prefix.
"""

import contextlib
import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from spillway_lab.testing.programs import program
from spillway_lab.testing.servers import ROOT, Server, free_port

STAGES = ROOT / ".spillway" / "deploy" / "kwok"
OWN_STAGES = Path(__file__).with_name("kwok")
# Clients of the API server, and their groups.
USERS = {
    "administrator": "system:masters",
    "kwok": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}
_ZONES = ("a", "b", "c")
_VOLUMES = 40


def _pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _certificate(subject: list[x509.NameAttribute], key, signer, issuer: x509.Name, authority: bool) -> bytes:
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_users(folder: Path) -> None:
    """Writes the files of all users.

    They are clients.crt, the authority of clients; accounts.key of service accounts; and a .crt and
    .key per user.
    """
    authority = ec.generate_private_key(ec.SECP256R1())
    name = [x509.NameAttribute(NameOID.COMMON_NAME, "clients")]
    (folder / "clients.crt").write_bytes(_certificate(name, authority, authority, x509.Name(name), True))
    (folder / "accounts.key").write_bytes(_pem(rsa.generate_private_key(65537, 2048)))
    for user, group in USERS.items():
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            subject.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        (folder / f"{user}.crt").write_bytes(_certificate(subject, key, authority, x509.Name(name), False))
        (folder / f"{user}.key").write_bytes(_pem(key))


def etcd(folder: Path) -> Server:
    url, peers = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"

    def ready() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(url + "/health", timeout=5) as answer:
            return json.load(answer)["health"] == "true"
        return False

    command = [program("etcd"), "--data-dir", str(folder / "etcd"), "--listen-client-urls", url]
    command += ["--advertise-client-urls", url, "--listen-peer-urls", peers, "--log-level", "warn"]
    command += ["--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]
    return Server(url, [*command, "--unsafe-no-fsync"], folder / "etcd.log", ready)


@dataclass
class Region:
    """A region's API server and its other processes.

    `kubeconfig` has the context `name` of an administrator. `options` are additional options of the
    API server.
    """

    name: str
    folder: Path
    etcd: str
    options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    servers: list[Server] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "administrator.kubeconfig"

    @property
    def api_server(self) -> Server:
        return self.servers[0]

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        write_users(self.folder)
        self.servers = [self._api_server()]
        self.api_server.start()
        for user in USERS:
            self._write_kubeconfig(user)
        self.servers += [self._controllers(), self._scheduler(), self._kwok()]
        self._furnish()
        for server in self.servers[1:]:
            server.start()

    def stop(self) -> None:
        for server in reversed(self.servers):
            server.stop()

    def _api_server(self) -> Server:
        def ready() -> bool:
            with contextlib.suppress(OSError, ssl.SSLError, KeyError):
                return self.get("/readyz") == "ok"
            return False

        accounts = str(self.folder / "accounts.key")
        command = [program("kube-apiserver"), "--etcd-servers", self.etcd, "--etcd-prefix", f"/{self.name}"]
        command += ["--bind-address", "127.0.0.1", "--secure-port", str(self.port)]
        command += ["--cert-dir", str(self.folder / "serving"), "--authorization-mode", "RBAC"]
        command += ["--client-ca-file", str(self.folder / "clients.crt")]
        command += ["--service-account-issuer", "https://kubernetes.default.svc"]
        command += ["--service-account-key-file", accounts, "--service-account-signing-key-file", accounts]
        command += ["--service-cluster-ip-range", "10.96.0.0/16", "--shutdown-delay-duration", "0s"]
        command += self.options
        return Server(self.url, command, self.folder / "api.log", ready)

    def _follower(self, name: str, *arguments: str) -> Server:
        return Server(self.url, [program(name), *arguments], self.folder / f"{name}.log", lambda: True)

    def _config(self, user: str) -> str:
        return str(self.folder / f"{user}.kubeconfig")

    def _controllers(self) -> Server:
        return self._follower(
            "kube-controller-manager",
            *("--kubeconfig", self._config("system:kube-controller-manager"), "--leader-elect=false"),
            *("--service-account-private-key-file", str(self.folder / "accounts.key"), "--secure-port", "0"),
            *("--root-ca-file", str(self.folder / "serving" / "apiserver.crt")),
            "--use-service-account-credentials=true",
        )

    def _scheduler(self) -> Server:
        config = self._config("system:kube-scheduler")
        arguments = ("--kubeconfig", config, "--leader-elect=false", "--secure-port", "0")
        return self._follower("kube-scheduler", *arguments)

    def _kwok(self) -> Server:
        stages = [*STAGES.glob("node/fast/*.yaml"), *STAGES.glob("node/heartbeat/*.yaml")]
        stages += STAGES.glob("pod/fast/*.yaml")
        # kustomization.yaml is not a stage.
        stages = sorted(str(path) for path in stages if path.name != "kustomization.yaml")
        stages += [str(path) for path in sorted(OWN_STAGES.glob("*.yaml"))]
        configs = [word for path in stages for word in ("--config", path)]
        kubeconfig = self._config("kwok")
        return self._follower("kwok", "--kubeconfig", kubeconfig, "--manage-all-nodes", *configs)

    def _write_kubeconfig(self, user: str) -> None:
        at = str(self.folder / user)
        cluster = {
            "server": self.url,
            "certificate-authority": str(self.folder / "serving" / "apiserver.crt"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": cluster}],
            "users": [{"name": user, "user": {"client-certificate": at + ".crt", "client-key": at + ".key"}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": user}}],
            "current-context": self.name,
        }
        (self.folder / f"{user}.kubeconfig").write_text(yaml.safe_dump(config))

    def _furnish(self) -> None:
        """Creates a node per zone, volumes, and the default storage class."""
        objects = [_node(self.name, zone) for zone in _ZONES] + [_storage_class()]
        self.apply([*objects, *(_volume(number) for number in range(_VOLUMES))])

    def apply(self, objects: list[dict]) -> None:
        text = yaml.safe_dump_all(objects)
        self.kubectl("apply", "--server-side", "-f", "-", stdin=text)

    def define_istio(self, version: str = "pilot-discovery") -> None:
        """Installs Istio's definitions, to which the API server then holds Istio's objects.

        The definitions are those that came with the program `version`.
        """
        definitions = ROOT / ".spillway/deploy" / version / "crd-all.gen.yaml"
        self.kubectl("apply", "--server-side", "-f", str(definitions))
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Returns kubectl's output. Raises RuntimeError with its error output when it fails."""
        command = [program("kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name}: kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def items(self, kind: str, namespace: str = "spillway") -> list[dict]:
        return json.loads(self.kubectl("get", kind, "-n", namespace, "-o", "json"))["items"]

    def get(self, path: str) -> str:
        at = self.folder / "administrator"
        context = ssl.create_default_context(cafile=str(self.folder / "serving" / "apiserver.crt"))
        context.load_cert_chain(f"{at}.crt", f"{at}.key")
        with urllib.request.urlopen(self.url + path, timeout=10, context=context) as answer:
            return answer.read().decode()


def _node(region: str, zone: str) -> dict:
    room = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"{region}-{zone}",
            "labels": {
                "kubernetes.io/hostname": f"{region}-{zone}",
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": f"{region}-{zone}",
            },
        },
        "status": {"allocatable": room, "capacity": room},
    }


def _storage_class() -> dict:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "volumes",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
    }


def _volume(number: int) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"volume-{number}"},
        "spec": {
            "capacity": {"storage": "200Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "volumes",
            "hostPath": {"path": f"/volumes/{number}"},
        },
    }


@contextlib.contextmanager
def region_maker(folder: Path) -> Iterator[Callable[..., Region]]:
    """Yields make(name, *options), which starts a region. All regions end with the block."""
    made: list[Region] = []
    store = etcd(folder)

    def make(name: str, *options: str) -> Region:
        region = Region(name, folder / name, store.url, options)
        made.append(region)
        region.start()
        return region

    try:
        store.start()
        yield make
    finally:
        for region in made:
            region.stop()
        store.stop()
