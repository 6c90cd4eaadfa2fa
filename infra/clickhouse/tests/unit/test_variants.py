"""Variants of the DDL: pure rewriting of the project's own schema and of generated tables."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_clickhouse.migrate import MigrationError, read_folder, varied
from spillway_clickhouse.sql import tokens
from spillway_clickhouse.variants import Target, VariantError, statements

DDL = Path(__file__).resolve().parents[4] / "contracts" / "clickhouse"
CLOUD, REPLICATED, DISTRIBUTED = (
    Target("cloud", "", "d"),
    Target("replicated", "mesh", "d"),
    Target("distributed", "mesh", "d"),
)
WINDOW = "replicated_deduplication_window_seconds = 604800, replicated_deduplication_window"
TABLE = """CREATE TABLE IF NOT EXISTS t
(
    a String, -- ENGINE = of a comment
    b UInt8 DEFAULT 1
)
ENGINE = ReplacingMergeTree(b)
ORDER BY (a, b)
SETTINGS non_replicated_deduplication_window = 10
COMMENT '{}'"""


def translated(text: str, target: Target) -> tuple[str, ...]:
    """Returns the statements that one statement becomes in the target's variant."""
    return statements([text], target)[0]


def test_single_is_what_is_written():
    """For one server the files stay unchanged."""
    migrations = read_folder(DDL)
    assert varied(migrations, Target()) == migrations


def test_a_replicated_table():
    """Engine, cluster and deduplication window change. The rest stays, including comments."""
    text = TABLE.format("sharded by a")
    expected = (
        text.replace("EXISTS t", "EXISTS t ON CLUSTER 'mesh'")
        .replace("MergeTree(b)", "MergeTree('/clickhouse/tables/{shard}/{database}/t', '{replica}', b)")
        .replace("ENGINE = Repl", "ENGINE = ReplicatedRepl")
        .replace("non_replicated_deduplication_window", WINDOW)
    )
    assert translated(text, REPLICATED) == (expected,)


def test_a_table_of_a_cloud_service():
    """Engine and statement stay, because the service replicates by itself.

    Its engine reads the replicated window.
    """
    text = TABLE.format("sharded by a")
    assert translated(text, CLOUD) == (text.replace("non_replicated_deduplication_window", WINDOW),)
    others = [
        "ALTER TABLE t ADD COLUMN c UInt8",
        "DROP TABLE IF EXISTS t",
        "CREATE OR REPLACE VIEW v AS SELECT 1",
    ]
    assert statements([text, *others], CLOUD)[1:] == [(other,) for other in others]
    with pytest.raises(VariantError, match="CREATE MATERIALIZED VIEW"):
        translated("CREATE MATERIALIZED VIEW m TO t AS SELECT 1", CLOUD)


def test_a_sharded_table():
    """Rows are in <table>_local, on the shard that the hash of the sharding columns selects."""
    local, over = translated(TABLE.format("sharded by a, b"), DISTRIBUTED)
    assert "EXISTS t_local ON CLUSTER 'mesh'" in local
    assert "'/clickhouse/tables/{shard}/{database}/t_local', '{replica}', b)" in local
    assert over == (
        "CREATE TABLE IF NOT EXISTS t ON CLUSTER 'mesh' AS t_local\n"
        "ENGINE = Distributed('mesh', 'd', 't_local', cityHash64(a, b))"
    )


def test_a_whole_table():
    """All nodes are replicas of one table, whatever their shard."""
    (text,) = translated(TABLE.format("whole on every node"), DISTRIBUTED)
    assert "EXISTS t ON CLUSTER" in text
    assert "('/clickhouse/tables/all/{database}/t', '{shard}-{replica}', b)" in text


def test_later_changes_follow_the_table():
    """A column added to a sharded table reaches its shards and the Distributed table over them.

    Views and drops do, too.
    """
    texts = [TABLE.format("sharded by a"), "ALTER TABLE t ADD COLUMN c UInt8", "DROP TABLE IF EXISTS t",
             "CREATE OR REPLACE VIEW v AS SELECT a FROM t FINAL"]  # fmt: skip
    _, altered, dropped, view = statements(texts, DISTRIBUTED)
    assert altered[0] == "ALTER TABLE t_local ON CLUSTER 'mesh' ADD COLUMN c UInt8"
    assert altered[1].startswith("CREATE OR REPLACE TABLE t ON CLUSTER 'mesh' AS t_local")
    assert dropped == tuple(f"DROP TABLE IF EXISTS {name} ON CLUSTER 'mesh'" for name in ("t", "t_local"))
    assert view == ("CREATE OR REPLACE VIEW v ON CLUSTER 'mesh' AS SELECT a FROM t FINAL",)
    assert statements(texts, REPLICATED)[1] == ("ALTER TABLE t ON CLUSTER 'mesh' ADD COLUMN c UInt8",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TABLE.format("anywhere"), "t: ends in COMMENT 'anywhere'; must be"),
        (TABLE.format("x").partition("COMMENT")[0], "t: ends in COMMENT ''"),
        (TABLE.format("sharded by c"), "t: sharded by c; must be a column of its ORDER BY"),
        (TABLE.format("sharded by a").replace("ReplacingMergeTree(b)", "Log"), "t_local: needs ENGINE"),
        ("CREATE MATERIALIZED VIEW m TO t AS SELECT 1", "CREATE MATERIALIZED VIEW: only tables and views"),
        ("CREATE TABLE d.t (a UInt8) ENGINE = MergeTree ORDER BY a", "d: must be named without database"),
        ("INSERT INTO t VALUES (1)", "INSERT INTO T: only tables and views"),
    ],
)
def test_what_has_no_variant_is_named(text, message):
    """Statements that would be wrong on a cluster are refused with the table's name."""
    with pytest.raises(VariantError, match=re.escape(message)):
        translated(text, DISTRIBUTED)


def test_a_migration_without_a_variant_is_a_migration_error(tmp_path):
    """The command reports it like every other error of the folder."""
    (tmp_path / "0001_a.sql").write_text("OPTIMIZE TABLE t;")
    with pytest.raises(MigrationError, match="variant replicated: OPTIMIZE TABLE T"):
        varied(read_folder(tmp_path), REPLICATED)


names = st.from_regex(r"[a-z][a-z_0-9]{0,12}", fullmatch=True)


@given(
    name=names,
    columns=st.lists(names, min_size=1, max_size=5, unique=True),
    engine=st.sampled_from(["MergeTree", "ReplacingMergeTree", "AggregatingMergeTree", "SummingMergeTree"]),
    arguments=st.sampled_from(["", "()", "(v)"]),
    noise=st.sampled_from(["", " -- ENGINE = Log;\n", "/* ON CLUSTER */", "\n\n"]),
    data=st.data(),
)
def test_nothing_else_of_a_statement_changes(name, columns, engine, arguments, noise, data):
    """For any table: a variant without its additions has the tokens of the original statement."""
    shard = data.draw(st.lists(st.sampled_from(columns), min_size=1, unique=True))
    body = ", ".join(f"`{c}` String DEFAULT ')'" for c in columns)
    text = (
        f"CREATE TABLE {name}{noise} ({body}) ENGINE = {engine}{arguments} ORDER BY ({', '.join(columns)})"
        f" COMMENT 'sharded by {', '.join(shard)}'"
    )
    if not all(re.fullmatch("[a-z_]+", c) for c in shard):
        with pytest.raises(VariantError):
            translated(text, DISTRIBUTED)
        return
    for target, named in [(REPLICATED, name), (DISTRIBUTED, f"{name}_local")]:
        made = translated(text, target)[0]
        made = re.sub(r"\('/clickhouse/[^']*', '\{replica\}'(?:, )?([^)]*)\)", r"(\1)", made)
        made = made.replace(" ON CLUSTER 'mesh'", "").replace("= Replicated", "= ")
        made = made.replace(f"TABLE {named}", f"TABLE {name}", 1).replace(f"{engine}()", engine)
        assert [t.text for t in tokens(made)] == [t.text for t in tokens(text.replace(f"{engine}()", engine))]


def test_every_file_of_the_contracts_has_every_variant():
    """The whole schema has every variant, including the table of applied files.

    No plain MergeTree is left. The sharding keys are the columns by which tables are joined.
    """
    for target in (REPLICATED, DISTRIBUTED):
        made = [text for migration in varied(read_folder(DDL), target) for text in migration.statements]
        assert all("ON CLUSTER 'mesh'" in text for text in made)
        assert not any(re.search(r"ENGINE = (?!Replicated|Distributed)", text) for text in made)
    cloud = [text for migration in varied(read_folder(DDL), CLOUD) for text in migration.statements]
    assert "ON CLUSTER" not in "".join(cloud) and "non_replicated" not in "".join(cloud)
    assert sum("replicated_deduplication_window = 10000" in text for text in cloud) == sum(
        "ENGINE = " in text for text in cloud
    )
    keys = dict(re.findall(r"Distributed\('mesh', 'd', '(\w+)_local', (.*)\)", "\n".join(made)))
    assert {keys[name] for name in ("calls", "edges", "spans")} == {"cityHash64(trace_id)"}
