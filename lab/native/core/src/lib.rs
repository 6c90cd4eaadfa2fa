//! Event-driven simulation of requests through an application's queues in several clusters.
//!
//! A request enters at an endpoint in the cluster of its users. Every endpoint waits for a worker of
//! a pod, holds it for a service time, then makes its calls, stage by stage. The calls of a stage run
//! at the same time. A call goes to the cluster that its route's weights choose, at random. That is
//! the emulator of the lab (lab/emulator), and Envoy's weighted clusters, without their own costs.
//!
//! Times are in seconds. A seed determines everything that happens. When users send requests, and of
//! which kind, depends on the seed and the load alone.

mod agenda;
pub mod application;
pub mod arrivals;
mod calling;
mod deadlines;
pub mod engine;
mod frames;
mod memory;
pub mod outcomes;
pub mod places;
mod pool;
mod routes;
mod serving;
pub mod statistics;
pub mod users;
