//! The traffic class that a route's name carries: `service METHOD /path/{template}`.

use spillway_contracts::XDS_CATCH_ALL_ROUTE;

/// Longest name that is taken for a class: it becomes part of a stat's name.
const NAME_MAX: usize = 512;

/// A known class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class<'a> {
    /// The whole id.
    pub id: &'a str,
    /// The service that is asked; None where the route's name has another shape.
    pub service: Option<&'a str>,
    /// Its path template; None where the route's name has another shape.
    pub template: Option<&'a str>,
}

/// The class of a route name; None for the catch-all and for unnamed routes.
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

    /// The catch-all is no class; a class id yields its template; other names are kept as they are.
    #[test]
    fn route_names() {
        assert_eq!(of_route(""), None);
        assert_eq!(of_route("other"), None);
        let id = "cart GET /users/{id}";
        assert_eq!(of_route(id), Some(Class { id, service: Some("cart"), template: Some("/users/{id}") }));
        assert_eq!(of_route("default"), Some(Class { id: "default", service: None, template: None }));
    }

    proptest! {
        /// Every class id as the contract writes it yields exactly its service and its template.
        #[test]
        fn templates_round_trip(
            service in "[a-z][a-z0-9._-]{0,30}", method in "[A-Z]{1,10}",
            template in "(/([a-zA-Z0-9_.~-]{1,12}|\\{[a-z_]{1,8}\\})){1,6}|/",
        ) {
            let id = format!("{service} {method} {template}");
            let class = Class { id: &id, service: Some(&service), template: Some(&template) };
            prop_assert_eq!(of_route(&id), Some(class));
        }

        /// No name breaks it: the id is the whole name, and a template is its end.
        #[test]
        fn any_name(name in "\\PC{0,600}") {
            if let Some(class) = of_route(&name) {
                prop_assert_eq!(class.id, &name);
                prop_assert!(class.template.is_none_or(|template| name.ends_with(template)));
            }
        }
    }
}
