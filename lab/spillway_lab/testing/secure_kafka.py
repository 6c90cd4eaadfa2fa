"""A real Kafka broker that refuses what acls.yaml does not allow: SASL (SCRAM-SHA-512) over TLS with client certificates.

    with secure_kafka(tmp_path, ["exclusive"]) as kafka:
        kafka.address                   # host:port of the secure listener
        kafka.environment("exclusive")  # SPILLWAY_KAFKA… of a user
        kafka.clear                     # host:port where a test is everything: on this machine alone

Users have random passwords. Nobody but the listener in clear, on which brokers talk to themselves, is a super user.
"""

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spillway_lab.testing import servers
from spillway_lab.testing.kafka import kafka_server_of
from spillway_lab.testing.tls_files import TlsFiles, tls_files

SASL = "SCRAM-SHA-512"
_LISTENER = """
listeners=PLAINTEXT://${{env:KAFKA_LISTEN}},CONTROLLER://${{env:KAFKA_CONTROLLER_LISTEN}},SECURE://{address}
advertised.listeners=PLAINTEXT://${{env:KAFKA_ADVERTISED}},SECURE://{address}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.secure.sasl.enabled.mechanisms={mechanism}
listener.name.secure.{name}.sasl.jaas.config=\\
  org.apache.kafka.common.security.{login};
"""
_RIGHTS = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:ANONYMOUS
auto.create.topics.enable=false
"""


def listener(folder: Path, address: str, tls: TlsFiles, mechanism: str, login: str) -> str:
    """Settings of a second listener, which wants a certificate of `tls` and a password; `folder` takes its key.
    `login` is the mechanism's JAAS module below org.apache.kafka.common.security, with its options."""
    keystore = folder / "keystore.pem"
    keystore.touch(mode=0o600)
    keystore.write_bytes(tls.key.read_bytes() + tls.certificate.read_bytes() + tls.ca.read_bytes())
    return _LISTENER.format(
        address=address,
        keystore=keystore,
        ca=tls.ca,
        mechanism=mechanism,
        name=mechanism.lower(),
        login=login,
    )


@dataclass(frozen=True)
class SecureKafka:
    clear: str
    address: str
    tls: TlsFiles
    folder: Path

    def environment(self, user: str) -> dict[str, str]:
        return {
            "SPILLWAY_KAFKA": self.address,
            "SPILLWAY_KAFKA_TLS_CA": str(self.tls.ca),
            "SPILLWAY_KAFKA_TLS_CERT": str(self.tls.certificate),
            "SPILLWAY_KAFKA_TLS_KEY": str(self.tls.key),
            "SPILLWAY_KAFKA_SASL": SASL,
            "SPILLWAY_KAFKA_SASL_USER": user,
            "SPILLWAY_KAFKA_SASL_PASSWORD_FILE": str(self.folder / f"{user}.password"),
        }


@contextlib.contextmanager
def secure_kafka(tmp_path: Path, users: list[str]) -> Iterator[SecureKafka]:
    """Without topics and without rights: those are for whoever starts it to make."""
    tls = tls_files(tmp_path / "tls")
    made = SecureKafka("", f"127.0.0.1:{servers.free_port()}", tls, tmp_path)
    for user in users:
        file = tmp_path / f"{user}.password"
        file.touch(mode=0o600)
        file.write_text("p" + secrets.token_hex(12))
    server = kafka_server_of(tmp_path)
    with (tmp_path / "kafka" / "server.properties").open("a") as properties:
        properties.write(
            listener(tmp_path, made.address, tls, SASL, "scram.ScramLoginModule required") + _RIGHTS
        )
    _format(server.environment, tmp_path, users)
    with servers.running(server):
        yield SecureKafka(server.url, made.address, tls, tmp_path)


def _format(environment: dict[str, str], folder: Path, users: list[str]) -> None:
    """Writes the users' credentials into a new data folder. RuntimeError with what the tool said."""
    scram = [
        argument
        for user in users
        for argument in (
            "--add-scram",
            f"{SASL}=[name={user},password={(folder / f'{user}.password').read_text()}]",
        )
    ]
    done = subprocess.run(
        ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{environment['KAFKA_LIBS']}/*",
         "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQAGAAAAAAAAAAA", "-c", environment["KAFKA_CONFIG"], *scram],
        env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"format ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
