//! Fuzz targets of paths, routes, class ids and tracestates from outside.

use spillway_spans::classes::class_id::is_class_id;
use spillway_spans::classes::template::{self, MAX_VARIABLES, OTHER, is_identifier};
use spillway_spans::decode::sampling;

/// Checks that a template is part of a valid class id, and a pattern that Envoy accepts.
fn check(template: &str) {
    assert!(is_class_id(&format!("svc GET {template}")), "{template:?}");
    let variables = template.split('/').filter(|segment| segment.starts_with('{'));
    let count = variables.clone().count();
    let numbered = (1..=count).map(|at| if at == 1 { "{id}".into() } else { format!("{{id{at}}}") });
    assert!(count <= MAX_VARIABLES && numbered.eq(variables), "{template:?}");
    let literal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@".contains(&byte);
    let plain = |segment: &str| segment.starts_with('{') || segment.bytes().all(literal);
    assert!(template.split('/').all(plain), "{template:?}");
    // In a route, the segment `items:find` of a raw path would be a variable.
    assert!(template.contains(':') || template::route_template(template) == template, "{template:?}");
}

/// The template of a path contains no identifier.
pub fn path_template(data: &[u8]) {
    let mut out = Vec::new();
    template::put_path(data, &mut out);
    let template = String::from_utf8(out).expect("ASCII");
    check(&template);
    let literals = template.split('/').filter(|segment| !segment.is_empty() && !segment.starts_with('{'));
    assert!(template == OTHER || literals.into_iter().all(|segment| !is_identifier(segment.as_bytes())));
}

/// The template of a route keeps its literals and has renamed variables.
pub fn route_template(data: &[u8]) {
    let mut out = Vec::new();
    template::put_route(data, &mut out);
    let template = String::from_utf8(out).expect("ASCII");
    check(&template);
}

/// An accepted class id has three parts.
pub fn class_id(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if is_class_id(text) {
        let parts: Vec<_> = text.split(' ').collect();
        assert_eq!(parts.len(), 3);
        assert!(parts[1].bytes().all(|byte| byte.is_ascii_uppercase()) && parts[2].starts_with('/'));
        assert!(!text.contains(['?', '#', '\t', '\n']));
    }
}

/// An adjusted count is at least one and at most `MAX_COUNT`. A probability that is written as a
/// tracestate reads back as the same count.
pub fn tracestate(data: &[u8]) {
    if let Some(count) = sampling::adjusted_count(data) {
        assert!((1.0..=sampling::MAX_COUNT).contains(&count), "{count}");
        let written = sampling::tracestate(1.0 / count).expect("a probability");
        let again = sampling::adjusted_count(written.as_bytes()).expect("a threshold");
        assert!((again / count - 1.0).abs() < 1e-6, "{count} {again}");
    }
}
