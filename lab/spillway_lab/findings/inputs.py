"""What a run is made from: scenario and application, as text and as one hash.

The hash is stored beside results. Results whose hash is another one are of other inputs.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from spillway_lab.findings.catalogue import Experiment, Variant, changed
from spillway_lab.scenario.application import Model, read_yaml
from spillway_lab.scenario.errors import InvalidInput, from_validation

FILE = "inputs.json"
_APPLICATION = "application"


@dataclass(frozen=True)
class Inputs:
    """The files of one run. `application` is None if the run takes the application as it is."""

    scenario: str
    application: str | None
    digest: str  # hexadecimal SHA-256


class Stamp(Model):
    """Written beside the results of a run when it has ended."""

    digest: str
    commit: str = ""  # of the code; empty outside a checkout
    command: list[str] = Field(default_factory=list)


def of_benchmark(experiment: Experiment) -> Inputs:
    return Inputs("", None, _digest(experiment.kind, *experiment.command))


def of_variant(variant: Variant) -> Inputs:
    """Returns the files of one variant.

    Keys of its changes that begin with `application.` are those of the application file. Raises
    InvalidInput if a file cannot be read or has no such key.
    """
    document = read_yaml(variant.scenario)
    if not isinstance(document, dict) or not isinstance(document.get(_APPLICATION), str):
        raise InvalidInput([f"{variant.scenario}: application: missing; must be the path of a file"])
    path = variant.scenario.parent / document[_APPLICATION]
    application = read_yaml(path)
    mine, its = _split(variant.changes)
    scenario_text = _text(changed(document, mine, variant.scenario) | {_APPLICATION: str(path.resolve())})
    application_text = _text(changed(application, its, path))
    # The place of a checkout is no input, so the digest does not have the absolute path. Nor is the
    # scale of live runs one of a simulation.
    ignored = {"time_scale"} if variant.kind == "simulated" else set()
    digest = _digest(
        variant.kind,
        _text({k: v for k, v in changed(document, mine, variant.scenario).items() if k not in ignored}),
        application_text,
        *map(str, variant.at),
    )
    return Inputs(scenario_text, application_text if its else None, digest)


def written(inputs: Inputs, variant: Variant, folder: Path) -> Path:
    """Returns the scenario file to run: the variant's own, or a copy of its name in `folder`."""
    if not variant.changes and variant.name == variant.scenario.stem:
        return variant.scenario
    folder.mkdir(parents=True, exist_ok=True)
    text = inputs.scenario
    if inputs.application is not None:
        application = folder / f"{variant.name}.application.yaml"
        application.write_text(inputs.application)
        text = _text(yaml.safe_load(text) | {_APPLICATION: str(application.resolve())})
    path = folder / f"{variant.name}.yaml"
    path.write_text(text)
    return path


def stamp(folder: Path) -> Stamp | None:
    """Reads the stamp of results; None if there is none, because the run did not end."""
    path = folder / FILE
    try:
        return Stamp.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput([f"{path}: cannot be read: {error.strerror}"]) from error
    except ValidationError as error:
        raise from_validation(path, error) from error


def _split(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the changes of the scenario file, and those of the application file."""
    prefix = f"{_APPLICATION}."
    its = {key.removeprefix(prefix): value for key, value in changes.items() if key.startswith(prefix)}
    return {key: value for key, value in changes.items() if not key.startswith(prefix)}, its


def _text(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
