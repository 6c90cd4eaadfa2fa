"""The programs of a box with their settings, and the box's file of settings.

The file is YAML. SPILLWAY_<BOX>_SETTINGS names it, and it has one section per program:

    exclusive:
      window_s: 4
    curves:
      fit_period_s: 10

It has what tunes the box, not connections, paths, identities or secrets. A variable that is set
precedes the file. The JSON Schema of each file lies beside the box's REFERENCE.md.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spillway_runtime import exit_codes, settings, yaml_file
from spillway_runtime.settings import Settings
from spillway_runtime.yaml_file import FileError


@dataclass(frozen=True)
class Box:
    """A box and the settings of each of its programs.

    `name`: as in the names of variables, for example STREAMS.
    """

    name: str
    programs: Mapping[str, type[Settings]]

    @property
    def variable(self) -> str:
        """The variable that names the file of settings."""
        return f"{settings.PREFIX}{self.name}_SETTINGS"

    def load(self, program: str, **given: Any) -> Any:
        """Returns the settings of one program, of its type in `programs`.

        `given` takes precedence over variables and file. If any are wrong, prints one line for each
        and exits with code 64.
        """
        kind, path = self.programs[program], os.environ.get(self.variable)
        if not path:
            return settings.load(kind, **given)
        try:
            sections = self.read(Path(path))
        except FileError as error:
            print(error, file=sys.stderr)
            raise SystemExit(exit_codes.USAGE) from None
        variables = settings.variables(os.environ)
        filed = {
            field: value
            for field, value in sections.get(program, {}).items()
            if variables.isdisjoint(settings.names(field, kind.model_fields[field]))
        }
        return settings.load(kind, path if filed else None, **filed | given)

    def read(self, path: Path) -> dict[str, dict[str, Any]]:
        """Returns the sections of a file. Raises FileError, also for sections of other programs."""
        document = yaml_file.read(path)
        if document is None:
            return {}
        if not isinstance(document, dict):
            raise FileError(f"{path}: must have a section for each program, of {', '.join(self.programs)}")
        wrong = [line for name, section in document.items() for line in self._problems(name, section)]
        if wrong:
            raise FileError("\n".join(f"{path}: {line}" for line in wrong))
        return {name: section or {} for name, section in document.items()}

    def _problems(self, program: object, section: object) -> list[str]:
        if not isinstance(program, str) or program not in self.programs:
            return [f"{program}: must be one of {', '.join(self.programs)}"]
        if not isinstance(section, dict | None):
            return [f"{program}: must map names of settings to values"]
        kind, section = self.programs[program], section or {}
        known = _tuned(kind)
        unknown = [key for key in section if key not in known]
        if unknown:
            return [f"{program}.{key}: must be one of {', '.join(sorted(known))}" for key in unknown]
        return _wrong_values(kind, program, section)

    def schema(self) -> dict[str, Any]:
        """Returns the JSON Schema of the file."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"The file that {self.variable} names",
            "type": "object",
            "additionalProperties": False,
            "properties": {name: _section(kind) for name, kind in self.programs.items() if _tuned(kind)},
        }


def _wrong_values(kind: type[Settings], program: str, section: Mapping[str, Any]) -> list[str]:
    """Checks each value alone, because connections and other settings may stand elsewhere."""
    wrong = []
    for field, value in section.items():
        try:
            kind.__pydantic_validator__.validate_assignment(kind.model_construct(), field, value, strict=True)
        except ValidationError as error:
            wrong += [
                f"{program}.{field}: {settings.reason(found)}" for found in error.errors() if found["loc"]
            ]
    return wrong


def _tuned(kind: type[Settings]) -> list[str]:
    """Returns the fields that may stand in the file."""
    return [field for field, info in kind.model_fields.items() if settings.is_tuning(info)]


def _section(kind: type[Settings]) -> dict[str, Any]:
    whole = kind.model_json_schema(by_alias=False)["properties"]
    tuned = {field: whole[field] for field in _tuned(kind)}
    for shape in tuned.values():
        shape.pop("title", None)
    return {"type": "object", "additionalProperties": False, "properties": tuned}
