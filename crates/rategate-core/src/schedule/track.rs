//! Operations on a schedule: the next one, when each is due, and the effects of a rate change and
//! of forfeited time.
//!
//! A track is a list of pieces, each under one schedule. A rate change ends the piece in force and
//! appends another with the fraction of a permit earned so far.
//!
//! ```text
//!   piece 1: 5/s        | piece 2: 2/s
//!   --o--o--o--o--o--o--|------o--------o--------o---> time
//!        ^ next         ^ change: operations before it are due when they were
//! ```

use alloc::collections::VecDeque;
use core::num::NonZeroU64;

use crate::exact::{Exact, Pace};
#[cfg(feature = "serde")]
use crate::portable::{SavedError, Shift};
use crate::rate::Kind;
use crate::schedule::{Form, Ramp, Schedule};
use crate::wide::mul_div_ceil;

/// The maximum number of past schedules that operations not yet started can be due on. One more
/// change joins the two oldest: every operation stays, and only due instants inside them move.
pub const MAX_PIECES: usize = 64;

/// The instant at which an operation is due, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    At(DueAt),
    AtOnce,
    Never,
}

/// An instant, possibly between two nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueAt {
    pub(crate) floor_ns: u128,
    pub(crate) between: bool,
}

impl DueAt {
    pub(crate) const fn ceil_ns(self) -> u128 {
        if self.between { self.floor_ns.saturating_add(1) } else { self.floor_ns }
    }

    const fn exact(instant: Exact) -> Self {
        Self { floor_ns: instant.ns, between: instant.part > 0 }
    }
}

/// The operations still to start, in order, and when each is due.
///
/// Each piece remembers since when its schedule is in force. Forfeited time therefore takes the
/// operations of that time with it, and never those of another rate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub(crate) struct Track {
    /// Never empty. Every piece but the last has a length.
    pieces: VecDeque<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
struct Piece {
    schedule: Schedule,
    since_ns: u128,
    course: PieceKind,
    /// The number of operations still to come from this piece; `None` for the open last piece.
    left: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
enum PieceKind {
    /// Equal steps from the instant of the next operation.
    Paced { next: Exact, pace: Pace },
    /// A ramp, of whose integral `passed` units lead up to the next operation.
    Ramp { ramp: Ramp, start_ns: u128, passed: u128 },
    /// No limit: every operation is due at once.
    AtOnce,
    /// No rate; `missing` of a permit is still to be earned should the rate come back.
    Stopped { missing: Fraction },
}

/// The missing part of a permit: less than one for an operation that comes next in time, more
/// where operations have started ahead of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
struct Fraction {
    whole: u128,
    numerator: u64,
    denominator: u64,
}

impl Fraction {
    const NONE: Self = Self { whole: 0, numerator: 0, denominator: 1 };

    /// Returns `numerator / denominator`, its fraction in 64 bits each and rounded up.
    fn new(numerator: u128, denominator: u128) -> Self {
        let whole = numerator.checked_div(denominator).unwrap_or(0);
        let mut numerator = numerator.checked_rem(denominator).unwrap_or(0);
        let mut denominator = denominator.max(1);
        while denominator > u64::MAX.into() {
            numerator = numerator.div_ceil(2);
            denominator = denominator.wrapping_div(2);
        }
        let to_u64 = |side: u128| u64::try_from(side).unwrap_or(u64::MAX);
        Self { whole, numerator: to_u64(numerator), denominator: to_u64(denominator) }
    }

    /// Returns this fraction of `permit`, rounded up.
    fn of(self, permit: u128) -> u128 {
        let part = mul_div_ceil(permit, self.numerator, self.denominator.into());
        permit.saturating_mul(self.whole).saturating_add(part.unwrap_or(u128::MAX))
    }
}

impl Track {
    pub(crate) fn new(schedule: Schedule, start_ns: u64) -> Self {
        let course = PieceKind::new(schedule, start_ns.into(), Fraction::NONE);
        let piece = Piece { schedule, since_ns: start_ns.into(), course, left: None };
        Self { pieces: VecDeque::from([piece]) }
    }

    /// Returns a track in force since `since_ns`, at a constant pace, whose next operation is due
    /// at `next`.
    pub(crate) fn going_on(schedule: Schedule, since_ns: u64, next: Exact) -> Self {
        let mut track = Self::new(schedule, since_ns);
        if let Some(Piece { course: PieceKind::Paced { next: due, .. }, .. }) =
            track.pieces.front_mut()
        {
            *due = next;
        }
        track
    }

    /// Returns when the next operation is due, if it and all later ones come at `pace`.
    pub(crate) fn next_at(&self, pace: Pace) -> Option<Exact> {
        match self.pieces.front()?.course {
            PieceKind::Paced { next, pace: own } if self.pieces.len() == 1 && own == pace => {
                Some(next)
            }
            _ => None,
        }
    }

    /// Forfeits the time before `at_ns`: the next operation is due then, and later ones follow
    /// the schedule in force from there. Does nothing if the next operation is due later.
    pub(crate) fn forfeit_before(&mut self, at_ns: u128) {
        let Due::At(next) = self.nth(0) else { return };
        if next.ceil_ns() >= at_ns {
            return;
        }
        let begun = self.pieces.partition_point(|piece| piece.since_ns <= at_ns);
        let changes = self.pieces.split_off(begun);
        let Some(mut piece) = self.pieces.pop_back() else { return };
        piece.course = piece.course.with_next_at(at_ns);
        piece.left = None;
        self.pieces.clear();
        self.pieces.push_back(piece);
        for change in changes {
            self.change(change.schedule, change.since_ns);
        }
    }

    /// Returns when the operation after the next `skip` ones is due.
    pub(crate) fn nth(&self, skip: u64) -> Due {
        let mut skip = skip;
        for piece in &self.pieces {
            match piece.left {
                Some(left) if left <= skip => skip = skip.saturating_sub(left),
                _ => return piece.course.nth(skip),
            }
        }
        Due::Never
    }

    /// Records that the next `operations` have started.
    pub(crate) fn advance(&mut self, operations: u64) {
        let mut operations = operations;
        while let Some(piece) = self.pieces.front_mut() {
            match &mut piece.left {
                Some(left) if *left <= operations => {
                    operations = operations.saturating_sub(*left);
                    self.pieces.pop_front();
                }
                left => {
                    if let Some(left) = left {
                        *left = left.saturating_sub(operations);
                    }
                    piece.course.advance(operations);
                    return;
                }
            }
        }
    }

    /// Records that the last `operations` have not started after all. Only for a track on which
    /// [`next_at`](Self::next_at) returns an instant.
    pub(crate) fn retreat(&mut self, operations: u64) {
        if let Some(Piece { course: PieceKind::Paced { next, pace }, .. }) = self.pieces.front_mut()
        {
            *next = pace.sub(*next, pace.time_of(operations));
        }
    }

    /// Returns how many operations can [come back](Self::retreat) at most, so that the next one
    /// is due neither before `from_ns` nor before the schedule came into force.
    pub(crate) fn max_retreat(&self, pace: Pace, from_ns: u128) -> u64 {
        let (Some(next), Some(piece)) = (self.next_at(pace), self.pieces.front()) else { return 0 };
        let first = Exact::at(from_ns.max(piece.since_ns));
        u64::try_from(pace.permits_in(pace.sub(next, first))).unwrap_or(u64::MAX)
    }

    /// Returns, on a ramp, the time from the next operation to the one after it, rounded up.
    pub(crate) fn slice_on_ramp_ns(&self) -> Option<u128> {
        let PieceKind::Ramp { .. } = self.pieces.front()?.course else { return None };
        match (self.nth(0), self.nth(1)) {
            (Due::At(next), Due::At(after)) => Some(after.ceil_ns().saturating_sub(next.floor_ns)),
            _ => None,
        }
    }

    /// Returns the number of operations due by `at_ns`.
    pub(crate) fn due_by(&self, at_ns: u128) -> u64 {
        let mut sum = 0_u64;
        for piece in &self.pieces {
            let due = piece.course.due_by(at_ns);
            let left = piece.left.unwrap_or(u64::MAX);
            sum = sum.saturating_add(due.min(left));
            if due < left {
                break;
            }
        }
        sum
    }

    /// Puts `schedule` into force from `at_ns` on. Operations due by then stay due when they
    /// were, and the earned part of the next permit stays earned.
    pub(crate) fn change(&mut self, schedule: Schedule, at_ns: u128) {
        if let Some(last) = self.pieces.back_mut() {
            let at_ns = at_ns.max(last.since_ns);
            // Only the last piece is open, so only it can extend beyond now.
            let due = last.course.due_by(at_ns);
            let mut rest = last.course;
            rest.advance(due);
            let missing = rest.missing(at_ns);
            // A piece without operations stays: forfeited time may end in it.
            last.left = Some(if matches!(last.course, PieceKind::AtOnce) { 0 } else { due });
            let course = PieceKind::new(schedule, at_ns, missing);
            self.pieces.push_back(Piece { schedule, since_ns: at_ns, course, left: None });
        }
        while self.pieces.len() > 1
            && self.pieces.front().is_some_and(|oldest| oldest.left == Some(0))
        {
            self.pieces.pop_front();
        }
        if self.pieces.len() > MAX_PIECES {
            self.join_oldest();
        }
    }

    /// Joins the two oldest pieces into one: as many operations, evenly over the same time. A piece
    /// without operations goes first.
    fn join_oldest(&mut self) {
        if let Some(empty) = self.pieces.iter().position(|piece| piece.left == Some(0)) {
            self.pieces.remove(empty);
            return;
        }
        let count = |piece: Option<&Piece>| piece.and_then(|piece| piece.left).unwrap_or(0);
        let both = count(self.pieces.front()).saturating_add(count(self.pieces.get(1)));
        let (Due::At(first), Due::At(end)) = (self.nth(0), self.nth(both)) else { return };
        let span_ns = end.floor_ns.saturating_sub(first.floor_ns);
        let Some(first_piece) = self.pieces.pop_front() else { return };
        let course =
            PieceKind::Paced { next: Exact::at(first.floor_ns), pace: evenly(both, span_ns) };
        if let Some(oldest) = self.pieces.front_mut() {
            let Piece { schedule, since_ns, .. } = first_piece;
            *oldest = Piece { schedule, since_ns, course, left: Some(both) };
        }
    }
}

/// Returns the pace of `operations` over `span_ns`, to at least 32 bits.
fn evenly(operations: u64, span_ns: u128) -> Pace {
    let (mut permits, mut period_ns) = (operations.max(1), span_ns.max(1));
    while period_ns > u64::MAX.into() {
        (permits, period_ns) = (permits.div_ceil(2), period_ns.div_ceil(2));
    }
    let period_ns = u64::try_from(period_ns).unwrap_or(u64::MAX);
    let one = NonZeroU64::MIN;
    Pace::new(NonZeroU64::new(permits).unwrap_or(one), NonZeroU64::new(period_ns).unwrap_or(one))
}

impl PieceKind {
    /// Returns the same course from the operation that is due at `at_ns`.
    fn with_next_at(self, at_ns: u128) -> Self {
        match self {
            Self::Paced { pace, .. } => Self::Paced { next: Exact::at(at_ns), pace },
            Self::Ramp { ramp, start_ns, .. } => {
                let since_ns = at_ns.saturating_sub(start_ns);
                match ramp.last_rate().kind() {
                    Kind::Paced(pace) if since_ns > ramp.over_ns.get().into() => {
                        Self::Paced { next: Exact::at(at_ns), pace }
                    }
                    _ => {
                        let passed = ramp.earned(since_ns.min(ramp.over_ns.get().into()));
                        Self::Ramp { ramp, start_ns, passed }
                    }
                }
            }
            Self::AtOnce => self,
            Self::Stopped { .. } => Self::Stopped { missing: Fraction::NONE },
        }
    }

    /// Returns a course whose first operation still lacks `missing` of its permit at `start_ns`.
    fn new(schedule: Schedule, start_ns: u128, missing: Fraction) -> Self {
        match schedule.0 {
            Form::Constant(rate) => match rate.kind() {
                Kind::Paced(pace) => {
                    let wait = pace.from_parts(missing.of(pace.period_ns().get().into()));
                    Self::Paced { next: pace.add(Exact::at(start_ns), wait), pace }
                }
                Kind::Unlimited => Self::AtOnce,
                Kind::Never => Self::Stopped { missing },
            },
            Form::Ramp(ramp) => Self::Ramp { ramp, start_ns, passed: missing.of(ramp.permit) },
        }
    }

    fn nth(&self, skip: u64) -> Due {
        match *self {
            Self::Paced { next, pace } => Due::At(DueAt::exact(pace.add(next, pace.time_of(skip)))),
            Self::Ramp { ramp, start_ns, passed } => {
                let ahead = ramp.permit.saturating_mul(skip.into());
                ramp.due(start_ns, passed.saturating_add(ahead))
            }
            Self::AtOnce => Due::AtOnce,
            Self::Stopped { .. } => Due::Never,
        }
    }

    fn advance(&mut self, operations: u64) {
        match self {
            Self::Paced { next, pace } => *next = pace.add(*next, pace.time_of(operations)),
            Self::Ramp { ramp, start_ns, passed } => {
                let ahead = ramp.permit.saturating_mul(operations.into());
                *passed = passed.saturating_add(ahead);
                // After the ramp, a constant rate says the same in smaller numbers.
                if *passed > ramp.earned(ramp.over_ns.get().into()) {
                    *self = ramp.rest(*start_ns, *passed);
                }
            }
            Self::AtOnce | Self::Stopped { .. } => {}
        }
    }

    fn due_by(&self, at_ns: u128) -> u64 {
        let due = match *self {
            Self::Paced { next, .. } if next > Exact::at(at_ns) => 0,
            Self::Paced { next, pace } => {
                pace.permits_in(pace.sub(Exact::at(at_ns), next)).saturating_add(1)
            }
            Self::Ramp { ramp, start_ns, passed } => {
                let since_ns = at_ns.saturating_sub(start_ns);
                let earned = ramp.earned(since_ns.min(ramp.over_ns.get().into()));
                let on_ramp = match earned.checked_sub(passed) {
                    Some(due) => due.checked_div(ramp.permit).unwrap_or(0).saturating_add(1),
                    None => 0,
                };
                let ahead = ramp.permit.saturating_mul(on_ramp).saturating_add(passed);
                let after_ramp = match ramp.rest(start_ns, ahead) {
                    rest @ Self::Paced { .. } if since_ns > ramp.over_ns.get().into() => {
                        rest.due_by(at_ns).into()
                    }
                    _ => 0,
                };
                on_ramp.saturating_add(after_ramp)
            }
            Self::AtOnce => u128::MAX,
            Self::Stopped { .. } => 0,
        };
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// Returns what the next operation, due later than `at_ns`, still lacks of its permit then.
    fn missing(&self, at_ns: u128) -> Fraction {
        match *self {
            Self::Paced { next, pace } => {
                let parts = pace.to_parts(pace.sub(next, Exact::at(at_ns)));
                Fraction::new(parts, pace.period_ns().get().into())
            }
            Self::Ramp { ramp, start_ns, passed } => {
                let since_ns = at_ns.saturating_sub(start_ns).min(ramp.over_ns.get().into());
                Fraction::new(passed.saturating_sub(ramp.earned(since_ns)), ramp.permit)
            }
            Self::AtOnce => Fraction::NONE,
            Self::Stopped { missing } => missing,
        }
    }
}

impl Ramp {
    /// Returns when the ramp, and the constant rate after it, have produced `wanted`.
    fn due(&self, start_ns: u128, wanted: u128) -> Due {
        if wanted > self.earned(self.over_ns.get().into()) {
            return self.rest(start_ns, wanted).nth(0);
        }
        let (mut low, mut high) = (0_u128, u128::from(self.over_ns.get()));
        while low < high {
            let middle = low.midpoint(high);
            if self.earned(middle) < wanted {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        let between = self.earned(low) > wanted;
        let ceil_ns = start_ns.saturating_add(low);
        Due::At(DueAt { floor_ns: ceil_ns.saturating_sub(between.into()), between })
    }

    /// Returns the constant rate after the ramp, from the operation that `wanted` belongs to.
    fn rest(&self, start_ns: u128, wanted: u128) -> PieceKind {
        let end_ns = start_ns.saturating_add(self.over_ns.get().into());
        let missing = wanted.saturating_sub(self.earned(self.over_ns.get().into()));
        match self.last_rate().kind() {
            Kind::Paced(pace) => {
                let parts = mul_div_ceil(missing, pace.period_ns().get(), self.permit);
                let wait = pace.from_parts(parts.unwrap_or(u128::MAX));
                PieceKind::Paced { next: pace.add(Exact::at(end_ns), wait), pace }
            }
            // The constructor refuses a ramp to unlimited.
            Kind::Never | Kind::Unlimited => {
                PieceKind::Stopped { missing: Fraction::new(missing, self.permit) }
            }
        }
    }
}

#[cfg(feature = "serde")]
impl Track {
    /// Moves the track to another clock. Operations due before that clock's zero are forfeited:
    /// late ones may belong to a rate long replaced, so they must not come later instead.
    pub(crate) fn moved(mut self, schedule: Schedule, since: Shift) -> Result<Self, SavedError> {
        let open = self.pieces.iter().position(|piece| piece.left.is_none());
        let is_valid = open == self.pieces.len().checked_sub(1)
            && self.pieces.back().is_some_and(|last| last.schedule == schedule)
            && self.pieces.len() <= MAX_PIECES
            && self.pieces.iter().is_sorted_by_key(|piece| piece.since_ns)
            && self.pieces.iter().all(Piece::is_valid);
        if !is_valid {
            return Err(SavedError::Malformed);
        }
        let zero_ns = since.zero_ns();
        let begins_ns = self.pieces.iter().map(|piece| match piece.course {
            PieceKind::Ramp { start_ns, .. } => start_ns,
            _ => zero_ns,
        });
        let short_ns = zero_ns.saturating_sub(begins_ns.min().unwrap_or(zero_ns));
        self.forfeit_before(zero_ns);
        for piece in &mut self.pieces {
            piece.since_ns = since.instant_ns(piece.since_ns);
            match &mut piece.course {
                PieceKind::Paced { next, pace } => *next = since.exact(*next, *pace)?,
                PieceKind::Ramp { start_ns, .. } if *start_ns < zero_ns => {
                    let short_ns = u64::try_from(short_ns).unwrap_or(u64::MAX);
                    return Err(SavedError::BeforeClock { short_ns });
                }
                PieceKind::Ramp { start_ns, .. } => *start_ns = since.instant_ns(*start_ns),
                PieceKind::AtOnce | PieceKind::Stopped { .. } => {}
            }
        }
        if self.pieces.is_empty() { Err(SavedError::Malformed) } else { Ok(self) }
    }
}

#[cfg(feature = "serde")]
impl Piece {
    fn is_valid(&self) -> bool {
        match self.course {
            PieceKind::Ramp { ramp, .. } => self.schedule.0 == Form::Ramp(ramp),
            PieceKind::Stopped { missing } => missing.numerator < missing.denominator,
            PieceKind::Paced { next, pace } => next.is_in(pace),
            PieceKind::AtOnce => true,
        }
    }
}
