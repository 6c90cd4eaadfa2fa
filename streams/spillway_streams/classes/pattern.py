"""Path templates, and the patterns that name sets of templates.

A template is what Envoy's `uri_template` accepts: literal segments and whole-segment variables. A
pattern is a template in which a segment `*` stands for any one segment, including a variable.
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
    """Splits a template: `/a/{id}` -> ("a", "{id}"). The root has no segments."""
    return tuple(template[1:].split("/")) if len(template) > 1 else ()


def is_variable(segment: str) -> bool:
    return segment.startswith("{")


def assemble(parts: Iterable[str | None]) -> str:
    """Joins segments to a template; None is a variable. OTHER if Envoy could not match it."""
    out, count = [], 0
    for part in parts:
        if part is None:
            count += 1
            part = "{id}" if count == 1 else f"{{id{count}}}"
        out.append(part)
    text = "/" + "/".join(out)
    return OTHER if count > MAX_VARIABLES or len(text) > MAX_LENGTH else text


def generic(template: str, position: int) -> str:
    """Returns the template with one more variable, at `position`. All variables get new names."""
    parts: list[str | None] = [None if is_variable(part) else part for part in segments(template)]
    parts[position] = None
    return assemble(parts)


def matches(pattern: Sequence[str], template: Sequence[str]) -> bool:
    """Whether a pattern, given as segments, names a template."""
    return len(pattern) == len(template) and all(
        p in (ANY, t) for p, t in zip(pattern, template, strict=True)
    )


def covers(template: str, pattern: str) -> bool:
    """Whether every path of every template that the pattern names is also a path of the template.

    Envoy routes a class by its one template. Requests that this template does not match would be
    counted as the class, but routed by the catch-all.
    """
    whole, part = segments(template), segments(pattern)
    return len(whole) == len(part) and all(is_variable(w) or w == p for w, p in zip(whole, part, strict=True))


def check(pattern: str, *, wildcards: bool) -> str:
    """Returns the pattern if it is valid.

    Raises PatternError, which names the invalid segment and what is allowed.
    """
    if not pattern.startswith("/") or len(pattern) > MAX_LENGTH:
        raise PatternError(f"{pattern!r}: must begin with '/' and have at most {MAX_LENGTH} characters")
    for part in segments(pattern):
        if not _SEGMENT.fullmatch(part) or (part == ANY and not wildcards):
            allowed = "text, {variable} or *" if wildcards else "text or {variable}"
            raise PatternError(f"{pattern!r}: segment {part!r}: must be {allowed}")
    if sum(map(is_variable, segments(pattern))) > MAX_VARIABLES:
        raise PatternError(f"{pattern!r}: more than {MAX_VARIABLES} variables, Envoy takes no more")
    return pattern
