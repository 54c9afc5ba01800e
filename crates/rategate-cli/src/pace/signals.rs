//! Requests to stop, by signals or from within, and the cancellation token that ends waits.
//!
//! Only the main thread ever waits here: for input, for a permit or for a free job. Other threads
//! nudge the token to make it check its conditions.

use std::ffi::c_int;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{fs, thread};

use rategate::wait::CancelToken;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// A request to stop. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    interrupted: Arc<AtomicBool>,
    /// The signal that requested the stop, set before the flag.
    signal: Arc<AtomicUsize>,
    /// The token that a stop cancels.
    cancel_token: CancelToken,
    /// A token that is never cancelled, but nudged together with the other.
    quiet: CancelToken,
}

impl Stop {
    /// Watches for SIGINT, SIGTERM and SIGHUP.
    ///
    /// The first signal requests a stop; a second one, of any of them, ends the process at once.
    /// Signals that the process was started to ignore stay ignored.
    pub(crate) fn watch() -> Result<Self, Failure> {
        let quiet = CancelToken::new();
        let cancel_token = quiet.child();
        let stop =
            Self { interrupted: Arc::default(), signal: Arc::default(), cancel_token, quiet };
        stop.listen().map_err(|error| Failure::Io("cannot watch for signals".to_owned(), error))?;
        Ok(stop)
    }

    fn listen(&self) -> io::Result<()> {
        let ignored = ignored();
        let watched = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored(*signal));
        let watched: Vec<c_int> = watched.collect();
        for signal in watched.iter().copied() {
            // In this order: the first signal must find the flag still unset.
            let status = 128_i32.saturating_add(signal);
            flag::register_conditional_shutdown(signal, status, Arc::clone(&self.interrupted))?;
            let number = usize::try_from(signal).unwrap_or(0);
            flag::register_usize(signal, Arc::clone(&self.signal), number)?;
            flag::register(signal, Arc::clone(&self.interrupted))?;
        }
        let mut signals = Signals::new(watched)?;
        let cancel_token = self.cancel_token.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            signals.forever().for_each(|_| cancel_token.cancel());
        })?;
        Ok(())
    }

    /// Requests a stop from within.
    pub(crate) fn request(&self) {
        self.cancel_token.cancel();
    }

    /// Makes the main thread check its conditions.
    pub(crate) fn nudge(&self) {
        self.cancel_token.nudge();
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// Returns the exit status after a signal, as shells report it: 128 and the signal's number.
    pub(crate) fn interrupted_status(&self) -> Option<u8> {
        let number = self.is_interrupted().then(|| self.signal.load(Ordering::Acquire))?;
        u8::try_from(number).ok()?.checked_add(128)
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.is_interrupted() || self.cancel_token.is_cancelled()
    }

    /// Returns the token for waits that a stop ends.
    pub(crate) const fn cancel_token(&self) -> &CancelToken {
        &self.cancel_token
    }

    /// Returns the token for waits that a stop does not end.
    pub(crate) const fn quiet(&self) -> &CancelToken {
        &self.quiet
    }
}

/// Returns a test for the signals that the process was started to ignore, as nohup does for
/// hangups.
fn ignored() -> impl Fn(c_int) -> bool {
    let about = fs::read_to_string("/proc/self/status").ok();
    let mask = about.as_deref().and_then(ignored_mask);
    move |signal| match mask {
        Some(mask) => {
            let bit = u32::try_from(signal).unwrap_or(0).saturating_sub(1);
            mask.checked_shr(bit).is_some_and(|mask| mask & 1 == 1)
        }
        // The system does not report it, and nohup must work.
        None => signal == SIGHUP,
    }
}

fn ignored_mask(about: &str) -> Option<u64> {
    let mask = about.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}
