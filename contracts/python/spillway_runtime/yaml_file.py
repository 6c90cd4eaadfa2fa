"""YAML files that people write: a repeated key is an error, and errors quote no line of it."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml


class FileError(ValueError):
    """The file cannot be used. Each line of the message names the file, and the place if known."""


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that occurs twice. YAML would silently keep the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise yaml.constructor.ConstructorError(None, None, "must be a mapping", node.start_mark)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is there twice; once is allowed", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(path: Path) -> object:
    """Returns the document, or None when the file is empty.

    Raises FileError. The message has no line of the file, because a secret may stand there by
    mistake.
    """
    try:
        return yaml.load(path.read_text(), _UniqueKeys)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise FileError(f"{path}: cannot be read: {error.problem}{where}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise FileError(f"{path}: cannot be read: {why}") from None
