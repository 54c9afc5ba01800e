//! A server under load, and callers whose limits follow what they measure.
//!
//! The server has workers and one queue in the order of arrival. Calls arrive by Poisson processes,
//! each with the work that it takes, so that all controllers meet the same calls. A caller sends a
//! call if its limit has room, and drops it otherwise. After the deadline a call counts as dropped,
//! and the server works on.
//!
//! Everything is in whole numbers, and drawn from one seed: the same setup gives the same run on
//! every machine.
//!
//! ```
//! use rategate_core::adaptive::{Bounds, Knee};
//! use rategate_core::rate::Rate;
//! use rategate_testkit::server::{Client, Measure, Server, Service, Setup};
//!
//! const MS: u64 = 1_000_000;
//! // Ten workers with 10 ms of work for each call, and half as many calls again as they can serve.
//! let setup = Setup {
//!     server: Server::new(10, Service::exponential(10 * MS)),
//!     clients: vec![Client::constant(Rate::per_second(1_500))],
//!     measures: vec![Measure::of_all(5_000 * MS, 20_000 * MS)],
//!     seed: 1,
//! };
//! let run = setup.run(|client| Knee::new(Bounds::new(1, 20, 1_000), client));
//! let numbers = run.measured[0].numbers();
//! assert!(numbers.goodput_per_mille >= 970 && numbers.p99_ns < 70 * MS);
//! ```

mod file;
mod load;
mod measure;
mod picture;
mod report;
mod run;
mod steps;

pub use self::file::{ControllerKind, Goal, ServerFile};
pub use self::load::{Client, Service};
pub use self::measure::{Measure, Measured, Numbers};
pub use self::report::{MeasureReport, ServerReport};
pub use self::run::{Run, Seen};
pub use self::steps::Steps;

/// A server.
#[derive(Clone, Debug)]
pub struct Server {
    /// The number of workers over time.
    pub workers: Steps<u32>,
    /// The work of a call.
    pub service: Service,
    /// The factor by which each call takes longer, in thousandths, at these instants; between them
    /// it changes evenly.
    pub slowness: Steps<u64>,
    /// The time that a call is on its way, there and back together.
    pub network_ns: Steps<u64>,
    /// The maximum number of calls that wait for a worker; further ones are refused at once.
    pub queue: usize,
    /// A stop of all workers.
    pub pause: Option<Pause>,
    /// The time after which a caller gives a call up.
    pub deadline_ns: u64,
}

/// A stop of all workers, again and again: not at first, but each time after `every_ns`.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// The time from one to the next.
    pub every_ns: u64,
    /// The length of one.
    pub for_ns: u64,
}

/// A server and its callers.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The server.
    pub server: Server,
    /// The callers, each with a limit of its own.
    pub clients: Vec<Client>,
    /// The measures. The run ends with the last of them.
    pub measures: Vec<Measure>,
    /// The seed of all that is random.
    pub seed: u64,
}

impl Server {
    /// Creates a server that never changes, with an unbounded queue and a deadline of 500 ms.
    #[must_use]
    pub fn new(workers: u32, service: Service) -> Self {
        Self {
            workers: Steps::constant(workers),
            service,
            slowness: Steps::constant(1_000),
            network_ns: Steps::constant(0),
            queue: usize::MAX,
            pause: None,
            deadline_ns: 500_000_000,
        }
    }

    /// Returns the number of calls that it can serve at an instant, in thousandths a second. Pauses
    /// are spread evenly.
    fn capacity(&self, at_ns: u64) -> u64 {
        let mean_ns = u128::from(self.service.mean_ns()).max(1);
        let slowness = u128::from(self.slowness.between(at_ns)).max(1);
        let workers = u128::from(self.workers.at(at_ns));
        let awake = self.pause.map_or((1, 1), |pause| {
            (pause.every_ns.saturating_sub(pause.for_ns), pause.every_ns.max(1))
        });
        let each = workers.saturating_mul(1_000_000_000_000_000).saturating_mul(awake.0.into());
        let by = mean_ns.saturating_mul(slowness).saturating_mul(awake.1.into());
        u64::try_from(each.checked_div(by).unwrap_or(0)).unwrap_or(u64::MAX)
    }
}

impl Pause {
    /// Returns the end of the pause at an instant, if there is one.
    fn end_ns(self, at_ns: u64) -> Option<u64> {
        let since_ns = at_ns.checked_rem(self.every_ns)?;
        let is_paused = at_ns >= self.every_ns && since_ns < self.for_ns;
        is_paused.then(|| at_ns.saturating_sub(since_ns).saturating_add(self.for_ns))
    }

    /// Returns the instant at which the work of so much time is done, if it begins at `at_ns`.
    fn done_ns(self, at_ns: u64, work_ns: u64) -> u64 {
        let at_ns = self.end_ns(at_ns).unwrap_or(at_ns);
        let since_ns = at_ns.checked_rem(self.every_ns).unwrap_or(0);
        let first_ns = self.every_ns.saturating_sub(since_ns);
        let Some(left_ns) = work_ns.checked_sub(first_ns).filter(|left_ns| *left_ns > 0) else {
            return at_ns.saturating_add(work_ns);
        };
        // From here on each period is a pause, and then work.
        let awake_ns = self.every_ns.saturating_sub(self.for_ns);
        let Some(whole) = left_ns.saturating_sub(1).checked_div(awake_ns) else { return u64::MAX };
        let rest_ns = left_ns.saturating_sub(whole.saturating_mul(awake_ns));
        at_ns
            .saturating_add(first_ns)
            .saturating_add(whole.saturating_mul(self.every_ns))
            .saturating_add(self.for_ns)
            .saturating_add(rest_ns)
    }
}

/// Thousandths, in percent.
struct Percent(u64);

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{} %", self.0 / 10, self.0 % 10)
    }
}
