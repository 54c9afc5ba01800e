//! The process's limit on open files and connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of descriptors to the maximum that this process may have, and returns it.
///
/// Many systems start processes with 1024 descriptors and allow more on request. `None` means no
/// bound.
#[must_use]
pub fn raise_descriptors() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}
