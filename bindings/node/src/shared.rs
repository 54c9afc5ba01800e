//! Limiters that all workers of the process find by a name.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rategate_ffi::Limiter;

use crate::failure::{Result, invalid};

/// The shared limiters. They stay until they are closed: one that was collected with its last
/// object would come back with all of its permits.
static SHARED: Mutex<Option<HashMap<String, Shared>>> = Mutex::new(None);

struct Shared {
    config: String,
    limiter: Limiter,
}

/// Returns the limiter of a name, or makes it. A closed one is made anew.
pub(crate) fn find_or(
    name: &str,
    config: &str,
    make: impl FnOnce() -> Result<Limiter>,
) -> Result<Limiter> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = shared.get_or_insert_default();
    shared.retain(|_, shared| !shared.limiter.is_closed());
    if let Some(found) = shared.get(name) {
        if found.config != config {
            let of = &found.config;
            return Err(invalid(format_args!(
                "the shared limiter {name:?} has the limit {of}, and not {config}; all that share \
                 it must write the same"
            )));
        }
        return Ok(found.limiter.clone());
    }
    let limiter = make()?;
    shared.insert(name.to_owned(), Shared { config: config.to_owned(), limiter: limiter.clone() });
    Ok(limiter)
}
