"""Settings of every box's connections (prefix SPILLWAY_), with their checks at the start.

An authority (`…_CA`) is a PEM file, whose certificates alone are trusted, or `system`: the root
certificates of this machine, to which the certificates of managed servers chain. Unset means
`system`.

TLS is the default. To Kafka it is off with SPILLWAY_KAFKA_TLS=off, or when every broker is this
machine and no TLS or SASL setting is given. A plain-text URL (nats, redis, clickhouse, and http of
a token endpoint) is accepted for this machine. With SPILLWAY_PLAINTEXT=allow it is accepted for any
host, which is meant for a network inside one host. No error repeats a value that may be a secret.
"""

import ipaddress
import os
import re
import ssl
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pydantic import BaseModel, SecretStr, ValidationInfo, field_validator
from spillway_runtime import tls
from spillway_runtime.tls import Authorities

if TYPE_CHECKING:
    from spillway_contracts.kafka_tokens import Tokens

T = TypeVar("T")
PLAINTEXT = "SPILLWAY_PLAINTEXT"
# plain-text scheme -> scheme over TLS
_SECURE = {"nats": "tls", "redis": "rediss", "clickhouse": "clickhouses"}
# URL options that set TLS or further hosts. Both belong to the settings and are checked there.
_NOT_IN_URLS = (
    "ssl",
    "secure",
    "verify",
    "check_hostname",
    "server_hostname",
    "ca_certs",
    "ciphers",
    "alt_hosts",
)


def is_loopback(host: str) -> bool:
    """Returns whether the host is a loopback address or `localhost`. Resolves no name."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_url(value: str, plain: str) -> None:
    """Raises ValueError unless the value is a URL of scheme `plain` or of its scheme over TLS.

    A plain-text URL must be allowed. NATS URLs separated by commas are checked one by one.
    """
    secure = _SECURE[plain]
    form = f"must be {plain}://user:password@host:port, or {secure}:// for TLS"
    for url in value.split(",") if plain == "nats" else [value]:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError(form) from None
        if parts.scheme not in (plain, secure) or not host or port == 0:
            raise ValueError(form)
        for option, _ in parse_qsl(parts.query, keep_blank_values=True):
            if option.lower().startswith(_NOT_IN_URLS):
                raise ValueError(
                    f"option {option!r} in the URL; must be without options for TLS and further hosts"
                )
        if parts.scheme == plain:
            _check_clear(plain, secure, host)


def check_endpoint(value: str) -> None:
    """Raises ValueError unless the value is an https:// URL, or an http:// URL that is allowed."""
    form = "must be https://host[:port]/path, without user and fragment"
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(form) from None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise ValueError(form)
    if "@" in parts.netloc or "#" in value or re.search(r"\s", value):
        raise ValueError(form)
    if parts.scheme == "http":
        _check_clear("http", "https", host)


def _check_clear(plain: str, secure: str, host: str) -> None:
    if not is_loopback(host) and not _plaintext_allowed():
        raise ValueError(
            f"{plain}:// in clear text to another host; must be {secure}://, or set {PLAINTEXT}=allow in an isolated network"
        )


def _plaintext_allowed() -> bool:
    choice = os.environ.get(PLAINTEXT, "")
    if choice not in ("", "allow"):
        raise ValueError(f"{PLAINTEXT} is {choice!r}; must be allow, or not set")
    return choice == "allow"


def _text(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _url(value: Any, plain: str) -> Any:
    if value is not None:
        check_url(_text(value), plain)
    return value


def _authority(value: Authorities | None, info: ValidationInfo, url: str, plain: str) -> Authorities | None:
    """Checks an authority, and that its URL uses TLS. The file of an authority is read."""
    if value is not None:
        tls.check(value)
        given = info.data.get(url)
        if given is not None and _text(given).startswith(f"{plain}://") and plain != "nats":
            raise ValueError(f"set, although SPILLWAY_{url.upper()} is {plain}://, without TLS")
    return value


class RedisWire(BaseModel):
    """Connection to Redis.

    Over rediss:// the server's certificate and name are checked against the authority, by default
    the system's.
    """

    redis_url: Any
    redis_ca: Authorities | None = None

    @field_validator("redis_url", check_fields=False)
    @classmethod
    def _redis_url(cls, value: Any) -> Any:
        return _url(value, "redis")

    @field_validator("redis_ca")
    @classmethod
    def _redis_ca(cls, value: Authorities | None, info: ValidationInfo) -> Authorities | None:
        return _authority(value, info, "redis_url", "redis")

    def redis_options(self) -> dict[str, Any]:
        """Returns keyword arguments for redis_client.connect.

        The file is read again when it changes.
        """
        if not _text(self.redis_url).startswith("rediss://"):
            return {}
        return {"tls": tls.context(self.redis_ca, None, None)}


class ClickHouseWire(BaseModel):
    """Connection to ClickHouse; clickhouses:// is checked like rediss:// in RedisWire.

    `clickhouse_address` is the URL with the authority, for clickhouse-driver.
    """

    clickhouse_url: Any
    clickhouse_ca: Authorities | None = None

    @field_validator("clickhouse_url", check_fields=False)
    @classmethod
    def _clickhouse_url(cls, value: Any) -> Any:
        return _url(value, "clickhouse")

    @field_validator("clickhouse_ca")
    @classmethod
    def _clickhouse_ca(cls, value: Authorities | None, info: ValidationInfo) -> Authorities | None:
        return _authority(value, info, "clickhouse_url", "clickhouse")

    @property
    def clickhouse_address(self) -> str:
        return with_authority(_text(self.clickhouse_url), self.clickhouse_ca)


def with_authority(url: str, authority: Authorities | None) -> str:
    """Returns a ClickHouse URL with the file of the server's authority among its options.

    Over TLS the system's file of root certificates is the default.
    """
    parts = urlsplit(url)
    file: Path | str | None = tls.file_of(authority)
    if file is None and parts.scheme == "clickhouses":
        # Without a file, clickhouse-driver trusts certifi's bundle if installed, else the system's.
        file = ssl.get_default_verify_paths().cafile
    if file is None:
        return url
    query = [*parse_qsl(parts.query), ("ca_certs", str(file))]
    return urlunsplit(parts._replace(query=urlencode(query)))


class NatsWire(BaseModel, validate_default=True):
    """Connection to NATS, with the relay's rules.

    An authority requires TLS. The client's certificate and key must be given together.
    """

    nats_url: Any
    nats_ca: Authorities | None = None
    nats_cert: Path | None = None
    nats_key: Path | None = None

    @field_validator("nats_url", check_fields=False)
    @classmethod
    def _nats_url(cls, value: Any) -> Any:
        return _url(value, "nats")

    @field_validator("nats_ca")
    @classmethod
    def _nats_ca(cls, value: Authorities | None, info: ValidationInfo) -> Authorities | None:
        return _authority(value, info, "nats_url", "nats")

    @field_validator("nats_key", mode="after")
    @classmethod
    def _nats_pair(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        tls.check_pair(info.data.get("nats_cert"), value)
        return value

    def nats_tls(self) -> ssl.SSLContext | None:
        """Returns the TLS context, or None for a plain-text connection.

        Its files are read again when they change.
        """
        wanted = any(url.startswith("tls://") for url in _text(self.nats_url).split(","))
        if not wanted and self.nats_ca is None and self.nats_cert is None:
            return None
        return tls.context(self.nats_ca, self.nats_cert, self.nats_key)


class KafkaWire(BaseModel, validate_default=True):
    """Connection to Kafka, with the names and rules of the collector's `run`."""

    kafka: str
    kafka_tls: Literal["on", "off"] | None = None
    kafka_tls_ca: Authorities | None = None
    kafka_tls_cert: Path | None = None
    kafka_tls_key: Path | None = None
    kafka_sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    kafka_sasl_user: str | None = None
    kafka_sasl_password_file: Path | None = None
    kafka_sasl_token_url: str | None = None
    kafka_sasl_token_ca: Authorities | None = None
    kafka_sasl_scope: str | None = None

    @field_validator("kafka")
    @classmethod
    def _brokers(cls, value: str) -> str:
        for part in value.split(","):
            host, _, port = part.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f"{value!r}: must be host:port with a port in 1..65535")
        return value

    @field_validator("kafka_tls_ca", "kafka_tls_cert", "kafka_tls_key", "kafka_sasl")
    @classmethod
    def _over_tls(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("kafka_tls") == "off":
            raise ValueError("set, although SPILLWAY_KAFKA_TLS is off")
        if info.field_name == "kafka_tls_ca" and value is not None:
            tls.check(value)
        if info.field_name == "kafka_tls_key":
            tls.check_pair(info.data.get("kafka_tls_cert"), value)
        return value

    @field_validator("kafka_sasl_user", "kafka_sasl_password_file")
    @classmethod
    def _with_sasl(cls, value: Any, info: ValidationInfo) -> Any:
        sasl = info.data.get("kafka_sasl")
        if bool(value) != bool(sasl) and "kafka_sasl" in info.data:
            raise ValueError(
                "not set; needed with SPILLWAY_KAFKA_SASL" if sasl else "set without SPILLWAY_KAFKA_SASL"
            )
        if info.field_name == "kafka_sasl_password_file" and value:
            _password(value)
        return value

    @field_validator("kafka_sasl_token_url", "kafka_sasl_token_ca", "kafka_sasl_scope")
    @classmethod
    def _with_oauthbearer(cls, value: Any, info: ValidationInfo) -> Any:
        if "kafka_sasl" not in info.data:
            return value
        if info.data["kafka_sasl"] != "OAUTHBEARER":
            if value:
                raise ValueError("set, although SPILLWAY_KAFKA_SASL is not OAUTHBEARER")
            return value
        if info.field_name == "kafka_sasl_token_url":
            if not value:
                raise ValueError("not set; needed with SPILLWAY_KAFKA_SASL=OAUTHBEARER")
            check_endpoint(value)
        if info.field_name == "kafka_sasl_token_ca":
            return _authority(value, info, "kafka_sasl_token_url", "http")
        return value

    @property
    def kafka_is_secure(self) -> bool:
        """Whether the connection uses TLS.

        It does with SASL, because passwords are never sent without it.
        """
        if self.kafka_tls is not None:
            return self.kafka_tls == "on"
        asked = (self.kafka_tls_ca, self.kafka_tls_cert, self.kafka_tls_key, self.kafka_sasl)
        return any(asked) or not all(
            is_loopback(address.rpartition(":")[0]) for address in self.kafka.split(",")
        )

    def kafka_client(self) -> dict[str, Any]:
        """Returns keyword arguments for an aiokafka client.

        The password is read now; certificates are read again whenever they change. With OAUTHBEARER
        all clients share their tokens, and the secret is read before each request for a token.
        """
        if not self.kafka_is_secure:
            return {"security_protocol": "PLAINTEXT"}
        context = tls.context(self.kafka_tls_ca, self.kafka_tls_cert, self.kafka_tls_key)
        if not self.kafka_sasl:
            return {"security_protocol": "SSL", "ssl_context": context}
        client = {
            "security_protocol": "SASL_SSL",
            "ssl_context": context,
            "sasl_mechanism": self.kafka_sasl,
        }
        if self.kafka_sasl == "OAUTHBEARER":
            return client | {"sasl_oauth_token_provider": self.kafka_tokens}
        return client | {
            "sasl_plain_username": self.kafka_sasl_user,
            "sasl_plain_password": _password(_given(self.kafka_sasl_password_file)),
        }

    @cached_property
    def kafka_tokens(self) -> "Tokens":
        """Token provider that all Kafka clients of these settings share."""
        from spillway_contracts.kafka_tokens import Endpoint, Tokens

        url = _given(self.kafka_sasl_token_url)
        over_tls = url.lower().startswith("https:")
        return Tokens(
            Endpoint(
                url,
                _given(self.kafka_sasl_user),
                partial(_password, _given(self.kafka_sasl_password_file)),
                self.kafka_sasl_scope,
                tls.context(self.kafka_sasl_token_ca, None, None) if over_tls else None,
            )
        )


def _given(setting: T | None) -> T:
    """Returns a setting that the chosen SASL mechanism needs."""
    assert setting is not None  # KafkaWire's validators refuse the mechanism without its settings
    return setting


def _password(file: Path) -> str:
    try:
        found = file.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{str(file)!r} is not a readable file: {type(error).__name__}") from None
    if not found:
        raise ValueError(f"{str(file)!r} is empty; must hold the password")
    return found
