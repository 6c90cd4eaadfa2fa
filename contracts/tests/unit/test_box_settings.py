"""The settings of a box's programs: variables with unit, former names, the file of settings."""

import json
from pathlib import Path

import pytest
from pydantic import model_validator
from spillway_runtime import settings
from spillway_runtime.box import Box
from spillway_runtime.settings import Settings, tuning
from spillway_runtime.yaml_file import FileError


class _Worker(Settings):
    url: str
    window_s: float = tuning("TEST_WINDOW_S", "silence after which it closes", 2.0, was="WINDOW", gt=0, le=60)
    life_s: float = tuning("TEST_LIFE_S", "age at which it closes", 30.0, gt=0)

    @model_validator(mode="after")
    def _order(self) -> "_Worker":
        if self.life_s < self.window_s:
            raise ValueError("SPILLWAY_TEST_WINDOW_S, _LIFE_S: each must be at least the one before")
        return self


class _Other(Settings):
    keys: int = tuning("TEST_KEYS", "remembered keys", 10, ge=1)


BOX = Box("TEST", {"worker": _Worker, "other": _Other})


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    """A file of settings that the box reads, at first empty."""
    for name in ("TEST_WINDOW_S", "WINDOW", "TEST_LIFE_S"):
        monkeypatch.delenv(f"SPILLWAY_{name}", raising=False)
    path = tmp_path / "settings.yaml"
    path.write_text("")
    monkeypatch.setenv("SPILLWAY_TEST_SETTINGS", str(path))
    monkeypatch.setenv("SPILLWAY_URL", "x://")
    return path


def test_a_variable_precedes_the_file_and_the_file_precedes_the_default(file, monkeypatch):
    """Also when the variable has its former name."""
    assert BOX.load("worker").window_s == 2
    file.write_text("worker: {window_s: 4, life_s: 20}\nother:\n")
    assert (BOX.load("worker").window_s, BOX.load("worker").life_s) == (4, 20)
    monkeypatch.setenv("SPILLWAY_WINDOW", "5")
    assert BOX.load("worker").window_s == 5
    monkeypatch.setenv("SPILLWAY_TEST_WINDOW_S", "6")
    assert BOX.load("worker").window_s == 6


def test_a_former_name_is_read_with_a_warning(file, monkeypatch, capsys):
    """When both names are set, the present one is used, with a warning."""
    monkeypatch.setenv("SPILLWAY_WINDOW", "5")
    BOX.load("worker")
    assert capsys.readouterr().err == (
        "SPILLWAY_WINDOW: is now SPILLWAY_TEST_WINDOW_S, the next version ignores it\n"
    )
    monkeypatch.setenv("SPILLWAY_TEST_WINDOW_S", "6")
    BOX.load("worker")
    assert "which is used instead" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker: {windows_s: 4}", "worker.windows_s: must be one of life_s, window_s"),
        ("worker: {url: x}", "worker.url: must be one of life_s, window_s"),
        ("worker: {window_s: 61}", "worker.window_s: Input should be less than or equal to 60; got 61"),
        ("worker: {window_s: soon}", "worker.window_s: Input should be a valid number"),
        ("worker: {window_s: true}", "worker.window_s: Input should be a valid number"),
        ("worker: {window_s: '3'}", "worker.window_s: Input should be a valid number"),
        ("worker: {window_s: 3}\nworker: {life_s: 9}", "cannot be read: key 'worker' is there twice"),
        ("worker: 4", "worker: must map names of settings to values"),
        ("other: {keys: 0}", "other.keys: Input should be greater than or equal to 1"),
        ("third: {}", "third: must be one of worker, other"),
        ("4: {}", "4: must be one of worker, other"),
        ("[worker]", "must have a section for each program, of worker, other"),
        ("worker: {", "cannot be read: "),
    ],
)
def test_what_is_wrong_in_the_file_is_named(file, capsys, text, expected):
    """The line names file, section and key, also of other programs. Nothing of it is used."""
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        BOX.load("worker")
    assert ended.value.code == 64 and f"{file}: {expected}" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_an_error(file, capsys):
    """A mistyped path must not mean defaults."""
    file.unlink()
    with pytest.raises(SystemExit):
        BOX.load("other")
    assert f"{file}: cannot be read: " in capsys.readouterr().err


def test_a_check_of_several_settings_is_applied_to_file_and_variables_together(file, monkeypatch, capsys):
    """Each alone would be right."""
    file.write_text("worker: {window_s: 40}")
    with pytest.raises(SystemExit):
        BOX.load("worker")
    printed = capsys.readouterr().err
    assert (
        "SPILLWAY_TEST_WINDOW_S, _LIFE_S: " in printed and f"some of the settings are from {file}" in printed
    )
    monkeypatch.setenv("SPILLWAY_TEST_LIFE_S", "50")
    assert BOX.load("worker").life_s == 50


def test_an_error_in_the_file_shows_no_line_of_it(file, capsys):
    """A connection with its password may stand there by mistake."""
    file.write_text("worker:\n  redis_url: redis://:hunter2@h: 6379\n")
    with pytest.raises(SystemExit):
        BOX.load("worker")
    printed = capsys.readouterr().err
    assert "line 2, column " in printed and "hunter2" not in printed


def test_only_the_names_in_the_tables_are_read(file, monkeypatch):
    """A field's own name is no variable: two programs may have fields of the same name."""
    monkeypatch.setenv("SPILLWAY_WINDOW_S", "7")
    monkeypatch.setenv("SPILLWAY_KEYS", "7")
    assert (BOX.load("worker").window_s, BOX.load("other").keys) == (2, 10)
    assert BOX.load("other", keys=3).keys == 3


def test_names_in_lower_case_count_like_others(file, monkeypatch, capsys):
    """They precede the file, and a former name is warned of."""
    file.write_text("worker: {window_s: 4}")
    monkeypatch.setenv("spillway_window", "5")
    assert BOX.load("worker").window_s == 5 and "SPILLWAY_WINDOW: is now" in capsys.readouterr().err


def test_the_schema_has_what_may_stand_in_the_file_and_no_more():
    """Connections are not in it."""
    schema = BOX.schema()
    worker = schema["properties"]["worker"]
    assert set(worker["properties"]) == {"window_s", "life_s"} and worker["additionalProperties"] is False
    assert worker["properties"]["window_s"] == {
        "default": 2.0, "description": "silence after which it closes", "exclusiveMinimum": 0, "maximum": 60,
        "type": "number",
    }  # fmt: skip
    json.dumps(schema)


def test_an_unknown_argument_is_an_error():
    """A renamed setting in a test or tool must not be ignored."""
    with pytest.raises(ValueError, match="windows"):
        _Worker(url="x", windows=1)
    assert settings.names("url", _Worker.model_fields["url"]) == ["SPILLWAY_URL"]
    with pytest.raises(FileError):
        BOX.read(Path("/nowhere"))
