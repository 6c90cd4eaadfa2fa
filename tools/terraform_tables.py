"""Writes the variables and outputs of the Terraform modules as tables into their READMEs.

The tables stand between two marks.

python tools/terraform_tables.py           writes them
python tools/terraform_tables.py --check   names the READMEs that are stale, and fails
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "terraform"
START, END = "<!-- made by tools/terraform_tables.py -->\n", "<!-- end -->\n"
_BLOCK = re.compile(r'^(variable|output) "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)


def attribute(body: str, name: str) -> str | None:
    """Returns an attribute's text, up to the line that closes its brackets; None if absent."""
    found = re.search(rf"^  {name}\s*= ", body, re.MULTILINE)
    if not found:
        return None
    lines, depth = [], 0
    for line in body[found.end() :].splitlines():
        lines.append(line.strip())
        bare = re.sub(r'"[^"]*"', "", line)
        depth += sum(bare.count(bracket) for bracket in "([{") - sum(bare.count(bracket) for bracket in ")]}")
        if depth <= 0:
            break
    return " ".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _blocks(folder: Path, kind: str) -> list[tuple[str, str]]:
    texts = "\n".join(path.read_text() for path in sorted(folder.glob("*.tf")))
    return sorted((name, body) for found, name, body in _BLOCK.findall(texts) if found == kind)


def tables(folder: Path) -> str:
    """Returns the tables of a module.

    Raises ValueError for a variable or output without description.
    """
    lines = ["| variable | meaning | type | default |", "|---|---|---|---|"]
    for name, body in _blocks(folder, "variable"):
        default = attribute(body, "default")
        shown = "required" if default is None else f"`{re.sub(r' +', ' ', default)}`"
        if len(shown) > 40:
            shown = "in variables.tf"
        kind = re.sub(r" +", " ", attribute(body, "type") or "any")
        lines.append(f"| `{name}` | {_description(folder, name, body)} | `{_cell(kind)}` | {shown} |")
    lines += ["", "| output | meaning |", "|---|---|"]
    for name, body in _blocks(folder, "output"):
        lines.append(f"| `{name}` | {_description(folder, name, body)} |")
    return "\n".join(lines) + "\n"


def _description(folder: Path, name: str, body: str) -> str:
    found = re.search(r'^  description = "(.*)"$', body, re.MULTILINE)
    if not found:
        raise ValueError(f"{folder}: {name} has no description")
    return _cell(found.group(1).replace('\\"', '"'))


def rendered(readme: Path) -> str:
    """Returns the README with its current tables. Raises ValueError without the two marks."""
    before, mark, rest = readme.read_text().partition(START)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{readme}: the marks of the tables are missing")
    return before + START + tables(readme.parent) + END + after


def main(check: bool) -> int:
    stale = []
    for folder in sorted(path.parent for path in ROOT.glob("modules/*/variables.tf")):
        readme = folder / "README.md"
        text = rendered(readme)
        if text != readme.read_text():
            stale.append(str(readme.relative_to(ROOT.parent)))
            if not check:
                readme.write_text(text)
    if check and stale:
        print(f"stale: {', '.join(stale)}; run python tools/terraform_tables.py")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
