//! The awaitable of a call that was granted at once.

use pyo3::prelude::*;

/// An awaitable that has ended already. One object serves all calls, since it holds nothing.
///
/// It has the methods of a coroutine, so that `asyncio.create_task` takes it.
#[pyclass(frozen, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Granted;

#[pymethods]
impl Granted {
    const fn __await__(granted: PyRef<'_, Self>) -> PyRef<'_, Self> {
        granted
    }

    const fn __iter__(granted: PyRef<'_, Self>) -> PyRef<'_, Self> {
        granted
    }

    /// Ends at once, as the iterator of a coroutine that returns None.
    const fn __next__(&self) -> Option<()> {
        None
    }

    fn send(&self, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(pyo3::exceptions::PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value=None, _traceback=None))]
    fn throw(
        &self,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyErrOr {
        Err(PyErr::from_value(value.unwrap_or(kind)))
    }

    const fn close(&self) {}
}

type PyErrOr = PyResult<()>;
