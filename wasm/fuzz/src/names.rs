//! Fuzz targets of names from outside: configuration, routes, paths.

use spillway_filter_core::config::{Config, is_name};
use spillway_filter_core::metering::class;
use spillway_filter_core::metering::classes;
use spillway_filter_core::request::grpc;

/// An accepted configuration is complete and within its limits. A rejection states a reason.
pub fn config(data: &[u8]) {
    match Config::parse(data) {
        Ok(config) => {
            for name in [&config.cluster, &config.service, &config.collector_cluster] {
                assert!(is_name(name), "{name:?}");
            }
            assert!((10..=60_000).contains(&config.flush_interval_ms));
            assert!((0.0..=1.0).contains(&config.sample_ratio));
            let bounds = &config.bounds;
            assert!(bounds.batch_spans >= 1 && bounds.queue_spans >= bounds.batch_spans);
            assert!(bounds.queue_bytes >= bounds.batch_bytes);
        }
        Err(error) => assert!(!error.is_empty()),
    }
}

/// The id is the whole name, and the template is its end.
pub fn class(data: &[u8]) {
    let Ok(name) = std::str::from_utf8(data) else { return };
    let Some(class) = class::of_route(name) else { return };
    assert!(class.id == name && name.len() <= 512 && name != "other");
    if let Some(template) = class.template {
        assert!(template.starts_with('/') && name.ends_with(template));
        assert_eq!(name.split(' ').count(), 3);
    }
}

/// The table that workers share: the names together are no longer than the table, and an appended
/// name is found at its end.
pub fn chosen_classes(data: &[u8]) {
    let read: Vec<&str> = classes::names(data).collect();
    assert!(read.iter().map(|name| name.len() + 2).sum::<usize>() <= data.len());
    let longer = classes::appended(data, "cart GET /").expect("a short name");
    let (last, before) = (classes::names(&longer).last(), classes::names(&longer).take(read.len()));
    assert!(before.eq(read.iter().copied()) && last == Some("cart GET /"));
}

/// The full name of a method consists of its two parts.
pub fn grpc_method(data: &[u8]) {
    let Some(found) = grpc::method(data) else { return };
    assert_eq!(format!("/{}", found.full).as_bytes(), data);
    assert_eq!(format!("{}/{}", found.service, found.method), found.full);
    assert!(!found.service.is_empty() && !found.method.is_empty() && !found.method.contains('/'));
}
