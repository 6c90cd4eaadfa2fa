//! Python bindings of `spillway-spans`. spillway_native.pyi documents the interface.
//!
//! The bindings only convert values. The interpreter lock is released while messages are decoded
//! and ticks are closed.

mod batch;
mod partition;

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

create_exception!(
    spillway_native,
    PayloadError,
    PyValueError,
    "The payload is not an ExportTraceServiceRequest."
);

#[pymodule]
mod spillway_native {
    #[pymodule_export]
    use super::PayloadError;
    #[pymodule_export]
    use super::batch::{Batch, Buffer};
    #[pymodule_export]
    use super::partition::{Closed, Partition};
    #[pymodule_export]
    use super::partition_of;
    #[pymodule_export]
    use super::tracestate;
}

#[pyfunction]
fn partition_of(service: &str, partitions: u32) -> PyResult<u32> {
    match partitions {
        0 => Err(PyValueError::new_err("partitions: 0; must be at least 1")),
        _ => Ok((spillway_spans::memory::texts::hash(service) % u64::from(partitions)) as u32),
    }
}

#[pyfunction]
fn tracestate(probability: f64) -> PyResult<String> {
    spillway_spans::decode::sampling::tracestate(probability)
        .ok_or_else(|| PyValueError::new_err(format!("probability: {probability}; must be 1 / 1048576 to 1")))
}
