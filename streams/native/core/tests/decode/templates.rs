//! Tests of path templates and class ids.

use proptest::prelude::*;
use spillway_spans::classes::class_id::is_class_id;
use spillway_spans::classes::template::{MAX_VARIABLES, OTHER, is_identifier, path_template, route_template};

/// Numbers, UUIDs, hashes and mixed ids become variables. Versions and words stay.
#[test]
fn identifiers_in_paths_become_variables() {
    let long = format!("/a/{{b}}/{}", "c".repeat(80));
    for (path, template) in [
        ("/items/42", "/items/{id}"),
        ("/items/42?x=1#f", "/items/{id}"),
        ("/users/9f1c2d3e-0000-4000-8000-123456789abc/orders/7", "/users/{id}/orders/{id2}"),
        ("/blobs/deadbeefdeadbeef", "/blobs/{id}"),
        ("/o/order-48213", "/o/{id}"),
        ("/api/v2/hotels", "/api/v2/hotels"),
        ("/api/v1.2beta3/V10_4rc/v1alpha", "/api/v1.2beta3/V10_4rc/v1alpha"),
        ("/oauth2/token", "/oauth2/token"),
        ("/pkg.Service/Method", "/pkg.Service/Method"),
        ("http://host:80/a//b/", "/a/b"),
        ("http://host", "/"),
        ("/proxy/https://example.com/a/b", "/proxy/https:/example.com/a/b"),
        ("/", "/"),
        ("", "/"),
        (long.as_str(), "/a/{id}/{id2}"),
        ("/1/2/3/4/5", "/{id}/{id2}/{id3}/{id4}/{id5}"),
        ("/1/2/3/4/5/6", OTHER),
        ("/caf\u{e9}/x", "/{id}/x"),
    ] {
        assert_eq!(path_template(path), template, "{path}");
    }
}

/// Segments on either side of the limits of an identifier.
#[test]
fn identifiers_are_told_from_words() {
    for (segment, expected) in [
        ("7", true),
        ("-7", true),
        ("a7", false),
        ("x-1", false),
        ("a7b8", true),
        ("3,5", true),
        ("deadbeef", false),
        ("deadbee1", true),
        ("dead1", false),
        ("0xdeadbeef", true),
        ("0xdeadbee", false),
        ("deadbeefdeadbee", false),
        ("deadbeef-dead-beef-dead-beefdeadbeef", true),
        ("deadbeef-dead-beef-dead-beefdeadbeef-", false),
        ("deadbeef-deadbeefdead-beefdeadbeef", true),
        ("v1", false),
        ("v1.", false),
        ("v1.2.3", false),
        ("v12beta", false),
        ("v12gamma", true),
        ("version", false),
        ("a b", true),
        ("%41", true),
    ] {
        assert_eq!(is_identifier(segment.as_bytes()), expected, "{segment}");
    }
}

/// Variables of every framework's route syntax become variables of Envoy's syntax.
#[test]
fn routes_of_every_framework_become_the_same_template() {
    let variables =
        [":id", "{userId}", "<int:id>", "{id:[0-9]+}", "{id:[0-9]{3}}", "*", "**rest", "{a/b}", "a-{b}"];
    for variable in variables {
        assert_eq!(route_template(&format!("/u/{variable}/x")), "/u/{id}/x", "{variable}");
    }
    assert_eq!(route_template("/u/42/v1"), "/u/42/v1");
    assert_eq!(route_template("/u/{a}/{b}"), "/u/{id}/{id2}");
    assert_eq!(route_template("/pkg.Service/Method"), "/pkg.Service/Method");
    assert_eq!(route_template("/u/:1/<x"), "/u/:1/{id}");
}

/// Only `service METHOD /path` is a class id.
#[test]
fn class_ids_have_three_parts() {
    for text in ["a GET /", "a.b_c-9 POST /x/{id}", "a GET /é"] {
        assert!(is_class_id(text), "{text}");
    }
    for text in [
        "",
        "a",
        "a GET",
        "a GET x",
        "a get /",
        " GET /",
        "a GET  /",
        "a GET / ",
        "a GET /?",
        "a GET /#",
        "a GET /\t",
        "a- GET /",
        "-a GET /",
        "a G1 /",
        "é GET /",
        "a GET /\u{a0}",
    ] {
        assert!(!is_class_id(text), "{text}");
    }
}

/// A template is a pattern that Envoy accepts, and part of a valid class id.
fn check(template: &str) -> Result<(), TestCaseError> {
    let class = format!("svc GET {template}");
    prop_assert!(is_class_id(&class), "{}", template);
    let variables: Vec<_> = template.split('/').filter(|segment| segment.starts_with('{')).collect();
    let expected: Vec<_> = (1..=variables.len())
        .map(|number| if number == 1 { "{id}".to_string() } else { format!("{{id{number}}}") })
        .collect();
    prop_assert_eq!(&variables, &expected);
    prop_assert!(variables.len() <= MAX_VARIABLES);
    let literal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@".contains(&byte);
    let plain = |segment: &str| segment.starts_with('{') || segment.bytes().all(literal);
    prop_assert!(template.split('/').all(plain), "{}", template);
    Ok(())
}

proptest! {
    /// Whatever a client sends or a framework writes, variables are unique, at most five, and fill
    /// whole segments.
    #[test]
    fn any_text_gives_a_valid_template(path in "\\PC{0,60}", route in "[/a-z0-9{}<>:*?# ]{0,40}") {
        for text in [&path, &route] {
            check(&path_template(text))?;
            check(&route_template(text))?;
        }
    }

    /// The template of a template is the template itself, so a rule's template does not change when
    /// it is read again.
    #[test]
    fn templates_are_stable(path in "(/[a-z0-9]{1,6}){0,8}") {
        let template = path_template(&path);
        prop_assert_eq!(route_template(&template), template);
    }
}
