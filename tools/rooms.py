"""Checks which room of a Python package imports which, by the order of rooms.toml.

It names every import against that order, every cycle of modules, and every package without a
docstring.

Usage: python tools/rooms.py [ROOT]
"""

import ast
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from layering import sources

ORDER = "tools/rooms.toml"


@dataclass(frozen=True)
class Import:
    """One import inside a package. Module names are dotted paths below the package."""

    path: Path
    line: int
    module: str
    target: str


@dataclass(frozen=True)
class Package:
    """A package's modules by dotted name ("" is the package itself), and the imports among them."""

    folder: Path
    modules: Mapping[str, Path]
    imports: list[Import] = field(default_factory=list)


def read(folder: Path) -> Package:
    """Reads a package's modules and the imports among them."""
    modules = {_dotted(path.relative_to(folder)): path for path in sorted(folder.rglob("*.py"))}
    package = Package(folder, modules)
    for module, path in modules.items():
        package.imports.extend(
            Import(path, line, module, target)
            for line, target in _targets(ast.parse(path.read_text(), str(path)), folder.name, modules)
        )
    return package


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _targets(tree: ast.AST, package: str, modules: Mapping[str, Path]) -> Iterator[tuple[int, str]]:
    """Yields line and dotted name of every imported module of the package, for types too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, _, below = name.partition(".")
            if first == package:
                yield node.lineno, below if below in modules else below.rpartition(".")[0]


def wrong_way(package: Package, rooms: list[str], root: Path) -> Iterator[str]:
    """Yields imports of a later room by an earlier one. `__main__` may import every room."""
    rank = {room: number for number, room in enumerate(rooms)} | {"__main__": len(rooms), "": -1}
    for found in package.imports:
        room, imported = found.module.split(".")[0], found.target.split(".")[0]
        if rank.get(imported, -1) > rank.get(room, len(rooms)):
            where = f"{found.path.relative_to(root)}:{found.line}"
            yield f"{where}: room {room!r} imports {imported!r}, which stands after it in {ORDER}"


def unlisted(package: Package, rooms: list[str], root: Path) -> Iterator[str]:
    """Yields rooms missing in rooms.toml, modules outside of rooms, and removed rooms."""
    inside = {name.split(".")[0]: path for name, path in package.modules.items() if name}
    for name in sorted(inside.keys() - {*rooms, "__main__"}):
        yield f"{inside[name].relative_to(root)}: {name!r} is no room of {package.folder.name} in {ORDER}"
    for name in rooms:
        if name not in inside:
            yield f"{ORDER}: {package.folder.name}: there is no room {name!r}"


def undocumented(package: Package, root: Path) -> Iterator[str]:
    """Yields packages whose `__init__.py` has no docstring."""
    for folder in sorted({path.parent for path in package.modules.values()}):
        init = folder / "__init__.py"
        if not init.exists() or not ast.get_docstring(ast.parse(init.read_text())):
            yield f"{init.relative_to(root)}: has no docstring; say what lives here and what may not"


def circles(package: Package) -> Iterator[str]:
    """Yields one cycle of modules, if there is any."""
    graph: dict[str, set[str]] = {module: set() for module in package.modules}
    for found in package.imports:
        if found.target and found.target != found.module:
            graph[found.module].add(found.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # The sorter lists a predecessor before the module that imports it.
        yield f"{package.folder.name}: modules import one another: {' <- '.join(error.args[1])}"


def _is_of_a_box(init: Path) -> bool:
    return init.parent.name.startswith("spillway_")


def main(root: Path) -> int:
    problems: list[str] = []
    order = tomllib.loads((root / ORDER).read_text())
    folders = {path.parent.name: path.parent for path in sources(root, "*/__init__.py") if _is_of_a_box(path)}
    problems += [f"{folders[name].relative_to(root)}: no table in {ORDER}" for name in folders.keys() - order]
    problems += [f"{ORDER}: there is no package {name}" for name in order.keys() - folders]
    for name in folders.keys() & order.keys():
        package = read(folders[name])
        if rooms := order[name]["rooms"]:  # without rooms a package is flat
            problems += [*wrong_way(package, rooms, root), *unlisted(package, rooms, root)]
        problems += [*undocumented(package, root), *circles(package)]
    rooms = sum(len(table["rooms"]) for table in order.values())
    print("\n".join(problems) if problems else json.dumps({"rooms": rooms, "against_the_order": 0}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
