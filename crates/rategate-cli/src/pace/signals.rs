//! Reasons to start no more work, and the alarm that goes with them.
//!
//! Only the main thread ever waits here: for input, for a permit or for a free place. Whoever has
//! news for it nudges the alarm.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rategate::Alarm;
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// The exit status after an interrupt, as shells have it: 128 and the signal's number.
pub(crate) const INTERRUPTED: u8 = 130;

/// Whether to go on. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    interrupted: Arc<AtomicBool>,
    /// Raised by a stop.
    alarm: Alarm,
    /// Never raised, and nudged together with the other.
    quiet: Alarm,
}

impl Stop {
    /// Watches for SIGINT. The first asks for a stop; a second one ends the process on the spot.
    pub(crate) fn watch() -> Result<Self, Failure> {
        let quiet = Alarm::new();
        let stop = Self { interrupted: Arc::default(), alarm: quiet.below(), quiet };
        stop.listen().map_err(|error| Failure::Io("cannot watch for SIGINT".to_owned(), error))?;
        Ok(stop)
    }

    fn listen(&self) -> io::Result<()> {
        // In this order: the first signal must find the flag still down.
        let status = i32::from(INTERRUPTED);
        flag::register_conditional_shutdown(SIGINT, status, Arc::clone(&self.interrupted))?;
        flag::register(SIGINT, Arc::clone(&self.interrupted))?;
        let mut signals = Signals::new([SIGINT])?;
        let alarm = self.alarm.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            signals.forever().for_each(|_| alarm.raise());
        })?;
        Ok(())
    }

    /// Asks for a stop from within.
    pub(crate) fn ask(&self) {
        self.alarm.raise();
    }

    /// Lets the main thread look around.
    pub(crate) fn nudge(&self) {
        self.alarm.nudge();
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.is_interrupted() || self.alarm.is_raised()
    }

    /// For waits that a stop ends.
    pub(crate) const fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// For waits that a stop does not end.
    pub(crate) const fn quiet(&self) -> &Alarm {
        &self.quiet
    }
}
