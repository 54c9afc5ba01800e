//! The page that shows figures in a browser, and the recorded arrivals that it replays against
//! other limits.

mod page;
mod recorder;
mod simulate;

pub(super) use self::page::routes as page;
pub(super) use self::recorder::{Budget, Recorder};
pub(super) use self::simulate::call as simulate;
