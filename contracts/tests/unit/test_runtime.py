"""spillway_runtime: what every Python program does in the same way."""

import asyncio
import json
import logging
import urllib.error
import urllib.request

import pytest
from pydantic import Field, model_validator
from spillway_runtime import exit_codes, health, logs, retry, settings
from spillway_runtime.metrics import Exposition, Family, Sample
from spillway_runtime.settings import HostPort, Settings, address, load
from spillway_runtime.status import Status, describe


class _Settings(Settings):
    health_listen: HostPort
    password: int
    period: float = 1.0


def test_each_wrong_setting_is_named_and_no_value_is_shown(monkeypatch, capsys):
    """One line per variable on stderr, and exit code 64. A value may be a secret."""
    for name, value in (("SPILLWAY_PASSWORD", "s3cret"), ("SPILLWAY_PERIOD", "")):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        load(_Settings)
    printed = capsys.readouterr().err
    assert ended.value.code == exit_codes.USAGE == 64
    assert "SPILLWAY_HEALTH_LISTEN: is not set\n" in printed and "SPILLWAY_PASSWORD: " in printed
    assert "s3cret" not in printed and len(printed.splitlines()) == 2


def test_a_number_beyond_its_bounds_is_shown(monkeypatch, capsys):
    """Only a number can be beyond bounds, so it is no secret."""

    class Bounded(Settings):
        period: float = Field(1.0, gt=0)

    monkeypatch.setenv("SPILLWAY_PERIOD", "-2")
    with pytest.raises(SystemExit):
        load(Bounded)
    assert capsys.readouterr().err == "SPILLWAY_PERIOD: Input should be greater than 0; got -2\n"


def test_arguments_precede_the_environment_and_empty_means_not_set(monkeypatch):
    """A rendered file with an empty value uses the default."""
    for name, value in (("HEALTH_LISTEN", "[::1]:80"), ("PASSWORD", "1"), ("PERIOD", "")):
        monkeypatch.setenv(f"SPILLWAY_{name}", value)
    found = load(_Settings, password=2)
    assert (found.password, found.period, address(found.health_listen)) == (2, 1.0, ("::1", 80))


@pytest.mark.parametrize("wrong", ["", "host", "host:", ":80", "host:0", "host:65536", "host:80x", "host:-1"])
def test_an_address_needs_host_and_port(wrong, monkeypatch):
    """A port is a number of 1 to 65535."""
    monkeypatch.delenv("SPILLWAY_HEALTH_LISTEN", raising=False)
    with pytest.raises(SystemExit):
        load(_Settings, health_listen=wrong, password=1)


def test_a_problem_of_several_settings_names_them_itself(capsys):
    """The line of a check over all settings has no prefix of its own."""

    class Pair(Settings):
        @model_validator(mode="after")
        def _pair(self):
            raise ValueError("SPILLWAY_A, SPILLWAY_B: both or none")

    with pytest.raises(SystemExit):
        load(Pair)
    assert capsys.readouterr().err == "SPILLWAY_A, SPILLWAY_B: both or none\n"
    assert settings.PREFIX == "SPILLWAY_"


def test_a_log_line_is_one_json_object_with_its_fields():
    """An error has its stack trace in the same object."""
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.getLogger("spillway.test").makeRecord(
            "spillway.test", logging.WARNING, "f", 1, "of %d", (3,),
            (ValueError, error, error.__traceback__), extra=logs.fields(cluster="east", ruleset_version=7),
        )  # fmt: skip
    text = logs.JsonLines().format(record)
    line = json.loads(text)
    assert "\n" not in text
    assert (line["level"], line["logger"], line["message"]) == ("warning", "spillway.test", "of 3")
    assert (line["cluster"], line["ruleset_version"]) == ("east", 7)
    assert line["at"].endswith("Z") and line["error"].endswith("ValueError: two\nlines")


def test_status_logs_changes_and_separates_required_from_optional(caplog):
    """Without a required server the program is not ready; without an optional one it works."""
    caplog.set_level(logging.INFO)
    status = Status("nats", optional=["redis"])
    assert status.problems() == {"nats": "not reached yet"} and status.degraded() == {}
    assert status.up() == {"nats": False}
    with pytest.raises(KeyError):
        status.ok("rediss")
    for _ in range(2):
        status.failed("nats", OSError("refused"))
        status.failed("redis", "away")
    assert (status.problems(), status.degraded()) == ({"nats": "OSError: refused"}, {"redis": "away"})
    for _ in range(2):
        status.ok("nats")
        status.ok("redis")
    assert status.problems() == status.degraded() == {} and status.up() == {"nats": True, "redis": True}
    assert caplog.messages == ["nats: OSError: refused", "redis: away", "nats: in order", "redis: in order"]


def test_a_reason_is_one_line():
    """Also for an error without text, and for one of many lines."""
    assert describe(TimeoutError()) == "TimeoutError"
    assert describe(OSError("a\nb")) == "OSError: a b"
    assert len(describe(OSError("x" * 1000))) == 300
    assert describe("") == "no reason given"


async def test_a_retry_ends_with_success_and_the_status_follows(monkeypatch):
    """Whatever a client library raises is tried again, except what the caller gives up for."""
    monkeypatch.setattr(retry, "_FIRST_S", 0.0)
    status, seen = Status("kafka"), []

    async def third_time() -> str:
        seen.append(dict(status.problems()))
        if len(seen) < 3:
            raise RuntimeError("not yet")
        return "done"

    assert await retry.until_done(third_time, "kafka", status) == "done"
    assert seen[1:] == [{"kafka": "RuntimeError: not yet"}] * 2 and status.problems() == {}

    async def refused() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        await asyncio.wait_for(retry.until_done(refused, "kafka", status, KeyError), 5)


def _get(url: str) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(url, timeout=30) as found:
            return found.status, json.loads(found.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_health_answers_live_ready_and_metrics():
    """/livez is 200 while the program answers, /readyz only when nothing is missing.

    Both have the same keys as the relay's answer, HealthReport in health.go.
    """
    problems = {"redis": "away"}
    exposition = Exposition([Family("spillway_x_total", "x")], lambda: [Sample("spillway_x_total", 3)])
    report = lambda: health.Report(problems, counters={"x": 3})  # noqa: E731
    answers = {path: health.answer(path, report, exposition) for path in ("/livez", "/readyz", "/healthz")}
    assert {path: found.status for path, found in answers.items()} == {
        "/livez": 200, "/readyz": 503, "/healthz": 503,
    }  # fmt: skip
    body = json.loads(answers["/livez"].body)
    assert body == {
        "ready": False, "problems": problems, "degraded": {}, "counters": {"x": 3}, "gauges": {},
    }  # fmt: skip
    problems.clear()
    assert health.answer("/readyz", report, exposition).status == 200
    assert b"spillway_x_total 3.0" in health.answer("/metrics", report, exposition).body
    unknown = health.answer("/x", report, None)
    assert unknown.status == 404 and json.loads(unknown.body)["error"].endswith("one of /livez, /readyz")


def test_the_server_answers_over_http_until_it_is_closed():
    """A query after the path is ignored."""
    from spillway_lab.testing import servers

    port = servers.free_port()
    server = health.Server(f"127.0.0.1:{port}", lambda: health.Report({"engine": "starting"}))
    try:
        assert _get(f"http://127.0.0.1:{port}/readyz?x=1")[0] == 503
        assert _get(f"http://127.0.0.1:{port}/livez")[1]["problems"] == {"engine": "starting"}
        with pytest.raises(OSError):
            health.Server(f"127.0.0.1:{port}", lambda: health.Report({}))
    finally:
        server.close()
    with pytest.raises(OSError):
        _get(f"http://127.0.0.1:{port}/livez")
