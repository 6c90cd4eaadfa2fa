"""A leaf node beside the relays of cluster west.

It is a real server with infra/nats/leaf.conf, connected to the bundled NATS.
"""

from pathlib import Path

from nats_cluster import Cluster, users_conf
from spillway_lab.testing import servers

NAME, USER = "leaf-west", "relay-west"


def leaf_node(folder: Path, cluster: Cluster) -> servers.Server:
    """Returns a leaf node that logs in at the cluster's servers as its relay.

    Its own user has another password.
    """
    folder.mkdir()
    certificate, key = cluster.renewed()
    local, monitor = servers.free_port(), servers.free_port()
    passwords = {USER: f"local-{cluster.passwords[USER]}"}
    texts = {
        "leaf.conf": (servers.ROOT / "infra/nats/leaf.conf").read_bytes(),
        "users.conf": users_conf(passwords).encode(),
        "tls.crt": certificate, "tls.key": key, "ca.crt": cluster.authority.pem,
    }  # fmt: skip
    for name, content in texts.items():
        (folder / name).write_bytes(content)
    hub, standby, *_ = (
        f"tls://{USER}:{cluster.passwords[USER]}@127.0.0.1:{pod.leaf}" for pod in cluster.pods
    )
    environment = {
        "NATS_LEAF_NAME": NAME, "NATS_LISTEN": f"127.0.0.1:{local}", "NATS_MONITOR_LISTEN": f"127.0.0.1:{monitor}",
        "NATS_LEAF_CERT": str(folder / "tls.crt"), "NATS_LEAF_KEY": str(folder / "tls.key"),
        "NATS_HUB_CA": str(folder / "ca.crt"), "NATS_HUB_URL": hub, "NATS_STANDBY_URL": standby,
    }  # fmt: skip
    return servers.Server(
        url=f"tls://{USER}:{passwords[USER]}@127.0.0.1:{local}",
        command=[str(servers.BIN / "nats-server"), "-c", str(folder / "leaf.conf")],
        environment=environment, log=folder / "leaf.log",
        ready=lambda: servers.answers(local, b"", b"INFO "),
    )  # fmt: skip
