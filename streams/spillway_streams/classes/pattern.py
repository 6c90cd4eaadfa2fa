"""Path templates and the patterns that name sets of them.

A template is what Envoy's `uri_template` takes: literal segments and whole-segment variables. A pattern is a
template in which a segment `*` stands for any one segment, a variable included.
"""

import re
from collections.abc import Iterable, Sequence

from spillway_streams import StreamsError

OTHER = "/other"
ANY = "*"
MAX_VARIABLES = 5  # Envoy: uri_template_internal.cc
MAX_LENGTH = 256
_SEGMENT = re.compile(r"[A-Za-z0-9\-._~%!$&'()+,;:@=]+|\{[A-Za-z][A-Za-z0-9_]{0,15}\}|\*")

Segments = tuple[str, ...]


class PatternError(StreamsError):
    """A template or pattern that Envoy or the rules cannot express."""


def segments(template: str) -> Segments:
    """`/a/{id}` -> ("a", "{id}"); the root has none."""
    return tuple(template[1:].split("/")) if len(template) > 1 else ()


def is_variable(segment: str) -> bool:
    return segment.startswith("{")


def assemble(parts: Iterable[str | None]) -> str:
    """Segments to a template, None being a variable; OTHER when Envoy could not match it."""
    out, count = [], 0
    for part in parts:
        if part is None:
            count += 1
            part = "{id}" if count == 1 else f"{{id{count}}}"
        out.append(part)
    text = "/" + "/".join(out)
    return OTHER if count > MAX_VARIABLES or len(text) > MAX_LENGTH else text


def generic(template: str, position: int) -> str:
    """The template with a variable at one more position, all of them named anew."""
    parts: list[str | None] = [None if is_variable(part) else part for part in segments(template)]
    parts[position] = None
    return assemble(parts)


def matches(pattern: Sequence[str], template: Sequence[str]) -> bool:
    """Whether a pattern's segments name a template's."""
    return len(pattern) == len(template) and all(
        p in (ANY, t) for p, t in zip(pattern, template, strict=True)
    )


def covers(template: str, pattern: str) -> bool:
    """Whether every path of every template that the pattern names is one of the template too.

    Envoy routes a class by its one template: requests that a class's template does not match would be counted
    as the class and routed by the catch-all.
    """
    whole, part = segments(template), segments(pattern)
    return len(whole) == len(part) and all(is_variable(w) or w == p for w, p in zip(whole, part, strict=True))


def check(pattern: str, *, wildcards: bool) -> str:
    """The pattern itself; PatternError names the segment that cannot be, and what can."""
    if not pattern.startswith("/") or len(pattern) > MAX_LENGTH:
        raise PatternError(f"{pattern!r}: must begin with '/' and have at most {MAX_LENGTH} characters")
    for part in segments(pattern):
        if not _SEGMENT.fullmatch(part) or (part == ANY and not wildcards):
            allowed = "text, {variable} or *" if wildcards else "text or {variable}"
            raise PatternError(f"{pattern!r}: segment {part!r}: must be {allowed}")
    if sum(map(is_variable, segments(pattern))) > MAX_VARIABLES:
        raise PatternError(f"{pattern!r}: more than {MAX_VARIABLES} variables, Envoy takes no more")
    return pattern
