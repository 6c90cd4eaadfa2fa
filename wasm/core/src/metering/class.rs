//! The traffic class that a route's name carries: `service METHOD /path/{template}`.

use spillway_contracts::XDS_CATCH_ALL_ROUTE;

/// Longest route name, in bytes, that is accepted as a class. The name becomes part of a stat's
/// name.
const NAME_MAX: usize = 512;

/// A traffic class, borrowed from the route's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class<'a> {
    /// The complete class id.
    pub id: &'a str,
    /// The destination service. None when the route's name has another shape.
    pub service: Option<&'a str>,
    /// The path template. None when the route's name has another shape.
    pub template: Option<&'a str>,
}

/// Returns the class of a route name. None for the catch-all route, unnamed routes and overlong
/// names.
pub fn of_route(name: &str) -> Option<Class<'_>> {
    if name.is_empty() || name == XDS_CATCH_ALL_ROUTE || name.len() > NAME_MAX {
        return None;
    }
    let mut parts = name.split(' ');
    let (service, template) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(service), Some(_), Some(path), None) if path.starts_with('/') => {
            (Some(service).filter(|service| !service.is_empty()), Some(path))
        }
        _ => (None, None),
    };
    Some(Class { id: name, service, template })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The catch-all route has no class. A class id yields its template. Other names are kept
    /// unchanged.
    #[test]
    fn route_names() {
        assert_eq!(of_route(""), None);
        assert_eq!(of_route("other"), None);
        let id = "cart GET /users/{id}";
        assert_eq!(of_route(id), Some(Class { id, service: Some("cart"), template: Some("/users/{id}") }));
        assert_eq!(of_route("default"), Some(Class { id: "default", service: None, template: None }));
    }

    proptest! {
        /// Every class id that follows the contract yields exactly its service and its template.
        #[test]
        fn templates_round_trip(
            service in "[a-z][a-z0-9._-]{0,30}", method in "[A-Z]{1,10}",
            template in "(/([a-zA-Z0-9_.~-]{1,12}|\\{[a-z_]{1,8}\\})){1,6}|/",
        ) {
            let id = format!("{service} {method} {template}");
            let class = Class { id: &id, service: Some(&service), template: Some(&template) };
            prop_assert_eq!(of_route(&id), Some(class));
        }

        /// Any name is handled: the id is the whole name, and a template is a suffix of it.
        #[test]
        fn any_name(name in "\\PC{0,600}") {
            if let Some(class) = of_route(&name) {
                prop_assert_eq!(class.id, &name);
                prop_assert!(class.template.is_none_or(|template| name.ends_with(template)));
            }
        }
    }
}
