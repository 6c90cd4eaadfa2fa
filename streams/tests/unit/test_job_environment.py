"""Variables of several jobs in one process."""

import os

import pytest
from spillway_streams.process import job_environment

LISTENS = {
    "SPILLWAY_HEALTH_LISTEN": "h:1",
    "SPILLWAY_CURVES_HEALTH_LISTEN": "h:2",
    "SPILLWAY_GRAPH_HEALTH_LISTEN": "h:3",
}
COMMON = {
    "SPILLWAY_KAFKA": "k:1",
    "SPILLWAY_CLICKHOUSE_URL": "clickhouse://127.0.0.1/spillway",
    "SPILLWAY_REDIS_URL": "redis://127.0.0.1:1/0",
}


def test_a_variable_of_one_job_precedes_that_of_all_jobs_and_reaches_no_other():
    """An empty one counts as not set. Each job has its own folder."""
    given = {
        "SPILLWAY_A": "all",
        "SPILLWAY_CURVES_A": "own",
        "SPILLWAY_GRAPH_A": "",
        "SPILLWAY_STATE_DIR": "/s",
        "PATH": "p",
    }
    curves, graph = (job_environment.of_job(job, given) for job in ("curves", "graph"))
    assert (curves["SPILLWAY_A"], graph["SPILLWAY_A"]) == ("own", "all")
    assert (curves["SPILLWAY_STATE_DIR"], graph["SPILLWAY_STATE_DIR"]) == ("/s/curves", "/s/graph")
    assert curves["PATH"] == "p"
    own = given | {"SPILLWAY_GRAPH_STATE_DIR": "/g"}
    assert job_environment.of_job("graph", own)["SPILLWAY_STATE_DIR"] == "/g"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, []),
        (
            {"SPILLWAY_GRAPH_HEALTH_LISTEN": ""},
            ["SPILLWAY_GRAPH_HEALTH_LISTEN: is not set; the job graph needs"],
        ),
        (
            {"SPILLWAY_GRAPH_HEALTH_LISTEN": "h:2"},
            ["SPILLWAY_GRAPH_HEALTH_LISTEN: must differ from SPILLWAY_CURVES"],
        ),
        (
            {"SPILLWAY_CURVES_HEALTH_LISTEN": "h:1"},
            ["SPILLWAY_CURVES_HEALTH_LISTEN: must differ from SPILLWAY_HEALTH"],
        ),
    ],
)
def test_each_job_has_an_address_of_its_own(changed, says):
    """The error names the variable, and the other one that has the same address."""
    lines = job_environment.unlisted(["curves", "graph"], LISTENS | changed)
    assert len(lines) == len(says) and all(
        line.startswith(text) for line, text in zip(lines, says, strict=True)
    )


def test_settings_of_jobs_are_read_apart_and_the_environment_stays(monkeypatch, tmp_path):
    """A job's own setting does not change those of the others."""
    for name, value in (COMMON | {"SPILLWAY_STATE_DIR": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    for name, port in (("", 1), ("CURVES_", 2), ("GRAPH_", 3)):
        monkeypatch.setenv(f"SPILLWAY_{name}HEALTH_LISTEN", f"127.0.0.1:{port}")
    monkeypatch.setenv("SPILLWAY_CURVES_STREAMS_BOARD_PERIOD_S", "2")
    before = dict(os.environ)
    process, found = job_environment.load(["curves", "graph"])
    assert dict(os.environ) == before
    assert process.health_listen == "127.0.0.1:1"
    assert (found["curves"].board_period_s, found["graph"].board_period_s) == (2.0, 0.25)
    assert found["graph"].health_listen == "127.0.0.1:3"
    assert found["curves"].state_dir == tmp_path / "curves"


def test_a_wrong_setting_ends_the_process_with_status_64(monkeypatch, capsys, tmp_path):
    """The line names the variable."""
    monkeypatch.setenv("SPILLWAY_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("SPILLWAY_HEALTH_LISTEN", "127.0.0.1:1")
    with pytest.raises(SystemExit) as ended:
        job_environment.load(["curves"])
    assert ended.value.code == 64
    assert "SPILLWAY_CURVES_HEALTH_LISTEN: is not set" in capsys.readouterr().err
