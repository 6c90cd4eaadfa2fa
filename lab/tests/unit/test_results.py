"""Results that are written are read back, and a wrong file is named with its key."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_lab.report import results
from spillway_lab.report.results import Machine, Round, Run
from spillway_lab.report.round_samples import RoundSamples, read_samples
from spillway_lab.scenario.errors import InvalidInput, LabError


def columns(rows: int = 4, failed: int = 1) -> RoundSamples:
    return RoundSamples(
        at_s=np.arange(rows, dtype=np.float32),
        latency_ms=np.full(rows, 12.5, np.float32),
        ok=np.arange(rows) >= failed,
        cluster=np.zeros(rows, np.uint8),
        kind=np.zeros(rows, np.uint8),
    )


def a_round(policy: str = "spillway", repetition: int = 0, rows: int = 4, failed: int = 1) -> Round:
    return Round(
        policy=policy,
        repetition=repetition,
        samples=f"{policy}-{repetition}.npz",
        egress_usd_per_hour=0.25,
        sent=rows,
        failed=failed,
        machine=Machine(cores=2, utilisation=0.5, pressure=None),
        disturbed=False,
        series={"west to east, share": ((0.0, 0.25), (1.0, None))},
    )


def a_run(*rounds: Round) -> Run:
    return Run(
        scenario="two-clusters",
        question="How much should the overloaded cluster send away?",
        kind="live",
        time_scale=2.0,
        seed=None,
        command="make lab SCENARIO=two-clusters",
        started=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        clusters=("west", "east"),
        requests=("gateway GET /items/{id}",),
        measured_seconds=60.0,
        rounds=rounds or (a_round(),),
        facts={"predicted ratio": 0.7},
    )


def written(folder: Path, **changes: object) -> Path:
    """Writes a run, then changes keys of its run.json."""
    results.write(folder, a_run(), [columns()])
    path = folder / results.FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@given(rows=st.integers(0, 50), share=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_what_is_written_is_read(tmp_path_factory, rows: int, share: float, seed: int) -> None:
    """Every column and every key comes back as it was, with no request or all of them failed."""
    random = np.random.default_rng(seed)
    samples = RoundSamples(
        at_s=random.random(rows, np.float32),
        latency_ms=random.random(rows, np.float32) * 1000,
        ok=random.random(rows) >= share,
        cluster=random.integers(0, 2, rows, np.uint8),
        kind=np.zeros(rows, np.uint8),
    )
    run = a_run(a_round(rows=rows, failed=samples.failed))
    folder = tmp_path_factory.mktemp("results")
    results.write(folder, run, [samples])
    read, (its,) = results.read(folder)
    assert read == run
    for name in ("at_s", "latency_ms", "ok", "cluster", "kind"):
        assert getattr(its, name).dtype == getattr(samples, name).dtype
        assert getattr(its, name).tolist() == getattr(samples, name).tolist()


def test_unknown_stays_unknown_in_the_file(tmp_path) -> None:
    """Values that were not measured are null in the file, not 0, and the file is strict JSON."""
    unknown = replace(a_round(), egress_usd_per_hour=None, machine=Machine(2, None, None))
    results.write(tmp_path, a_run(unknown), [columns()])
    text = (tmp_path / results.FILE).read_text()
    stored = json.loads(text, parse_constant=lambda value: pytest.fail(value))["rounds"][0]
    assert stored["egress_usd_per_hour"] is None
    assert stored["machine"] == {"cores": 2, "utilisation": None, "pressure": None, "run_delay": None}


def test_facts_may_come_from_numpy(tmp_path) -> None:
    """Numbers and arrays of numpy are stored as JSON numbers and lists."""
    run = replace(a_run(), facts={"seconds": np.float64(1.5), "each": np.array([1, 2])})
    results.write(tmp_path, run, [columns()])
    assert results.read_run(tmp_path).facts == {"seconds": 1.5, "each": [1, 2]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "guessed"}, "kind: Input should be 'live' or 'simulated'; got 'guessed'"),
        ({"time_scale": 0}, "time_scale: Input should be greater than 0; got 0"),
        ({"clusters": []}, "clusters: Tuple should have at least 1 item"),
        ({"started": "yesterday"}, "started: Input should be a valid datetime"),
        ({"speed": 1}, "speed: unknown key; got 1"),
    ],
)
def test_a_wrong_key_is_named(tmp_path, changes: dict, message: str) -> None:
    """The error names the file and the key, what was wrong and what is allowed."""
    with pytest.raises(InvalidInput) as error:
        results.read(written(tmp_path, **changes))
    assert str(error.value).startswith(f"{tmp_path / results.FILE}: {message}")


def test_a_folder_without_results_is_named(tmp_path) -> None:
    """A folder without run.json, and a run without the samples that it names, are errors."""
    with pytest.raises(InvalidInput, match=r"run\.json: cannot be read: No such file"):
        results.read(tmp_path)
    results.write(tmp_path, a_run(), [columns()])
    (tmp_path / "spillway-0.npz").unlink()
    with pytest.raises(InvalidInput, match=r"spillway-0\.npz: cannot be read: No such file"):
        results.read(tmp_path)


def test_samples_have_the_counts_of_their_round(tmp_path) -> None:
    """A run that says less was sent, or less failed, than its samples show is not written."""
    with pytest.raises(InvalidInput) as error:
        results.write(tmp_path, a_run(a_round(rows=3, failed=0)), [columns()])
    assert [problem.partition(": ")[2] for problem in error.value.problems] == [
        "rounds.0.sent: 3; spillway-0.npz has 4",
        "rounds.0.failed: 0; spillway-0.npz has 1",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_not_complete_has_no_run_json(tmp_path) -> None:
    """When a second run fails while its samples are written, the first one's run.json is gone.

    Otherwise the folder would hold a run with samples of another one.
    """
    results.write(tmp_path, a_run(), [columns()])
    (tmp_path / "local-0.npz").mkdir()
    with pytest.raises(LabError, match=r"local-0\.npz: cannot be written"):
        results.write(tmp_path, a_run(a_round(), a_round("local")), [columns(), columns()])
    assert not (tmp_path / results.FILE).exists()


def test_a_run_that_is_wrong_changes_nothing(tmp_path) -> None:
    """Samples with a wrong column leave the results of the run before as they are."""
    results.write(tmp_path, a_run(), [columns()])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    wrong = replace(columns(), cluster=np.array([9, 0, 0, 0], np.uint8))
    with pytest.raises(InvalidInput, match="cluster: has values outside"):
        results.write(tmp_path, a_run(a_round("local"), a_round()), [columns(), wrong])
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_repetition_is_there_once(tmp_path) -> None:
    """The same repetition of a policy twice is an error: one would overwrite the other."""
    with pytest.raises(InvalidInput) as error:
        results.write(tmp_path, a_run(a_round(), a_round()), [columns(), columns()])
    assert "rounds.1: repetition 0 of 'spillway' is there twice" in str(error.value)
    assert "rounds.1.samples: 'spillway-0.npz' belongs to another round" in str(error.value)


@pytest.mark.parametrize("name", ["../out.npz", "a/b.npz", "spillway-0.csv", ".npz/"])
def test_samples_stay_in_their_folder(tmp_path, name: str) -> None:
    """A round cannot name a file outside its run's folder, or one of another format."""
    with pytest.raises(InvalidInput, match=r"rounds\.0\.samples: String should match"):
        results.write(tmp_path, a_run(replace(a_round(), samples=name)), [columns()])


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("latency_ms", [1, 2, np.nan, 4], "latency_ms: has values that are not finite or below 0"),
        ("at_s", [-1, 2, 3, 4], "at_s: has values that are not finite or below 0"),
        ("cluster", [0, 1, 2, 0], "cluster: has values outside 0 to 1; the run names 2"),
        ("kind", [0, 0, 0, 1], "kind: has values outside 0 to 0; the run names 1"),
        ("latency_ms", [1, 2], "latency_ms: shape (2,); must be one row per request"),
        ("ok", [0.0, 1.0, 1.0, 1.0], "ok: type float64; must be bool"),
        ("kind", ["a", "b", "c", "d"], "kind: type <U1; must be uint8"),
    ],
)
def test_a_wrong_column_is_named(tmp_path, column: str, values: list, message: str) -> None:
    """The error names the file and the column, whether the samples are written or read."""
    wrong = replace(columns(), **{column: np.array(values)})
    with pytest.raises(InvalidInput) as error:
        results.write(tmp_path, a_run(), [wrong])
    assert str(error.value).startswith(f"{tmp_path / 'spillway-0.npz'}: {message}")
    np.savez(tmp_path / "read.npz", **vars(wrong))
    with pytest.raises(InvalidInput) as error:
        read_samples(tmp_path / "read.npz", 2, 1)
    assert str(error.value).startswith(f"{tmp_path / 'read.npz'}: {message}")


@given(content=st.binary(max_size=200))
def test_no_content_of_a_file_is_more_than_an_error(tmp_path_factory, content: bytes) -> None:
    """Whatever a file of samples or run.json holds, reading it ends in an error of ours."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "any.npz").write_bytes(content)
    (folder / results.FILE).write_bytes(content)
    with pytest.raises(InvalidInput):
        read_samples(folder / "any.npz", 2, 1)
    with pytest.raises(InvalidInput):
        results.read(folder)


@given(position=st.integers(0), value=st.integers(0, 255))
def test_a_damaged_file_of_samples_is_an_error_or_read(tmp_path_factory, position: int, value: int) -> None:
    """One changed byte of the file makes an error of ours, or values within their limits."""
    folder = tmp_path_factory.mktemp("results")
    results.write(folder, a_run(), [columns()])
    path = folder / "spillway-0.npz"
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    path.write_bytes(content)
    try:
        assert len(read_samples(path, 2, 1)) == 4
    except InvalidInput as error:
        assert str(path) in str(error)
