//! The signal of an event loop, which a descriptor or a thread of its own tells the loop.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rategate_ffi::Signal;

/// A signal, and whether its loop has ended.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) signal: Arc<Signal>,
    is_closed: AtomicBool,
}

impl Watched {
    pub(crate) fn new() -> PyResult<Self> {
        Ok(Self { signal: new_signal()?, is_closed: AtomicBool::new(false) })
    }

    /// Returns a function that raises the signal, from any thread.
    pub(crate) fn raise(&self) -> impl Fn() + Send + Sync + 'static {
        let signal = Arc::clone(&self.signal);
        move || signal.raise()
    }

    /// Blocks the thread until the signal is raised, and lowers it. Returns false once it is
    /// closed.
    pub(crate) fn raised(&self) -> PyResult<bool> {
        while !self.is_closed.load(Ordering::Acquire) {
            match self.signal.wait() {
                Ok(()) => {
                    self.signal.lower();
                    return Ok(!self.is_closed.load(Ordering::Acquire));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(PyOSError::new_err(error.to_string())),
            }
        }
        Ok(false)
    }

    /// Ends the thread that watches the signal.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.signal.raise();
    }
}

/// Blocks the main thread until a signal is raised, and lowers it; an interrupt raises an error.
pub(crate) fn wait(py: Python<'_>, signal: &Signal) -> PyResult<()> {
    match py.detach(|| signal.wait()) {
        // Raises KeyboardInterrupt.
        Err(error) if error.kind() == ErrorKind::Interrupted => py.check_signals()?,
        Err(error) => return Err(PyOSError::new_err(error.to_string())),
        Ok(()) => {}
    }
    signal.lower();
    Ok(())
}

/// Creates a signal that is not raised.
pub(crate) fn new_signal() -> PyResult<Arc<Signal>> {
    Signal::new().map(Arc::new).map_err(|error| PyOSError::new_err(error.to_string()))
}
