"""Makes the tables of the filter's configuration and stats from its sources.

Keys, defaults and limits are those of `Config::parse` in wasm/core/src/config.rs, meanings are the
documentation of its fields. Stats are the group filter_stat of contracts/names.yaml.
"""

import re
from pathlib import Path

from program_tables import table

_FIELD = re.compile(r"((?: +/// .*\n)+) +pub (\w+): ")
_READ = re.compile(r"^ +(\w+): keys\.(\w+)\((.*)\)(?: as usize)?,$", re.MULTILINE)
_STAT = re.compile(r" +(\w+): (\S+) +# (\{class\} of .*|(counter|gauge): (.*))")


def tables(wasm: Path) -> dict[str, str]:
    """Returns the filter's tables by the name of their mark."""
    return {"settings": _keys(wasm / "core/src"), "stats": _stats(wasm.parent / "contracts/names.yaml")}


def _stats(names: Path) -> str:
    rows = []
    for line in _between(names.read_text(), "\nfilter_stat:\n", "\n\n").splitlines():
        found = _STAT.fullmatch(line)
        if not found:
            raise ValueError(f"{names}: {line.strip()}: needs a comment that begins with counter or gauge")
        _, stat, _, kind, meaning = found.groups()
        if kind:  # the others are values of the placeholder
            rows.append((f"`{stat}`", kind, meaning))
    return table(("stat", "type", "meaning"), rows)


def _keys(source: Path) -> str:
    code = (source / "config.rs").read_text()
    bounds = _between((source / "export/outbox.rs").read_text(), "pub struct Bounds {", "\n}")
    fields = _between(code, "pub struct Config {", "\n}") + bounds
    meanings = {field: " ".join(re.findall(r"/// (.*)", text)) for text, field in _FIELD.findall(fields)}
    rows = {}
    for field, method, text in _READ.findall(code):
        arguments = [argument.strip() for argument in text.split(",")] if text else []
        key = arguments[0].strip('"') if arguments else field
        default, limits = _default(code, method, arguments), _limits(code, method, arguments)
        rows[key] = f"`{key}`", default, limits, meanings[field].rstrip(".")
    known = set(re.findall(r'"(\w+)"', _between(code, "const KEYS", "];")))
    if rows.keys() != known:
        raise ValueError(f"{source}/config.rs: KEYS and `parse` differ in {sorted(rows.keys() ^ known)}")
    return table(("key", "default", "allowed", "meaning"), rows.values())


def _default(code: str, method: str, arguments: list[str]) -> str:
    """Returns the default that `parse` passes on, or that the method of a single key has."""
    if method in ("number", "ratio"):
        return _shown(arguments[1])
    if method == "name":
        return "required"
    body = _between(code, f"fn {method}(", "\n    }\n")
    if named := re.search(r'Some\("(.*?)"\)\);', body):
        return f"`{named[1]}`"
    if f'"{method}: missing' not in body:
        return "none"
    return "required (inbound)" if "self.inbound()" in body else "required"


def _limits(code: str, method: str, arguments: list[str]) -> str:
    if method == "number":
        return " … ".join(_shown(limit) for limit in arguments[2].split("..="))
    if method == "ratio":
        return f"0, {_between(code, 'LEAST_RATIO: f64 = ', ';')} … 1"
    return ""


def _shown(number: str) -> str:
    """Returns a number of the sources, which may be a shift, in groups of three digits."""
    if "." in number:
        return f"{float(number):g}"
    value, _, shift = number.replace("_", "").partition("<<")
    return f"{int(value) << int(shift or 0):,}".replace(",", " ")


def _between(text: str, start: str, end: str) -> str:
    """Returns what follows the first `start`, up to the next `end`.

    Raises ValueError without them.
    """
    begin = text.index(start) + len(start)
    return text[begin : text.index(end, begin)]
