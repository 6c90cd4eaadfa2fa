//! The application: endpoints of services, their service times, and whom they call.

use std::num::NonZeroUsize;

use rand::Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_pcg::Pcg64;

/// The shape of a service time. Its mean is that of the endpoint in its cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Constant,
    Exponential,
    /// With this coefficient of variation.
    Lognormal(f64),
}

impl Shape {
    /// Draws a factor with mean 1.
    pub fn draw(self, chance: &mut Pcg64) -> f64 {
        match self {
            Shape::Constant => 1.0,
            Shape::Exponential => Exp1.sample(chance),
            Shape::Lognormal(cv) => {
                let variance = (cv * cv).ln_1p();
                let normal: f64 = StandardNormal.sample(chance);
                (normal * variance.sqrt() - variance / 2.0).exp()
            }
        }
    }
}

/// How often a call is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Times {
    Count(u32),
    Probability(f64),
}

impl Times {
    pub fn draw(self, chance: &mut Pcg64) -> u32 {
        match self {
            Times::Count(count) => count,
            Times::Probability(probability) => u32::from(chance.random::<f64>() < probability),
        }
    }
}

/// A call of an endpoint. `route` chooses the cluster: it is the index of the pair of the calling
/// service and the called endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub endpoint: usize,
    pub route: usize,
    pub times: Times,
    pub request_bytes: u64,
    pub optional: bool,
}

/// A least-recently-used cache of an endpoint, in each pod for itself. A hit holds its worker for its
/// own time, and makes no calls.
#[derive(Clone, Debug)]
pub struct Cache {
    /// The variable of users whose value is the key.
    pub variable: usize,
    pub capacity: NonZeroUsize,
    pub hit: Shape,
    /// Mean service time of a hit by cluster, seconds.
    pub hit_s: Vec<f64>,
}

/// An endpoint that makes another one of its service slower, by the rate that a pod serves of it.
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    pub endpoint: usize,
    /// The rate at which the service time has doubled.
    pub doubles_at_rps: f64,
    /// Time constant of the rate's exponential average.
    pub window_s: f64,
}

#[derive(Clone, Debug)]
pub struct Endpoint {
    pub service: usize,
    pub shape: Shape,
    /// Mean service time by cluster, seconds.
    pub mean_s: Vec<f64>,
    pub response_bytes: u64,
    pub error_rate: f64,
    pub stages: Vec<Vec<Call>>,
    pub cache: Option<Cache>,
    pub rivals: Vec<Rival>,
}

/// A service's pods in every cluster. 0 pods: it is not there.
#[derive(Clone, Debug)]
pub struct Service {
    pub pods: Vec<usize>,
    /// Workers of one pod, by cluster.
    pub workers: Vec<usize>,
    /// Requests that may wait at one pod.
    pub queue: usize,
    pub queue_timeout_s: f64,
}

/// All of it. The numbers of clusters in the vectors are equal.
#[derive(Clone, Debug)]
pub struct Application {
    pub clusters: usize,
    pub services: Vec<Service>,
    pub endpoints: Vec<Endpoint>,
    /// Routes: pairs of calling service and called endpoint.
    pub routes: usize,
    pub call_timeout_s: f64,
}
