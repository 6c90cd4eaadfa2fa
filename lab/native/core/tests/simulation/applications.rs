//! Applications that the tests simulate, and their load.

use spillway_simulation::application::{Application, Call, Endpoint, Service, Shape, Times};
use spillway_simulation::arrivals::Segment;
use spillway_simulation::users::Kind;

/// Users request the first endpoint.
pub fn entry() -> Vec<Kind> {
    vec![Kind { endpoint: 0, shares: vec![1.0; 2] }]
}

pub fn queue(workers: usize, shape: Shape, mean_s: f64) -> Application {
    Application {
        clusters: 1,
        services: vec![Service {
            pods: vec![1],
            workers: vec![workers],
            queue: 1 << 30,
            queue_timeout_s: 1e9,
        }],
        endpoints: vec![Endpoint {
            service: 0,
            shape,
            mean_s: vec![mean_s],
            response_bytes: 0,
            error_rate: 0.0,
            stages: vec![],
            cache: None,
            rivals: vec![],
        }],
        routes: 0,
        call_timeout_s: 1e9,
    }
}

pub fn load(rate: f64, seconds: f64) -> Vec<Segment> {
    vec![Segment { seconds, rate, to_rate: rate }]
}

/// A chain of two services in two clusters: the caller in the first cluster, the callee in both.
pub fn chain(error_rate: f64, queue: usize, queue_timeout_s: f64, optional: bool) -> Application {
    let call = Call { endpoint: 1, route: 0, times: Times::Count(2), request_bytes: 10, optional };
    let endpoint = |service, mean_s, stages, error_rate| Endpoint {
        service,
        shape: Shape::Exponential,
        mean_s: vec![mean_s; 2],
        response_bytes: 100,
        error_rate,
        stages,
        cache: None,
        rivals: vec![],
    };
    let service = |pods| Service { pods, workers: vec![2, 2], queue, queue_timeout_s };
    Application {
        clusters: 2,
        services: vec![service(vec![1, 0]), service(vec![2, 1])],
        endpoints: vec![endpoint(0, 0.001, vec![vec![call]], 0.0), endpoint(1, 0.02, vec![], error_rate)],
        routes: 1,
        call_timeout_s: 1.0,
    }
}

/// Pods of one worker, and callers that need no time. All of it is in one cluster.
pub fn balanced(callers: usize, called: usize) -> Application {
    let mut app = queue(1, Shape::Exponential, 1.0);
    app.services[0].pods = vec![called];
    app.services
        .insert(0, Service { pods: vec![callers], workers: vec![1 << 20], ..app.services[0].clone() });
    app.endpoints[0].service = 1;
    let call = Call { endpoint: 1, route: 0, times: Times::Count(1), request_bytes: 0, optional: false };
    let entry = Endpoint {
        service: 0,
        shape: Shape::Constant,
        mean_s: vec![0.0],
        stages: vec![vec![call]],
        ..app.endpoints[0].clone()
    };
    app.endpoints.insert(0, entry);
    app.routes = 1;
    app
}
