//! A controller, and the time for which what it has learned is right.

use super::change::{Change, Changes, Reason};
use super::{Adaptation, Aimd, Controller, Knee, Method, Sample};

/// The time without operations in flight after which a limit begins anew: what it has learned says
/// nothing about the server any more. An idle key of a table can then be evicted.
const FORGETS_NS: u64 = 600_000_000_000;

/// A controller, and the time for which it is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Learned {
    controller: AnyController,
    /// The instant at which the last operation ended. `None` before the first.
    idle_since_ns: Option<u64>,
    changes: Changes,
}

#[expect(clippy::large_enum_variant, reason = "the state keeps it in a box, as large as Knee")]
#[derive(Clone, Debug, PartialEq, Eq)]
enum AnyController {
    Knee(Knee),
    Aimd(Aimd),
}

impl AnyController {
    fn new(adaptation: Adaptation) -> Self {
        let (bounds, seed) = (adaptation.bounds(), adaptation.seed().into());
        match adaptation.method() {
            Method::Knee => Self::Knee(Knee::new(bounds, seed)),
            Method::Aimd => Self::Aimd(Aimd::new(bounds)),
        }
    }

    fn as_dyn(&mut self) -> &mut dyn Controller {
        match self {
            Self::Knee(controller) => controller,
            Self::Aimd(controller) => controller,
        }
    }

    fn limit(&self) -> u32 {
        match self {
            Self::Knee(controller) => controller.limit(),
            Self::Aimd(controller) => controller.limit(),
        }
    }

    /// Returns the limit, and the one that was found.
    ///
    /// Each sample needs them, and few are within a probe: the limit is computed once.
    #[inline]
    fn shown(&self) -> (u32, u32) {
        let limit = self.limit();
        let before_probe = match self {
            Self::Knee(controller) => controller.before_probe(),
            Self::Aimd(_) => None,
        };
        (limit, before_probe.unwrap_or(limit))
    }

    /// Returns why the limit changed last.
    const fn reason(&self) -> Reason {
        match self {
            Self::Knee(controller) => controller.reason(),
            Self::Aimd(controller) => controller.reason(),
        }
    }

    /// Returns the latency without a queue, if the method knows one.
    fn base_ns(&self) -> Option<u64> {
        match self {
            Self::Knee(controller) => controller.base_ns(),
            Self::Aimd(_) => None,
        }
    }
}

impl Learned {
    pub(crate) fn new(adaptation: Adaptation) -> Self {
        let controller = AnyController::new(adaptation);
        Self { controller, idle_since_ns: None, changes: Changes::default() }
    }

    /// Returns the limit of operations in flight at `now_ns`, of which there are some or none.
    pub(crate) fn limit(&self, adaptation: Adaptation, is_idle: bool, now_ns: u64) -> u64 {
        if is_idle && self.fresh_at_ns() <= now_ns {
            return adaptation.bounds().first().into();
        }
        self.controller.limit().into()
    }

    /// Returns the instant from which an idle limit is as fresh.
    pub(crate) fn fresh_at_ns(&self) -> u64 {
        self.idle_since_ns.map_or(0, |since_ns| since_ns.saturating_add(FORGETS_NS))
    }

    /// Follows the start of operations on an idle server.
    pub(crate) fn begin(&mut self, adaptation: Adaptation, now_ns: u64) {
        if self.idle_since_ns.is_some() && self.fresh_at_ns() <= now_ns {
            self.restart(adaptation);
        }
    }

    /// Begins anew, and keeps the record of the changes.
    fn restart(&mut self, adaptation: Adaptation) {
        let (mut changes, from) = (self.changes, self.controller.shown());
        *self = Self::new(adaptation);
        changes.note(Reason::Restart, from, self.controller.limit());
        self.changes = changes;
    }

    /// Follows a start with which a share of the limit was reached.
    pub(crate) fn fill_share(&mut self, in_flight: u32, now_ns: u64) {
        self.controller.as_dyn().fill_share(in_flight, now_ns);
    }

    /// Follows the end of operations at `now_ns`.
    pub(crate) fn end(&mut self, now_ns: u64, sample: Option<Sample>) {
        self.idle_since_ns = Some(now_ns);
        if let Some(sample) = sample {
            let from = self.controller.shown();
            self.controller.as_dyn().sample(sample);
            self.changes.note(self.controller.reason(), from, self.controller.limit());
        }
    }

    /// Follows other numbers.
    pub(crate) fn rebase(&mut self, old: Adaptation, new: Adaptation) {
        if old.method() == new.method() && old.seed() == new.seed() {
            let from = self.controller.shown();
            self.controller.as_dyn().rebound(new.bounds());
            self.changes.note(Reason::Bounds, from, self.controller.limit());
        } else {
            self.restart(new);
        }
    }

    /// Returns a limit that begins with what another has found.
    pub(crate) fn beginning_with(adaptation: Adaptation, limit: u64, idle_since_ns: u64) -> Self {
        let bounds = adaptation.bounds().beginning_with(limit);
        let learned = Self::new(adaptation.with_bounds(bounds));
        Self { idle_since_ns: Some(idle_since_ns), ..learned }
    }

    /// Returns the limit that has been found.
    pub(crate) fn found(&self) -> u64 {
        self.controller.shown().1.into()
    }

    /// Returns the number of changes, which wraps, and the last of them.
    pub(crate) const fn changes(&self) -> (u32, Option<Change>) {
        (self.changes.count, self.changes.last)
    }

    /// Returns the latency without a queue, if the method knows one.
    pub(crate) fn base_ns(&self) -> Option<u64> {
        self.controller.base_ns()
    }

    /// Returns the instant at which the last operation ended.
    pub(crate) const fn idle_since_ns(&self) -> Option<u64> {
        self.idle_since_ns
    }
}
