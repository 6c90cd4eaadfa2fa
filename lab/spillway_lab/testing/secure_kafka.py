"""A real Kafka broker that refuses everything that acls.yaml does not allow.

It uses SASL (SCRAM-SHA-512) over TLS with client certificates:

    with secure_kafka(tmp_path, ["exclusive"]) as kafka:
        kafka.address                   # host:port of the secure listener
        kafka.environment("exclusive")  # SPILLWAY_KAFKA… of a user
        kafka.clear                     # host:port where a test has all rights; on this machine

With `token_life_s` users sign in by OAUTHBEARER instead, with tokens of `kafka.tokens`. Users have
random passwords. Only clients of the cleartext listener, which brokers use among themselves, are
super users.
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
from spillway_lab.testing.tokens import AUDIENCE, ISSUER, SCOPE, TokenServer, token_server

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
_TOKENS = """
listener.name.secure.oauthbearer.sasl.server.callback.handler.class=\\
  org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.secure.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={jwks}
listener.name.secure.oauthbearer.sasl.oauthbearer.expected.issuer={issuer}
listener.name.secure.oauthbearer.sasl.oauthbearer.expected.audience={audience}
# Connections end with their tokens, or show new ones.
listener.name.secure.oauthbearer.connections.max.reauth.ms=3600000
"""
_RIGHTS = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:ANONYMOUS
auto.create.topics.enable=false
"""


def listener(folder: Path, address: str, tls: TlsFiles, mechanism: str, login: str) -> str:
    """Returns the settings of a second listener that requires a certificate of `tls` and a
    password.

    `login` is the mechanism's JAAS module below org.apache.kafka.common.security, with its options.
    The listener's key is written to `folder`.
    """
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


def token_listener(folder: Path, address: str, tls: TlsFiles, tokens: TokenServer) -> str:
    """Returns the settings of a listener like `listener`, with tokens instead of passwords.

    The broker needs `token_options` in its environment.
    """
    login = "oauthbearer.OAuthBearerLoginModule required"
    return listener(folder, address, tls, "OAUTHBEARER", login) + _TOKENS.format(
        jwks=tokens.jwks.as_uri(), issuer=ISSUER, audience=AUDIENCE
    )


def token_options(tokens: TokenServer) -> dict[str, str]:
    """Environment of the broker's JVM that allows the URL of the token server's keys.

    Kafka reads keys only from URLs that this option allows.
    """
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.jwks.as_uri()}"
    return {"JDK_JAVA_OPTIONS": allowed}


def token_environment(tokens: TokenServer, tls: TlsFiles) -> dict[str, str]:
    return {
        "SPILLWAY_KAFKA_SASL": "OAUTHBEARER",
        "SPILLWAY_KAFKA_SASL_TOKEN_URL": tokens.url,
        "SPILLWAY_KAFKA_SASL_TOKEN_CA": str(tls.ca),
        "SPILLWAY_KAFKA_SASL_SCOPE": SCOPE,
    }


@dataclass(frozen=True)
class SecureKafka:
    clear: str
    address: str
    tls: TlsFiles
    folder: Path
    tokens: TokenServer | None = None

    def environment(self, user: str) -> dict[str, str]:
        return {
            "SPILLWAY_KAFKA": self.address,
            "SPILLWAY_KAFKA_TLS_CA": str(self.tls.ca),
            "SPILLWAY_KAFKA_TLS_CERT": str(self.tls.certificate),
            "SPILLWAY_KAFKA_TLS_KEY": str(self.tls.key),
            "SPILLWAY_KAFKA_SASL": SASL,
            "SPILLWAY_KAFKA_SASL_USER": user,
            "SPILLWAY_KAFKA_SASL_PASSWORD_FILE": str(self.folder / f"{user}.password"),
        } | (token_environment(self.tokens, self.tls) if self.tokens else {})


@contextlib.contextmanager
def secure_kafka(tmp_path: Path, users: list[str], token_life_s: int | None = None) -> Iterator[SecureKafka]:
    """Runs a broker without topics and without rights. The caller must create both."""
    tls, address = tls_files(tmp_path / "tls"), f"127.0.0.1:{servers.free_port()}"
    passwords = {user: "p" + secrets.token_hex(12) for user in users}
    for user, password in passwords.items():
        file = tmp_path / f"{user}.password"
        file.touch(mode=0o600)
        file.write_text(password)
    server, tokens = kafka_server_of(tmp_path), None
    with contextlib.ExitStack() as stack:
        if token_life_s is None:
            secured = listener(tmp_path, address, tls, SASL, "scram.ScramLoginModule required")
        else:
            tokens = stack.enter_context(token_server(tmp_path / "tokens", tls, passwords, token_life_s))
            secured = token_listener(tmp_path, address, tls, tokens)
            server.environment |= token_options(tokens)
        with (tmp_path / "kafka" / "server.properties").open("a") as properties:
            properties.write(secured + _RIGHTS)
        if token_life_s is None:
            _format(server.environment, tmp_path, users)
        stack.enter_context(servers.running(server))
        yield SecureKafka(server.url, address, tls, tmp_path, tokens)


def _format(environment: dict[str, str], folder: Path, users: list[str]) -> None:
    """Writes the users' credentials into a new data folder.

    Raises RuntimeError with the tool's output when the tool fails.
    """
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
