//! A signal without a file descriptor, for systems whose loops watch none.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time after which a wait is interrupted, as no signal of the system interrupts it.
const INTERRUPT_EVERY: Duration = Duration::from_millis(50);

/// A flag that threads wait for.
#[derive(Debug, Default)]
pub struct Signal {
    is_raised: Mutex<bool>,
    raised: Condvar,
}

impl Signal {
    /// Creates one that is not raised.
    ///
    /// # Errors
    ///
    /// None here.
    pub fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    /// Raises it, from any thread.
    pub fn raise(&self) {
        *self.is_raised() = true;
        self.raised.notify_all();
    }

    /// Lowers it, before the loop looks at what it was raised for.
    pub fn lower(&self) {
        *self.is_raised() = false;
    }

    /// Blocks the thread until it is raised.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Interrupted`] now and then, for a thread that has signals to handle.
    pub fn wait(&self) -> io::Result<()> {
        let waited =
            self.raised
                .wait_timeout_while(self.is_raised(), INTERRUPT_EVERY, |is_raised| !*is_raised);
        let (is_raised, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *is_raised { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    }

    fn is_raised(&self) -> MutexGuard<'_, bool> {
        self.is_raised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_waits_until_the_flag_is_raised_and_is_interrupted_before() {
        let signal = Arc::new(Signal::new().unwrap());
        assert_eq!(signal.wait().unwrap_err().kind(), io::ErrorKind::Interrupted);
        let raise = Arc::clone(&signal);
        let raising = thread::spawn(move || raise.raise());
        while signal.wait().is_err() {}
        raising.join().unwrap();
        signal.wait().unwrap();
        signal.lower();
        assert!(signal.wait().is_err());
    }
}
