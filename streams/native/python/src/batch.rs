//! Batches and their columns as Python buffers, without copying.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::{PyBufferError, PyKeyError};
use pyo3::ffi;
use pyo3::prelude::*;
use spillway_spans::output::columns::{self, Column};

/// Read-only bytes of one column. numpy.frombuffer and pyarrow.py_buffer read them in place.
#[pyclass(frozen)]
pub struct Buffer(Column);

impl Buffer {
    fn raw(&self) -> (*mut c_void, usize) {
        match &self.0 {
            Column::I64(values) => (values.as_ptr() as *mut c_void, size_of_val(&values[..])),
            Column::U64(values) => (values.as_ptr() as *mut c_void, size_of_val(&values[..])),
            Column::F64(values) => (values.as_ptr() as *mut c_void, size_of_val(&values[..])),
            Column::Text(values) => (values.as_ptr() as *mut c_void, size_of_val(&values[..])),
            Column::Bool(values) | Column::Hex(values) => (values.as_ptr() as *mut c_void, values.len()),
        }
    }

    fn kind(&self) -> &'static str {
        match self.0 {
            Column::I64(_) => "i64",
            Column::U64(_) => "u64",
            Column::F64(_) => "f64",
            Column::Bool(_) => "bool",
            Column::Text(_) => "str",
            Column::Hex(_) => "hex",
        }
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.raw().1
    }

    /// Exports the column's bytes through the buffer protocol.
    ///
    /// # Safety
    /// `view` must be the pointer that Python passes to bf_getbuffer.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let (start, length) = slf.get().raw();
        // SAFETY: the column never changes (frozen) and lives as long as its owner. FillInfo takes
        // a reference to the owner, which PyBuffer_Release returns. The view is read-only, so
        // nobody writes into it.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length as isize, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

#[pyclass(frozen)]
pub struct Batch {
    #[pyo3(get)]
    rows: usize,
    #[pyo3(get)]
    dictionary: Vec<String>,
    #[pyo3(get)]
    slices: Vec<(u64, u32, usize, usize)>,
    columns: Vec<(&'static str, Py<Buffer>)>,
}

impl Batch {
    pub fn of(batch: columns::Batch, py: Python<'_>) -> PyResult<Py<Self>> {
        let slices = batch.slices.iter().map(|s| (s.sequence, s.partition, s.start, s.end)).collect();
        let columns =
            batch.columns.into_iter().map(|(name, column)| Ok((name, Py::new(py, Buffer(column))?)));
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        Py::new(py, Batch { rows: batch.rows, dictionary: batch.dictionary, slices, columns })
    }
}

#[pymethods]
impl Batch {
    #[getter]
    fn columns(&self) -> Vec<&'static str> {
        self.columns.iter().map(|(name, _)| *name).collect()
    }

    fn column(&self, name: &str, py: Python<'_>) -> PyResult<(&'static str, Py<Buffer>)> {
        let known = self.columns.iter().find(|(known, _)| *known == name);
        let Some((_, buffer)) = known else {
            return Err(PyKeyError::new_err(format!(
                "column {name}: must be one of {}",
                self.columns().join(", ")
            )));
        };
        Ok((buffer.get().kind(), buffer.clone_ref(py)))
    }
}
