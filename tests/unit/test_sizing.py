"""tools/sizing.py --usd: monthly cost, and the span rate that the default disks can hold."""

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import disks
import sizing

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = yaml.safe_load((ROOT / "docs/prices.yaml").read_text())
MEASURED = json.loads((ROOT / "docs/measured.json").read_text())
FIGURES = {name: entry["value"] for name, entry in MEASURED.items() if name != "machine"}
VALUES = disks.chart_values("spillway-global")


Bill = Callable[..., dict]


@pytest.fixture
def bill(capsys: pytest.CaptureFixture) -> Bill:
    """Returns bill(spans per second, more arguments), which parses the output of --json.

    The result's parts are keyed by name.
    """

    def _bill(spans: float, *arguments: object) -> dict:
        assert sizing.main(["--usd", "--json", "--spans", str(spans), *map(str, arguments)]) == 0
        made = json.loads(capsys.readouterr().out)
        return made | {"parts": {part["name"]: part for part in made["parts"]}}

    return _bill


def prices(tmp_path: Path, section: str, **changed: object) -> Path:
    """Writes the shipped prices with changes in one section. None removes a key."""
    wanted = copy.deepcopy(SHIPPED)
    wanted[section] = {k: v for k, v in (wanted[section] | changed).items() if v is not None}
    file = tmp_path / "prices.yaml"
    file.write_text(yaml.safe_dump(wanted))
    return file


def test_every_part_is_priced_and_the_parts_add_up(bill: Bill):
    made = bill(100_000)
    parts, total = made["parts"], made["all"]["usd"]
    assert {"Kafka", "ClickHouse", "Redis", "NATS", "streams", "telemetry between regions"} <= set(parts)
    for column in ("cpu", "disks", "egress"):
        assert total[column] == pytest.approx(sum(part["usd"][column] for part in parts.values())) != 0
    assert total["all"] == pytest.approx(total["cpu"] + total["disks"] + total["egress"])


def test_a_part_costs_what_it_needs_times_the_prices_of_the_file(bill: Bill, tmp_path: Path):
    """The expected values are computed by hand.

    They use 635 bytes per span, stored twice in Kafka with three copies, and 730 hours per month.
    """
    file = prices(tmp_path, "usd", core_month=7, disk_gb_month=0.5, egress_gb=0.03)
    found = bill(100_000, "--prices", file)["parts"]
    crossing = 0.67 * 1e5 * 635 * 730 * 3600 / 1e9
    assert found["telemetry between regions"]["usd"]["egress"] == pytest.approx(0.03 * crossing)
    kafka = found["Kafka"]
    assert kafka["cores"] == pytest.approx(2 * 6 * 1e5 * 635 / 50e6)
    assert kafka["disk_gb"] == pytest.approx(6 * 1e5 * 635 * 9000 / 0.8 / 1e9)
    assert kafka["usd"]["cpu"] == pytest.approx(7 * kafka["cores"])
    assert kafka["usd"]["disks"] == pytest.approx(0.5 * kafka["disk_gb"])
    clickhouse = 1e5 * 38.75 * 4 * 86_400 + 150 * 20e6 * 4
    assert found["ClickHouse"]["disk_gb"] == pytest.approx((2 * clickhouse / 0.8 + 3 * 10 * 2**30) / 1e9)


def test_a_small_load_costs_what_the_charts_ask_for_by_default(bill: Bill):
    found = bill(1)["parts"]
    assert found["Kafka"]["cores"] == 3 and found["Kafka"]["disk_gb"] == pytest.approx(300 * 2**30 / 1e9)
    assert found["streams"]["cores"] == pytest.approx(2 * (0.25 + 1 + 0.5 + 0.25 + 0.25))
    assert found["collectors"]["cores"] == pytest.approx(3 * 2 * 0.5)
    assert found["NATS"]["cores"] == pytest.approx(0.6) and found["Redis"]["disk_gb"] == 0


@pytest.mark.parametrize("store", ["Kafka", "ClickHouse"])
def test_the_default_disks_are_enough_up_to_the_limit_and_not_beyond(bill: Bill, store: str):
    limit = bill(1)["default_disks_hold_spans_per_s"][store]
    [small, full, beyond] = [bill(spans)["parts"][store]["disk_gb"] for spans in (1, limit, 1.1 * limit)]
    assert full == pytest.approx(small) and beyond > 1.05 * small


def test_the_limit_follows_the_charts_disks_copies_and_brokers():
    before = disks.kafka(VALUES, FIGURES, 1).limit
    assert before == pytest.approx(0.8 * 3 * 100 * 2**30 / (3 * 2 * 635 * 9000))
    compressed = disks.kafka(VALUES, FIGURES, 4)
    assert compressed.limit == pytest.approx(4 * before) and compressed.arithmetic.endswith(
        " × 4, compression"
    )
    changed = copy.deepcopy(VALUES)
    changed["kafka"]["replicas"] = 1
    changed["bundled"]["kafka"]["pools"][0] |= {"replicas": 6, "storage": {"size": "1Ti"}}
    assert disks.kafka(changed, FIGURES, 1).limit == pytest.approx(6 * 10.24 * before)
    changed["bundled"]["clickhouse"]["storage"]["size"] = "400Gi"
    limits = [disks.clickhouse(values, FIGURES, 0, 1).limit for values in (VALUES, changed)]
    assert limits[1] == pytest.approx(2 * limits[0])


def test_rows_of_classes_take_their_room_and_may_leave_none():
    limits = [disks.clickhouse(VALUES, FIGURES, classes, 1).limit for classes in (0, 100, 10_000)]
    assert limits[0] > limits[1] > limits[2] == 0


def test_the_lifetimes_are_those_of_the_tables():
    """A partition of one day is dropped as a whole.

    For a table with other partitions the tool raises an error instead of guessing.
    """
    assert disks.kept_days("calls") == 4 and disks.kept_days("edge_parts") == 3
    with pytest.raises(ValueError, match=r"contracts/clickhouse/0015_spans\.sql: .*PARTITION BY"):
        disks.kept_days("spans")


def test_the_printed_bill_names_its_prices_and_the_limit_that_the_page_says(
    bill: Bill, capsys: pytest.CaptureFixture
):
    assert sizing.main(["--usd", "--spans", "100000"]) == 0
    printed = capsys.readouterr().out
    assert "100,000 spans/s" in printed and "docs/prices.yaml" in printed
    page = (ROOT / "docs/operations.md").read_text()
    for store, limit in bill(100_000)["default_disks_hold_spans_per_s"].items():
        [line] = [line for line in printed.splitlines() if f"default disks of {store} hold" in line]
        rate = int(line.split()[-2].replace(",", ""))
        assert 0.9 * limit < rate <= limit
        assert f"| {store}, `bundled.{store.lower()}` | {rate} spans/s |" in page


@pytest.mark.parametrize(
    ("section", "changed", "expected"),
    [
        ("usd", {"core_month": "30"}, "usd.core_month: Input should be a valid number, not '30'"),
        ("usd", {"core_month": None}, "usd.core_month: Field required"),
        ("usd", {"core_hour": 1}, "usd.core_hour: Extra inputs are not permitted"),
        ("usd", {"egress_gb": -1}, "usd.egress_gb: Input should be greater than or equal to 0"),
        ("assumptions", {"headroom": 0.5}, "assumptions.headroom: Input should be greater than or equal to 1"),
        ("assumptions", {"outside_share": 67}, "assumptions.outside_share: Input should be less than or equal to 1"),
    ],
)  # fmt: skip
def test_a_wrong_price_is_named_with_what_is_allowed(tmp_path, capsys, section, changed, expected):
    file = prices(tmp_path, section, **changed)
    assert sizing.main(["--usd", "--prices", str(file)]) == 64
    assert f"{file}: {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--usd", "--spans", "0"],
        ["--usd", "--spans", "inf"],
        ["--spans", "9"],
        ["--usd", "--check"],
        ["--json"],
    ],
)
def test_arguments_that_make_no_sense_are_refused(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        sizing.main(arguments)
    assert "error: " in capsys.readouterr().err
