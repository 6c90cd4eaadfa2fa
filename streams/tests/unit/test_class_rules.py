"""The native module, which applies rules, and the job `classify`, which writes them, agree."""

import numpy as np
import spillway_native
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from spillway_streams.classes import rules
from spillway_streams.classes.rules import Rule

NOW_MS = 1_700_000_000_000
_WORDS = ("a", "b", "{id}")


def _template(parts: list[str]) -> str:
    """Joins the parts, with variables numbered as in templates."""
    return ("/" + "/".join(parts)).replace("{id}/{id}", "{id}/{id2}")


_TEMPLATES = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=2).map(_template)
_PATTERNS = st.just("") | st.lists(st.sampled_from((*_WORDS, "*")), min_size=1, max_size=2).map(_template)
_KINDS = ("pinned", "merged", "learned", "bounded", "retired", "unpinned")
_RULES = st.builds(
    lambda at, method, template, becomes, kind: Rule(at, at, "shop", method, template, becomes, kind),
    st.integers(NOW_MS - 60_000, NOW_MS + 60_000),
    st.sampled_from(("", "GET", "PUT")),
    _PATTERNS,
    st.sampled_from(("/x", "/{id}", "/other")),
    st.sampled_from(_KINDS),
)


def _classes(known: list[Rule], templates: list[str], stamped: bool) -> dict[str, str]:
    """Returns template -> class that the native module gives to GET requests.

    `stamped`: the spans carry the class themselves.
    """
    partition = spillway_native.Partition(first_offset=0, log_start=True, partitions=1)
    partition.set_rules(
        [(r.effective_from, r.service, r.method, r.template, r.becomes, r.kind) for r in known]
    )
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    _set(resource.resource.attributes, {"service.name": "shop", "spillway.cluster": "c1"})
    spans = resource.scope_spans.add().spans
    for i, template in enumerate(templates):
        span = spans.add(
            trace_id=bytes([i + 1] * 16), span_id=bytes([i + 1] * 8), kind=trace_pb2.Span.SPAN_KIND_SERVER,
            start_time_unix_nano=NOW_MS * 1_000_000, end_time_unix_nano=(NOW_MS + 5) * 1_000_000,
        )  # fmt: skip
        given_class = {"spillway.class": f"shop GET {template}"} if stamped else {"http.route": template}
        _set(span.attributes, {"http.request.method": "GET", "url.path": "/ignored"} | given_class)
    partition.add(request.SerializeToString(), 0, NOW_MS - 3_000, NOW_MS)
    partition.advance(NOW_MS)
    closed = partition.close()
    batch, found = closed.calls, {}
    codes = np.frombuffer(batch.column("class")[1], "<u4")
    ids = bytes(batch.column("trace_id")[1])
    for row, code in enumerate(codes):
        found[templates[int(ids[row * 32 : row * 32 + 2], 16) - 1]] = batch.dictionary[code]
    return found


def _set(attributes, values: dict[str, str]) -> None:
    for key, value in values.items():
        attributes.add(key=key).value.string_value = value


def _expected(known: list[Rule], templates: list[str], stamped: bool) -> dict[str, str]:
    """A trace first seen three seconds ago has a tick that begins one second ago."""
    force = [r for r in rules.in_force(known, NOW_MS - 1_000) if r.template or not stamped]
    found = {template: rules.match(force, "GET", template) for template in templates}
    return {template: f"shop GET {rule.becomes if rule else template}" for template, rule in found.items()}


@settings(max_examples=150)
@given(
    st.lists(_RULES, max_size=12), st.lists(_TEMPLATES, min_size=1, max_size=6, unique=True), st.booleans()
)
def test_both_sides_give_the_same_classes(known, templates, stamped):
    """Holds for any rules: their precedence, layers, times and ends."""
    assert _classes(known, templates, stamped) == _expected(known, templates, stamped)


def test_without_rules_classes_are_what_they_were():
    templates = ["/a", "/a/{id}", "/b/c"]
    for stamped in (False, True):
        assert _classes([], templates, stamped) == {t: f"shop GET {t}" for t in templates}


def test_what_was_kept_apart_from_a_pattern_stays_so_when_the_pattern_merges():
    """/users/me was never compared with the class that /users/* has merged into."""
    known = [
        Rule(0, 0, "shop", "GET", "/users/me", "/users/me", rules.LEARNED),
        Rule(0, 0, "shop", "GET", "/users/*", "/{id}/{id2}", rules.MERGED),
    ]
    expected = {"/users/me": "shop GET /users/me", "/users/b": "shop GET /{id}/{id2}"}
    for stamped in (False, True):
        assert _classes(known, [*expected], stamped) == _expected(known, [*expected], stamped) == expected


def test_a_merge_reaches_requests_that_envoy_stamped():
    """The rule for all others does not apply to them: they have a route, so they are named."""
    known = [
        Rule(0, 0, "shop", "GET", "/a/b", "/a/{id}", rules.MERGED),
        Rule(0, 0, "shop", "", "", "/other", rules.BOUNDED),
    ]
    assert _classes(known, ["/a/b", "/c"], stamped=True) == {"/a/b": "shop GET /a/{id}", "/c": "shop GET /c"}
    assert _classes(known, ["/a/b", "/c"], stamped=False) == {
        "/a/b": "shop GET /a/{id}",
        "/c": "shop GET /other",
    }
