//! The calendars of a process: each is made once and kept, so that policies name it by a
//! reference.

use std::cell::Cell;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use rategate_core::calendar::{Calendar, Grid, Window};
use rategate_core::fixed_window::FixedWindow;

use super::MAX_CALENDARS;
use super::borders::Borders;
use super::error::CalendarError;
use super::spec::CalendarSpec;

/// All calendars so far. Locked only while a policy is made.
static CALENDARS: Mutex<Vec<&'static Interned>> = Mutex::new(Vec::new());

/// The latest windows of a thread, each of the calendars whose index has the same remainder.
const LATEST: usize = 16;

thread_local! {
    static WINDOWS: [Cell<(usize, Window)>; LATEST] =
        const { [const { Cell::new((usize::MAX, NONE)) }; LATEST] };
}

/// A window around no instant.
const NONE: Window = Window { start_ns: u64::MAX, end_ns: 0, number: 0 };

/// A calendar that is kept for as long as the process runs.
struct Interned {
    index: usize,
    spec: CalendarSpec,
    text: String,
    borders: Borders,
}

impl CalendarSpec {
    /// Returns a limit of `permits` in each window.
    ///
    /// The same calendar under the same rules of its zone is one for the whole process. A zone
    /// whose rules have changed since makes a new one.
    ///
    /// # Errors
    ///
    /// [`CalendarError::Limit`] for zero permits, and [`CalendarError::TooMany`].
    pub fn quota(&self, permits: u64) -> Result<FixedWindow, CalendarError> {
        Ok(FixedWindow::of_calendar(permits, Calendar::new(of(self)?))?)
    }
}

/// Returns the process's calendar for a specification under today's rules of its zone.
fn of(spec: &CalendarSpec) -> Result<&'static dyn Grid, CalendarError> {
    let mut calendars = CALENDARS.lock().unwrap_or_else(PoisonError::into_inner);
    // The latest first: its rules are likely to be the newest.
    if let Some(known) = calendars.iter().rev().find(|known| known.spec == *spec) {
        return Ok(*known);
    }
    if calendars.len() >= MAX_CALENDARS {
        return Err(CalendarError::TooMany);
    }
    let interned = Interned {
        index: calendars.len(),
        text: spec.to_string(),
        borders: Borders::new(spec),
        spec: spec.clone(),
    };
    let interned: &'static Interned = Box::leak(Box::new(interned));
    calendars.push(interned);
    Ok(interned)
}

impl Grid for Interned {
    fn text(&self) -> &str {
        &self.text
    }

    /// Returns the thread's latest window of this calendar if it is that one, as it nearly always
    /// is.
    fn window(&self, at_ns: u64) -> Window {
        WINDOWS.with(|windows| {
            let latest = windows.get(self.index % LATEST);
            if let Some((index, window)) = latest.map(Cell::get)
                && index == self.index
                && (window.start_ns..window.end_ns).contains(&at_ns)
            {
                return window;
            }
            let window = self.borders.window(at_ns);
            if let Some(latest) = latest {
                latest.set((self.index, window));
            }
            window
        })
    }

    fn start_of(&self, number: u64) -> Option<u64> {
        self.borders.start_of(number)
    }

    fn offset_s(&self, at_ns: u64) -> i32 {
        self.borders.offset_s(at_ns)
    }
}

impl fmt::Debug for Interned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
