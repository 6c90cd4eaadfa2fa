"""Connection settings: which are refused, and which options clients get for the others."""

import datetime
import os
import ssl
from pathlib import Path
from urllib.parse import urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import ValidationError
from spillway_contracts.wires import ClickHouseWire, KafkaWire, NatsWire, RedisWire
from spillway_runtime import tls

BROKERS = "kafka-1.test:9093,kafka-2.test:9093"


@pytest.fixture(autouse=True)
def _by_default(monkeypatch):
    monkeypatch.delenv("SPILLWAY_PLAINTEXT", raising=False)


def pair(folder: Path, name: str = "one") -> tuple[Path, Path]:
    """Writes a self-signed certificate and its key as PEM files. Returns their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject, now = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        datetime.datetime.now(datetime.UTC),
    )
    made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    hour = datetime.timedelta(hours=1)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    signed = made.not_valid_before(now - hour).not_valid_after(now + hour).sign(key, hashes.SHA256())
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return files


def wrong(kind: type, **given) -> dict[str, str]:
    """Returns the error of each refused field. No error may contain the secret."""
    with pytest.raises(ValidationError) as refused:
        kind(**given)
    assert all("top-secret" not in error["msg"] for error in refused.value.errors())
    return {str(error["loc"][0]): error["msg"] for error in refused.value.errors()}


@pytest.mark.parametrize(
    ("kind", "field", "plain", "secure"),
    [(NatsWire, "nats_url", "nats", "tls"), (RedisWire, "redis_url", "redis", "rediss"),
     (ClickHouseWire, "clickhouse_url", "clickhouse", "clickhouses")],
)  # fmt: skip
def test_in_clear_only_to_this_machine(kind, field, plain, secure, monkeypatch):
    """A password goes in clear to no other host, unless the operator declares the network
    private."""
    rest = "://u:top-secret@{}:1/x"
    for here in ("127.0.0.1", "localhost", "[::1]"):
        kind(**{field: plain + rest.format(here)})
    kind(**{field: secure + rest.format("far.test")})
    for far in ("far.test", "10.0.0.1", "127.0.0.1.far.test"):
        assert f"must be {secure}://" in wrong(kind, **{field: plain + rest.format(far)})[field]
    for nonsense in ("http://u:top-secret@h:1", f"{plain}://", f"{plain}://u:p@h:top-secret"):
        assert f"must be {plain}://" in wrong(kind, **{field: nonsense})[field]
    monkeypatch.setenv("SPILLWAY_PLAINTEXT", "yes")
    assert "SPILLWAY_PLAINTEXT" in wrong(kind, **{field: plain + rest.format("far.test")})[field]
    monkeypatch.setenv("SPILLWAY_PLAINTEXT", "allow")
    kind(**{field: plain + rest.format("far.test")})


@pytest.mark.parametrize(
    ("kind", "field", "url"),
    [(RedisWire, "redis_url", "rediss://u:top-secret@far.test:1/0?ssl_cert_reqs=none"),
     (RedisWire, "redis_url", "rediss://u:top-secret@far.test:1/0?SSL_check_hostname=false"),
     (ClickHouseWire, "clickhouse_url", "clickhouses://u:top-secret@far.test:1/x?verify=false"),
     (ClickHouseWire, "clickhouse_url", "clickhouse://u:top-secret@localhost:1/x?compression=lz4&alt_hosts=far.test")],
)  # fmt: skip
def test_a_url_weakens_no_check(kind, field, url):
    """A URL that would disable a check or lead to another host is refused by name.

    Clients prefer settings in their URL over all others.
    """
    assert "in the URL" in wrong(kind, **{field: url})[field]


def test_one_of_several_nats_servers_in_clear_is_refused():
    assert "nats_url" in wrong(NatsWire, nats_url="tls://a.test:1,nats://b.test:1")


def test_kafka_speaks_tls_unless_told_otherwise_or_at_home():
    """TLS is on by default, as in the collector's `run`.

    It is off by choice, or where no packet leaves the machine.
    """
    secure = {
        ("127.0.0.1:1,localhost:2", None): False, (BROKERS, None): True, ("127.0.0.1:1,far.test:2", None): True,
        (BROKERS, "off"): False, ("127.0.0.1:1", "on"): True,
    }  # fmt: skip
    for (brokers, choice), wanted in secure.items():
        assert KafkaWire(kafka=brokers, kafka_tls=choice).kafka_is_secure is wanted


def test_every_wrong_variable_of_kafka_is_named(tmp_path):
    """All wrong variables are named at once, whichever way they contradict each other."""
    certificate, key = pair(tmp_path)
    empty = tmp_path / "empty"
    empty.touch()
    found = wrong(KafkaWire, kafka="nowhere", kafka_tls="yes", kafka_tls_ca="/nowhere", kafka_sasl="GSSAPI")
    assert set(found) >= {"kafka", "kafka_tls", "kafka_tls_ca", "kafka_sasl"}
    off = {"kafka": BROKERS, "kafka_tls": "off"}
    assert set(wrong(KafkaWire, **off, kafka_tls_ca=certificate)) == {"kafka_tls_ca"}
    assert set(wrong(KafkaWire, **off, kafka_sasl="PLAIN")) >= {"kafka_sasl"}
    both = {"kafka_sasl_user", "kafka_sasl_password_file"}
    assert set(wrong(KafkaWire, kafka=BROKERS, kafka_sasl="PLAIN")) == both
    assert set(wrong(KafkaWire, kafka=BROKERS, kafka_sasl_user="me")) == {"kafka_sasl_user"}
    assert set(wrong(KafkaWire, kafka=BROKERS, kafka_tls_cert=certificate)) == {"kafka_tls_key"}
    assert set(wrong(KafkaWire, kafka=BROKERS, kafka_tls_key=key)) == {"kafka_tls_key"}
    swapped = wrong(KafkaWire, kafka=BROKERS, kafka_tls_cert=key, kafka_tls_key=certificate)
    assert set(swapped) == {"kafka_tls_key"}
    sasl = {"kafka_sasl": "PLAIN", "kafka_sasl_user": "me", "kafka_sasl_password_file": empty}
    assert "empty" in wrong(KafkaWire, kafka=BROKERS, **sasl)["kafka_sasl_password_file"]


def test_the_client_of_kafka_gets_user_and_password_over_tls_alone(tmp_path):
    """The password is the file's content without the line end.

    With a password, even a broker on this machine is reached over TLS.
    """
    password = tmp_path / "password"
    password.write_text("pass word $1\r\n")
    given = KafkaWire(
        kafka="127.0.0.1:1",
        kafka_sasl="SCRAM-SHA-512",
        kafka_sasl_user="me",
        kafka_sasl_password_file=password,
    ).kafka_client()
    assert (given["security_protocol"], given["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (given["sasl_plain_username"], given["sasl_plain_password"]) == ("me", "pass word $1")
    assert given["ssl_context"].verify_mode == ssl.CERT_REQUIRED and given["ssl_context"].check_hostname
    assert KafkaWire(kafka="127.0.0.1:1").kafka_client() == {"security_protocol": "PLAINTEXT"}


@pytest.fixture
def oauth(tmp_path) -> dict:
    (tmp_path / "secret").write_text("top-secret\n")
    sasl = {"kafka_sasl_user": "me", "kafka_sasl_password_file": tmp_path / "secret"}
    url = {"kafka_sasl_token_url": "https://login.test/token?tenant=1"}
    return {"kafka": BROKERS, "kafka_sasl": "OAUTHBEARER"} | sasl | url


def test_tokens_take_the_place_of_the_password(oauth, tmp_path):
    """All clients share the tokens. The token endpoint can have a CA of its own."""
    certificate, _ = pair(tmp_path)
    wire = KafkaWire(**oauth, kafka_sasl_token_ca=certificate, kafka_sasl_scope="kafka")
    given = wire.kafka_client()
    assert (given["security_protocol"], given["sasl_mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    assert not {"sasl_plain_username", "sasl_plain_password"} & set(given)
    assert given["sasl_oauth_token_provider"] is wire.kafka_client()["sasl_oauth_token_provider"]
    endpoint = wire.kafka_tokens._endpoint
    assert (endpoint.url, endpoint.client_id, endpoint.scope) == (
        oauth["kafka_sasl_token_url"],
        "me",
        "kafka",
    )
    assert endpoint.secret() == "top-secret"
    assert trusted(endpoint.tls) == {"one"} and endpoint.tls.check_hostname


def test_every_wrong_variable_of_tokens_is_named(oauth, tmp_path, monkeypatch):
    """The error does not show a URL, which may hold a password."""
    url = "kafka_sasl_token_url"
    assert "not set; needed" in wrong(KafkaWire, **oauth | {url: None})[url]
    for nonsense in (
        "login.test/token",
        "ftp://login.test",
        "https://",
        "https://me:top-secret@login.test",
        "https://login.test/#top-secret",
        "https://login.test/top secret",
        "https://login.test:top-secret",
    ):
        assert wrong(KafkaWire, **oauth | {url: nonsense})[url].endswith("without user and fragment")
    for far in ("http://login.test/token", "http://127.0.0.1.far.test/token"):
        assert "must be https://" in wrong(KafkaWire, **oauth | {url: far})[url]
    assert KafkaWire(**oauth | {url: "http://localhost:8080/token"}).kafka_tokens._endpoint.tls is None
    monkeypatch.setenv("SPILLWAY_PLAINTEXT", "allow")
    clear = oauth | {url: "http://login.test/token"}
    KafkaWire(**clear)
    assert "without TLS" in wrong(KafkaWire, **clear, kafka_sasl_token_ca="system")["kafka_sasl_token_ca"]
    assert set(wrong(KafkaWire, **oauth, kafka_sasl_token_ca=tmp_path / "no")) == {"kafka_sasl_token_ca"}
    alone = {url, "kafka_sasl_token_ca", "kafka_sasl_scope"}
    others = oauth | {"kafka_sasl": "PLAIN", "kafka_sasl_token_ca": "system", "kafka_sasl_scope": "kafka"}
    assert wrong(KafkaWire, **others).keys() == alone
    assert set(wrong(KafkaWire, kafka=BROKERS, kafka_sasl_scope="kafka")) == {"kafka_sasl_scope"}


def test_an_authority_goes_with_tls_alone(tmp_path):
    """A CA file is refused if it would silently not be used. A used one is read."""
    certificate, _ = pair(tmp_path)
    for kind, field, plain in ((RedisWire, "redis", "redis"), (ClickHouseWire, "clickhouse", "clickhouse")):
        here, far = f"{plain}://127.0.0.1:1", f"{plain}s://far.test:1/x?a=b"
        assert set(wrong(kind, **{f"{field}_url": here, f"{field}_ca": certificate})) == {f"{field}_ca"}
        assert set(wrong(kind, **{f"{field}_url": far, f"{field}_ca": tmp_path / "no"})) == {f"{field}_ca"}
    made = ClickHouseWire(clickhouse_url=far, clickhouse_ca=certificate)
    assert made.clickhouse_address.startswith(far) and "ca_certs=" in made.clickhouse_address
    made = RedisWire(redis_url="rediss://far.test:1", redis_ca=certificate).redis_options()["tls"]
    assert made.verify_mode == ssl.CERT_REQUIRED and made.check_hostname
    assert RedisWire(redis_url="redis://127.0.0.1:1").redis_options() == {}


def trusted(context: ssl.SSLContext) -> set[str]:
    """Returns the common names of the authorities that a context trusts."""
    return {dict(s[0] for s in authority["subject"])["commonName"] for authority in context.get_ca_certs()}


def contexts(authority: Path | str) -> dict[str, ssl.SSLContext]:
    """Returns the TLS context of each wire's client, by wire.

    ClickHouse's client gets a URL instead.
    """
    return {
        "kafka": KafkaWire(kafka=BROKERS, kafka_tls_ca=authority).kafka_client()["ssl_context"],
        "redis": RedisWire(redis_url="rediss://far.test:1", redis_ca=authority).redis_options()["tls"],
        "nats": NatsWire(nats_url="nats://localhost:1", nats_ca=authority).nats_tls(),
    }


def test_the_systems_roots_are_trusted_where_they_are_named_and_nowhere_else(tmp_path, monkeypatch):
    """`system` means this machine's root certificates. A file is trusted without them."""
    (root, _), (private_ca, _) = pair(tmp_path, "root"), pair(tmp_path, "own")
    monkeypatch.setenv("SSL_CERT_FILE", str(root))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    assert {wire: trusted(made) for wire, made in contexts("system").items()} == dict.fromkeys(
        ("kafka", "redis", "nats"), {"root"}
    )
    assert {wire: trusted(made) for wire, made in contexts(private_ca).items()} == dict.fromkeys(
        ("kafka", "redis", "nats"), {"own"}
    )
    url = "clickhouses://far.test:1/x"
    address = ClickHouseWire(clickhouse_url=url, clickhouse_ca="system").clickhouse_address
    assert address == f"{url}?{urlencode({'ca_certs': str(root)})}"


def test_a_machine_without_root_certificates_is_told_so(tmp_path, monkeypatch):
    """The start fails and names the places of the search, instead of a later failed connection."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    found = wrong(KafkaWire, kafka=BROKERS, kafka_tls_ca="system")
    assert "system: no root certificates in " in found["kafka_tls_ca"]
    found = wrong(RedisWire, redis_url="redis://localhost:1", redis_ca="system")
    assert "no root certificates" in found["redis_ca"]


def test_an_authority_or_a_certificate_makes_nats_speak_tls(tmp_path):
    """TLS settings are never left unused, as in the relay."""
    certificate, key = pair(tmp_path)
    here = "nats://127.0.0.1:1"
    assert NatsWire(nats_url=here).nats_tls() is None
    assert NatsWire(nats_url="tls://far.test:1").nats_tls().check_hostname
    assert NatsWire(nats_url=here, nats_ca=certificate).nats_tls().get_ca_certs()
    assert NatsWire(nats_url=here, nats_cert=certificate, nats_key=key).nats_tls()
    assert set(wrong(NatsWire, nats_url=here, nats_cert=certificate)) == {"nats_key"}


def test_files_that_change_are_read_again(tmp_path):
    """A new connection uses the present authorities and certificates.

    While a file is half written, the previous ones stay in use.
    """
    (authority, key), (other, _) = pair(tmp_path, "one"), pair(tmp_path, "two")
    context = tls.context(authority, authority, key)
    names = lambda: {dict(s[0] for s in ca["subject"])["commonName"] for ca in context.get_ca_certs()}  # noqa: E731

    def connect() -> None:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="far.test")

    both, at = authority.read_text() + other.read_text(), authority.stat().st_mtime_ns
    for text, wanted in (("half", {"one"}), (both, {"one", "two"})):
        authority.write_text(text)
        at += 1_000_000_000
        os.utime(authority, ns=(at, at))
        connect()
        assert names() == wanted


def shown(context: ssl.SSLContext, folder: Path, authority: Path) -> bytes | None:
    """Returns the certificate (DER) that a client of the context shows to a server that asks for
    one.

    The handshake uses no network.
    """
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    asking.load_cert_chain(*pair(folder, "server"))
    asking.load_verify_locations(authority)
    asking.verify_mode = ssl.CERT_OPTIONAL
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = context.wrap_bio(to_client, to_server, server_side=False)
    server = asking.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return server.getpeercert(binary_form=True)


def replace(file: Path, content: bytes) -> None:
    """Replaces a file and sets its time one second later.

    The clock of a file system may not distinguish two writes.
    """
    later = file.stat().st_mtime_ns + 1_000_000_000
    file.write_bytes(content)
    os.utime(file, ns=(later, later))


@pytest.mark.parametrize("torn", ["another key", "half a key", "no certificate"])
def test_a_pair_that_does_not_fit_leaves_the_old_one_in_use(tmp_path, torn):
    """Certificate and key are not replaced at the same instant.

    Until both are there and match, the client shows the old certificate.
    """
    certificate, key = pair(tmp_path)
    old = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    made = tls.context(None, certificate, key)
    authority = tmp_path / "clients.crt"
    authority.write_bytes(certificate.read_bytes())
    assert shown(made, tmp_path, authority) == old
    new_certificate, new_key = pair(tmp_path, "one-renewed")
    replace(certificate, b"" if torn == "no certificate" else new_certificate.read_bytes())
    if torn == "half a key":
        replace(key, new_key.read_bytes()[:100])
    assert shown(made, tmp_path, authority) == old
    for file, source in ((certificate, new_certificate), (key, new_key)):
        replace(file, source.read_bytes())
    authority.write_bytes(certificate.read_bytes())
    assert shown(made, tmp_path, authority) == ssl.PEM_cert_to_DER_cert(new_certificate.read_text())
