"""Makes strict JSON schemas for kubeconform: a key that the schema does not name is refused.

Kubernetes' own schemas come from the OpenAPI document of the API server that tools/kubernetes pins.
Its module carries what the server answers at /openapi/v2. Schemas of custom resources come from the
definitions in crds.yaml. Those of operators that publish no Go module are in operators.json; README
of infra/helm/spillway-global names the versions.

Usage: python tools/charts/schemas.py FOLDER

It is idempotent: schemas are made again only when a pin or this file changes.
"""

import fcntl
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
KUBERNETES = HERE.parent / "kubernetes"
OPERATORS = HERE / "operators.json"
INPUTS = (Path(__file__), HERE / "crds.yaml", OPERATORS, KUBERNETES / "go.mod")
# Types that the API server reads in more forms than its document states.
LENIENT = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
}


class SchemaError(Exception):
    """A module or a definition differs from the pins."""


def _go(*arguments: str, folder: Path = HERE) -> str:
    done = subprocess.run(["go", *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SchemaError(f"go {' '.join(arguments)}: {done.stderr or done.stdout}")
    return done.stdout


def _module(pin: dict) -> Path:
    """Returns the folder of a pinned module. Raises SchemaError when its checksum differs."""
    found = json.loads(_go("mod", "download", "-json", f"{pin['module']}@{pin['version']}"))
    if found["Sum"] != pin["sum"]:
        raise SchemaError(f"crds.yaml: {pin['module']}: sum {found['Sum']}, pinned is {pin['sum']}")
    return Path(found["Dir"])


def strict(schema: object) -> object:
    """Returns the schema with additionalProperties false on every object whose keys are listed."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _inner(key, value) for key, value in schema.items()}
    if made.get("x-kubernetes-int-or-string"):
        made = {"type": ["string", "integer"]}
    open_ended = made.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in made
    if isinstance(made.get("properties"), dict) and made.get("type", "object") == "object" and not open_ended:
        made["additionalProperties"] = False
    return made


def _inner(key: str, value: object) -> object:
    """Returns the strict form of the value below a keyword.

    `properties` maps names to schemas, and a name may equal a keyword.
    """
    if key == "properties" and isinstance(value, dict):
        return {name: strict(schema) for name, schema in value.items()}
    return value if key in ("enum", "default", "example") else strict(value)


def _file_name(kind: str, group: str, version: str) -> str:
    """Returns the file name, by the template of tests/component/charts.py for kubeconform."""
    return f"{kind.lower()}-{group or 'core'}-{version}.json"


def of_kubernetes(document: dict) -> Iterator[tuple[str, dict]]:
    """Yields (file name, schema) of each kind, and definitions.json, to which they refer."""
    definitions = {name: LENIENT.get(name) or strict(d) for name, d in document["definitions"].items()}
    for name, definition in document["definitions"].items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            group, version, title = kind["group"], kind["version"], kind["kind"]
            properties = definitions[name].get("properties", {})
            if "apiVersion" in properties and "metadata" in properties:
                api_version = f"{group}/{version}" if group else version
                properties["apiVersion"] = {"type": "string", "enum": [api_version]}
                properties["kind"] = {"type": "string", "enum": [title]}
                yield _file_name(title, group, version), {"$ref": f"definitions.json#/definitions/{name}"}
    yield "definitions.json", {"definitions": definitions}


def of_definition(crd: dict) -> Iterator[tuple[str, dict]]:
    """Yields (file name, schema) of each version of a CustomResourceDefinition."""
    group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
    for version in crd["spec"]["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        known = {name: {} for name in ("apiVersion", "kind", "metadata")}
        schema["properties"] = known | {k: v for k, v in schema["properties"].items() if k != "metadata"}
        schema["additionalProperties"] = False
        schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
        yield _file_name(kind, group, version["name"]), schema


def _all() -> Iterator[tuple[str, dict]]:
    _go("mod", "download", "k8s.io/kubernetes", folder=KUBERNETES)
    api_server = Path(_go("list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes", folder=KUBERNETES).strip())
    yield from of_kubernetes(json.loads((api_server / "api/openapi-spec/swagger.json").read_text()))
    for pin in yaml.safe_load((HERE / "crds.yaml").read_text()):
        folder = _module(pin)
        for file in pin["files"]:
            for crd in yaml.safe_load_all((folder / file).read_text()):
                if crd:
                    yield from of_definition(crd)
    for crd in json.loads(OPERATORS.read_bytes()):
        yield from of_definition(crd)


def make(folder: Path) -> None:
    """Writes the schemas unless they match the pins. Several processes may call it at once."""
    folder.mkdir(parents=True, exist_ok=True)
    fingerprint = hashlib.sha256(b"".join(path.read_bytes() for path in INPUTS)).hexdigest()
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / ".stamp"
        if stamp.exists() and stamp.read_text() == fingerprint:
            return
        for name, schema in _all():
            (folder / name).write_text(json.dumps(schema))
        stamp.write_text(fingerprint)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: schemas.py FOLDER")
    try:
        make(Path(sys.argv[1]))
    except SchemaError as error:
        sys.exit(str(error))
