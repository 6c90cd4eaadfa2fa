"""Path templates and class ids."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_contracts import traffic_class
from spillway_streams.classify import MAX_VARIABLES, OTHER, Templates, path_template, route_template
from spillway_streams.counters import Counters


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/items/42", "/items/{id}"),
        ("/items/42?x=1#f", "/items/{id}"),
        ("/users/9f1c2d3e-0000-4000-8000-123456789abc/orders/7", "/users/{id}/orders/{id2}"),
        ("/blobs/deadbeefdeadbeef", "/blobs/{id}"),
        ("/o/order-48213", "/o/{id}"),
        ("/api/v2/hotels", "/api/v2/hotels"),
        ("/oauth2/token", "/oauth2/token"),
        ("/pkg.Service/Method", "/pkg.Service/Method"),
        ("http://host:80/a//b/", "/a/b"),
        ("/", "/"),
        ("/a/{b}/" + "c" * 80, "/a/{id}/{id2}"),
        ("/1/2/3/4/5/6", OTHER),
    ],
)
def test_identifiers_in_paths_become_variables(path, template):
    """Numbers, UUIDs, hashes and mixed ids are variables; versions and words stay."""
    assert path_template(path) == template


@pytest.mark.parametrize(
    "route", ["/u/:id/x", "/u/{userId}/x", "/u/<int:id>/x", "/u/{id:[0-9]+}/x", "/u/*/x"]
)
def test_routes_of_every_framework_become_the_same_template(route):
    """A route's own variable syntax is Envoy's afterwards."""
    assert route_template(route) == "/u/{id}/x"


@given(st.text(max_size=60))
def test_any_path_gives_a_valid_class_id_and_a_valid_envoy_pattern(path):
    """Whatever a client sends: the id parses, variables are unique, whole segments, and few."""
    class_id = Templates(Counters()).classify("svc", "GET", path="/" + path)
    template = traffic_class.parse(class_id).path_template
    variables = re.findall(r"\{([^}]*)\}", template)
    assert len(set(variables)) == len(variables) <= MAX_VARIABLES
    for segment in template[1:].split("/"):
        assert re.fullmatch(r"\{id\d*\}|[A-Za-z0-9\-._~%!$&'()+,;:@]*", segment)


def test_cardinality_is_bounded_per_service():
    """Past the bound new templates fall into /other, counted; known ones and other services do not."""
    counters = Counters()
    templates = Templates(counters, per_service=2)
    assert templates.classify("a", "GET", "/one") == "a GET /one"
    assert templates.classify("a", "GET", "/two") == "a GET /two"
    assert templates.classify("a", "GET", "/three") == "a GET /other"
    assert templates.classify("a", "GET", "/one") == "a GET /one"
    assert templates.classify("b", "GET", "/three") == "b GET /three"
    assert counters["class_other"] == 1


def test_no_method_or_path_is_no_class():
    """Nothing is invented for a span that says neither."""
    templates = Templates(Counters())
    assert templates.classify("a", "", "/x") is None
    assert templates.classify("a", "GET") is None
