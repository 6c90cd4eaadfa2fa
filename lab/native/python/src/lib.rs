//! Python bindings of `spillway-simulation`. spillway_simulator.pyi documents the interface.
//!
//! The bindings only convert values. The interpreter lock is released while the simulation runs.

use std::num::NonZeroUsize;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use spillway_simulation::application::{Application, Cache, Call, Endpoint, Rival, Service, Shape, Times};
use spillway_simulation::arrivals::Segment;
use spillway_simulation::engine::Engine;
use spillway_simulation::places::State;
use spillway_simulation::users::{Keys, Kind};

#[pymodule]
mod spillway_simulator {
    #[pymodule_export]
    use super::Simulation;
}

/// (endpoint, route, count or -1, probability, request bytes, optional)
type CallTuple = (usize, usize, i64, f64, u64, bool);
/// (variable, capacity, distribution, cv, mean seconds of a hit by cluster)
type CacheTuple = (usize, NonZeroUsize, String, f64, Vec<f64>);
/// (endpoint, rate that doubles the service time, time constant in seconds)
type RivalTuple = (usize, f64, f64);
/// (service, distribution, cv, mean seconds by cluster, response bytes, error rate, stages, cache,
/// rivals)
type EndpointTuple =
    (usize, String, f64, Vec<f64>, u64, f64, Vec<Vec<CallTuple>>, Option<CacheTuple>, Vec<RivalTuple>);
/// By cluster: (first key, cumulative weights of the keys from it on)
type KeysTuple = Vec<(u64, Vec<f64>)>;
/// (pods by cluster, workers by cluster, queue, queue timeout in seconds)
type ServiceTuple = (Vec<usize>, Vec<usize>, usize, f64);

fn call((endpoint, route, count, probability, request_bytes, optional): CallTuple) -> Call {
    let times = match u32::try_from(count) {
        Ok(count) => Times::Count(count),
        Err(_) => Times::Probability(probability),
    };
    Call { endpoint, route, times, request_bytes, optional }
}

fn shape(endpoint: usize, distribution: &str, cv: f64) -> PyResult<Shape> {
    match distribution {
        "constant" => Ok(Shape::Constant),
        "exponential" => Ok(Shape::Exponential),
        "lognormal" => Ok(Shape::Lognormal(cv)),
        other => Err(PyValueError::new_err(format!(
            "endpoints[{endpoint}]: distribution {other:?}; allowed: constant, exponential, lognormal"
        ))),
    }
}

fn endpoint(number: usize, tuple: EndpointTuple) -> PyResult<Endpoint> {
    let (service, distribution, cv, mean_s, response_bytes, error_rate, stages, cache, rivals) = tuple;
    let stages = stages.into_iter().map(|stage| stage.into_iter().map(call).collect()).collect();
    let cache = cache
        .map(|(variable, capacity, distribution, cv, hit_s)| {
            shape(number, &distribution, cv).map(|hit| Cache { variable, capacity, hit, hit_s })
        })
        .transpose()?;
    let rivals = rivals
        .into_iter()
        .map(|(endpoint, doubles_at_rps, window_s)| Rival { endpoint, doubles_at_rps, window_s })
        .collect();
    let shape = shape(number, &distribution, cv)?;
    Ok(Endpoint { service, shape, mean_s, response_bytes, error_rate, stages, cache, rivals })
}

fn check(name: &str, found: usize, expected: usize) -> PyResult<()> {
    if found == expected {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{name}: {found} values; must be {expected}")))
}

fn checked(app: &Application, kinds: &[Kind], keys: &[Vec<Keys>]) -> PyResult<()> {
    for (number, service) in app.services.iter().enumerate() {
        check(&format!("services[{number}].pods"), service.pods.len(), app.clusters)?;
        check(&format!("services[{number}].workers"), service.workers.len(), app.clusters)?;
    }
    for (number, endpoint) in app.endpoints.iter().enumerate() {
        check(&format!("endpoints[{number}].mean_s"), endpoint.mean_s.len(), app.clusters)?;
        let calls = endpoint.stages.iter().flatten();
        let known = endpoint.service < app.services.len()
            && calls.clone().all(|c| c.endpoint < app.endpoints.len() && c.route < app.routes);
        if !known {
            return Err(PyValueError::new_err(format!(
                "endpoints[{number}]: names a service, an endpoint or a route that is not there"
            )));
        }
        if let Some(cache) = &endpoint.cache {
            check(&format!("endpoints[{number}].cache: hit seconds"), cache.hit_s.len(), app.clusters)?;
            if cache.variable >= keys.len() {
                return Err(PyValueError::new_err(format!(
                    "endpoints[{number}].cache: variable {}; allowed: below {}, as keys has so many",
                    cache.variable,
                    keys.len()
                )));
            }
        }
        let fellow = |rival: &Rival| app.endpoints.get(rival.endpoint).map(|e| e.service);
        if let Some(rival) = endpoint.rivals.iter().find(|rival| fellow(rival) != Some(endpoint.service)) {
            return Err(PyValueError::new_err(format!(
                "endpoints[{number}].rivals: endpoint {}; allowed: those of service {}",
                rival.endpoint, endpoint.service
            )));
        }
    }
    if kinds.is_empty() || kinds.iter().any(|kind| kind.endpoint >= app.endpoints.len()) {
        return Err(PyValueError::new_err("kinds: none, or one of an endpoint that is not there"));
    }
    for (number, kind) in kinds.iter().enumerate() {
        check(&format!("kinds[{number}]: shares"), kind.shares.len(), app.clusters)?;
    }
    for (number, by_cluster) in keys.iter().enumerate() {
        check(&format!("keys[{number}]"), by_cluster.len(), app.clusters)?;
        let rising = |keys: &Keys| keys.weights.first() > Some(&0.0) && keys.weights.is_sorted();
        if !by_cluster.iter().all(rising) {
            return Err(PyValueError::new_err(format!(
                "keys[{number}]: cumulative weights; allowed: one or more, above 0 and rising"
            )));
        }
    }
    Ok(())
}

#[pyclass]
struct Simulation {
    engine: Engine,
    clusters: usize,
    services: usize,
    routes: usize,
    kinds: usize,
}

impl Simulation {
    fn place(&self, service: usize, cluster: usize) -> PyResult<()> {
        if service < self.services && cluster < self.clusters {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "service {service}, cluster {cluster}; there are {} and {}",
            self.services, self.clusters
        )))
    }
}

fn floats<'py>(py: Python<'py>, values: &[f64]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    PyBytes::new(py, &bytes)
}

fn counts<'py>(py: Python<'py>, values: &[u64]) -> Bound<'py, PyBytes> {
    let values: Vec<f64> = values.iter().map(|value| *value as f64).collect();
    floats(py, &values)
}

type Columns<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl Simulation {
    #[new]
    #[pyo3(signature = (*, clusters, services, endpoints, routes, kinds, call_timeout_s, user_timeout_s, seed, keys=vec![]))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        clusters: usize,
        services: Vec<ServiceTuple>,
        endpoints: Vec<EndpointTuple>,
        routes: usize,
        kinds: Vec<(usize, Vec<f64>)>,
        call_timeout_s: f64,
        user_timeout_s: f64,
        seed: u64,
        keys: Vec<KeysTuple>,
    ) -> PyResult<Self> {
        let services: Vec<Service> = services
            .into_iter()
            .map(|(pods, workers, queue, queue_timeout_s)| Service { pods, workers, queue, queue_timeout_s })
            .collect();
        let endpoints =
            endpoints.into_iter().enumerate().map(|(n, e)| endpoint(n, e)).collect::<PyResult<Vec<_>>>()?;
        let kinds: Vec<Kind> =
            kinds.into_iter().map(|(endpoint, shares)| Kind { endpoint, shares }).collect();
        let range = |(first, weights)| Keys { first, weights };
        let keys: Vec<Vec<Keys>> = keys.into_iter().map(|k| k.into_iter().map(range).collect()).collect();
        let application = Application { clusters, services, endpoints, routes, call_timeout_s };
        checked(&application, &kinds, &keys)?;
        let (services, kind_count) = (application.services.len(), kinds.len());
        let engine = Engine::new(application, kinds, keys, user_timeout_s, seed);
        Ok(Self { engine, clusters, services, routes, kinds: kind_count })
    }

    fn set_load(&mut self, load: Vec<Vec<(f64, f64, f64)>>, poisson: bool) -> PyResult<()> {
        check("load", load.len(), self.clusters)?;
        let load = load
            .into_iter()
            .map(|s| {
                s.into_iter().map(|(seconds, rate, to_rate)| Segment { seconds, rate, to_rate }).collect()
            })
            .collect();
        self.engine.set_load(load, poisson);
        Ok(())
    }

    fn set_requests(&mut self, requests: Vec<Vec<(f64, usize)>>) -> PyResult<()> {
        check("requests", requests.len(), self.clusters)?;
        for (cluster, each) in requests.iter().enumerate() {
            if let Some(&(_, kind)) = each.iter().find(|(_, kind)| *kind >= self.kinds) {
                let most = self.kinds - 1;
                return Err(PyValueError::new_err(format!(
                    "requests[{cluster}]: kind {kind}; allowed: 0 to {most}"
                )));
            }
            let now = self.engine.now();
            if !each.is_sorted_by(|a, b| a.0 <= b.0) || each.first().is_some_and(|&(at, _)| at < now) {
                return Err(PyValueError::new_err(format!(
                    "requests[{cluster}]: not in the order of time; allowed: ascending, from {now} s on"
                )));
            }
        }
        self.engine.set_requests(requests);
        Ok(())
    }

    fn set_round_trips(&mut self, seconds: Vec<f64>) -> PyResult<()> {
        check("seconds", seconds.len(), self.clusters * self.clusters)?;
        self.engine.set_round_trips(&seconds);
        Ok(())
    }

    fn set_weights(&mut self, weights: Vec<f64>) -> PyResult<()> {
        check("weights", weights.len(), self.routes * self.clusters * self.clusters)?;
        self.engine.set_weights(&weights);
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (service, cluster, *, speed, error_rate, available, delay_s, delay_share=1.0))]
    fn set_state(
        &mut self,
        service: usize,
        cluster: usize,
        speed: f64,
        error_rate: f64,
        available: bool,
        delay_s: f64,
        delay_share: f64,
    ) -> PyResult<()> {
        self.place(service, cluster)?;
        self.engine.set_state(service, cluster, State { speed, error_rate, available, delay_s, delay_share });
        Ok(())
    }

    fn set_workers(&mut self, service: usize, cluster: usize, workers: usize) -> PyResult<()> {
        self.place(service, cluster)?;
        self.engine.set_workers(service, cluster, workers);
        Ok(())
    }

    fn set_pods(&mut self, service: usize, cluster: usize, pods: usize) -> PyResult<()> {
        self.place(service, cluster)?;
        self.engine.set_pods(service, cluster, pods);
        Ok(())
    }

    fn run(&mut self, py: Python<'_>, until_s: f64) {
        py.detach(|| self.engine.run(until_s));
    }

    #[getter]
    fn happened(&self) -> u64 {
        self.engine.happened
    }

    #[getter]
    fn in_progress(&self) -> usize {
        self.engine.in_progress()
    }

    fn busy_seconds<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        floats(py, &self.engine.busy_seconds())
    }

    fn take_counts<'py>(&mut self, py: Python<'py>) -> Vec<(&'static str, Bound<'py, PyBytes>)> {
        let found = self.engine.take_counts();
        vec![
            ("arrived", counts(py, &found.arrived)),
            ("served", counts(py, &found.served)),
            ("failed", counts(py, &found.failed)),
            ("own_s", floats(py, &found.own_s)),
            ("waited_s", floats(py, &found.waited_s)),
            ("hits", counts(py, &found.hits)),
            ("calls", counts(py, &found.calls)),
            ("bytes", counts(py, &found.bytes)),
        ]
    }

    fn watch_outcomes(&mut self) {
        self.engine.outcomes.watch();
    }

    fn take_outcomes(&mut self) -> Vec<(u32, u16, u16, i32, u64, f64)> {
        let found = self.engine.outcomes.take().into_iter();
        found.map(|(key, calls, s)| (key.route, key.from, key.to, key.bucket, calls, s)).collect()
    }

    fn take_ended<'py>(&mut self, py: Python<'py>) -> Columns<'py> {
        let found = self.engine.take_ended();
        let ok: Vec<u8> = found.ok.iter().map(|ok| u8::from(*ok)).collect();
        (
            floats(py, &found.at_s),
            floats(py, &found.latency_s),
            PyBytes::new(py, &ok),
            PyBytes::new(py, &found.cluster),
            PyBytes::new(py, &found.kind),
        )
    }
}
