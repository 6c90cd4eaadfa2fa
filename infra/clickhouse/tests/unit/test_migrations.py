"""Migrations: reading a folder of SQL files, and choosing the files to apply."""

import pytest
from spillway_clickhouse.migrate import MigrationError, database_of, pending, read_folder, split_statements


def test_statements_split_at_semicolons_outside_quotes_and_comments():
    """Comments between statements are removed. Semicolons in quotes and comments stay."""
    text = "-- first; one\nSELECT ';' -- no; end\n;\n/* ; */ SELECT 2;;\nSELECT 3\n-- last"
    assert split_statements(text) == ("SELECT ';'", "SELECT 2", "SELECT 3")


def test_folder_is_read_by_number(tmp_path):
    """Files come in the order of their numbers."""
    (tmp_path / "0002_b.sql").write_text("SELECT 2;")
    (tmp_path / "0001_a.sql").write_text("SELECT 1;")
    (tmp_path / "README.md").write_text("not SQL")
    assert [m.file for m in read_folder(tmp_path)] == ["0001_a.sql", "0002_b.sql"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"1_a.sql": "SELECT 1"}, "1_a.sql: name must be"),
        (
            {"0001_a.sql": "SELECT 1", "0001_b.sql": "SELECT 1"},
            "0001_b.sql: number 0001 is taken by 0001_a.sql",
        ),
        ({"0001_a.sql": "-- nothing\n"}, "0001_a.sql: has no statement"),
        ({}, "has no NNNN_"),
    ],
)
def test_folder_errors_name_the_file(tmp_path, files, message):
    """Errors of a folder name the file."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(MigrationError, match=message):
        read_folder(tmp_path)


def test_pending(tmp_path):
    """Only new files are pending. A changed or missing file is an error that names it."""
    (tmp_path / "0001_a.sql").write_text("SELECT 1;")
    (tmp_path / "0002_b.sql").write_text("SELECT 2;")
    first, second = read_folder(tmp_path)
    assert pending([first, second], {first.file: first.sha256}) == [second]
    with pytest.raises(MigrationError, match="0001_a.sql: changed"):
        pending([first, second], {first.file: "0" * 64})
    with pytest.raises(MigrationError, match="0009_x.sql: was applied but is not"):
        pending([first], {"0009_x.sql": "0" * 64})


def test_url_must_name_a_database():
    """The database is removed from the URL, and a URL without one is an error."""
    url = "clickhouse://u:p@h:9000/spillway?compression=lz4"
    assert database_of(url) == ("clickhouse://u:p@h:9000?compression=lz4", "spillway")
    with pytest.raises(MigrationError, match="SPILLWAY_CLICKHOUSE_URL"):
        database_of("clickhouse://u:p@h:9000")
