"""`make check` notices when the pages of collectors and filter differ from their sources."""

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import filter_tables  # noqa: E402
import program_tables  # noqa: E402

FILES = (
    "collectors/run",
    "collectors/checks.sh",
    "collectors/REFERENCE.md",
    "collectors/AGENT.md",
    "collectors/kafkapartitionexporter/metadata.yaml",
    "collectors/kafkapartitionexporter/documentation.md",
    "contracts/names.yaml",
    "wasm/core/src/config.rs",
    "wasm/core/src/export/outbox.rs",
)


@pytest.fixture
def changed(tmp_path):
    """Returns a function that changes a copied file, and returns the folder of the copies."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    def change(name: str = "", old: str = "", new: str = "") -> Path:
        if name:
            text = (tmp_path / name).read_text()
            assert old in text
            (tmp_path / name).write_text(text.replace(old, new))
        return tmp_path

    return change


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("REFERENCE.md", "| `SPILLWAY_PLAINTEXT` ", "| `SPILLWAY_X` ", "SPILLWAY_X: `run` does not read it"),
        ("REFERENCE.md", "`SPILLWAY_KAFKA` | yes", "`SPILLWAY_KAFKA` | no", "SPILLWAY_KAFKA: needed is 'no'"),
        ("AGENT.md", "`SPILLWAY_NODE` | yes", "`SPILLWAY_NODE` | no", "SPILLWAY_NODE: needed is 'no'"),
        ("run", "KEY CLIENT_CA;", "KEY CLIENT_CA X;", "SPILLWAY_OTLP_TLS_X: missing, `run` reads it"),
        (
            "checks.sh",
            "choice SPILLWAY_PLAINTEXT",
            "choice SPILLWAY_X",
            "SPILLWAY_X: missing, `run` reads it",
        ),
    ],
)
def test_a_variable_that_page_and_launcher_do_not_share_is_named(changed, name, old, new, problem):
    found = program_tables.collector_variables(changed(f"collectors/{name}", old, new) / "collectors")
    assert any(problem in line for line in found), found


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("metadata.yaml", "_partition_items:", "_partition_things:"),
        ("metadata.yaml", "[topic, service, scope]", "[topic, service]"),
        ("metadata.yaml", "description: Messages that", "description: Messages which"),
        ("documentation.md", "### otelcol_exporter_kafka_partition_splits", "### otelcol_x"),
    ],
)
def test_a_metric_of_the_exporter_that_a_page_shows_otherwise_is_named(changed, name, old, new):
    folder = changed(f"collectors/kafkapartitionexporter/{name}", old, new)
    assert program_tables.collector_metrics(folder / "collectors")


def test_the_pages_of_the_collectors_agree_with_their_sources(changed):
    folder = changed() / "collectors"
    assert program_tables.collector_variables(folder) + program_tables.collector_metrics(folder) == []


def test_the_filters_tables_follow_its_sources(changed):
    """Defaults and limits are those that the code has, the types of stats those of the contract."""
    before = filter_tables.tables(changed() / "wasm")
    assert "| `max_batch_bytes` | 524 288 | 16 384 … 4 194 304 |" in before["settings"]
    changed("wasm/core/src/config.rs", '"max_batch_bytes", 1 << 19, 1 << 14', '"max_batch_bytes", 1 << 20, 7')
    changed("contracts/names.yaml", "# gauge: requests in flight", "# counter: requests in flight")
    after = filter_tables.tables(changed() / "wasm")
    assert "| `max_batch_bytes` | 1 048 576 | 7 … 4 194 304 |" in after["settings"]
    assert "| `spillway_{direction}_in_flight` | counter | requests in flight |" in after["stats"]


def test_a_key_of_the_filter_that_only_one_list_has_is_an_error(changed):
    folder = changed(
        "wasm/core/src/config.rs", '    "sample_ratio",\n', '    "sample_ratio",\n    "colour",\n'
    )
    with pytest.raises(ValueError, match="differ in \\['colour'\\]"):
        filter_tables.tables(folder / "wasm")
