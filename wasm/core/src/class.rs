//! The traffic class that a route's name carries: `service METHOD /path/{template}`.

use spillway_contracts::XDS_CATCH_ALL_ROUTE;

/// A known class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class<'a> {
    /// The whole id.
    pub id: &'a str,
    /// Its path template; None where the route's name has another shape.
    pub template: Option<&'a str>,
}

/// The class of a route name; None for the catch-all and for unnamed routes.
pub fn of_route(name: &str) -> Option<Class<'_>> {
    if name.is_empty() || name == XDS_CATCH_ALL_ROUTE {
        return None;
    }
    let mut parts = name.split(' ');
    let template = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(_), Some(path), None) if path.starts_with('/') => Some(path),
        _ => None,
    };
    Some(Class { id: name, template })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The catch-all is no class; a class id yields its template; other names are kept as they are.
    #[test]
    fn route_names() {
        assert_eq!(of_route(""), None);
        assert_eq!(of_route("other"), None);
        let id = "cart GET /users/{id}";
        assert_eq!(of_route(id), Some(Class { id, template: Some("/users/{id}") }));
        assert_eq!(of_route("default"), Some(Class { id: "default", template: None }));
    }
}
