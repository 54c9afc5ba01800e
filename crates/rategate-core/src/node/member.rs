//! The holder of a share of a total: a node that says now and then that it is alive, and uses its share for as long as
//! that counts.
//!
//! ```text
//!   node    S1 ----------- S2 ----------- S3 ...        a sign of life each beat
//!           |<---- length (1 - drift) -->|              for so long the answer to S1 can be used
//!   store    D1 ----------- D2                          counts each for its length, from when it came
//!            |<----------- length ------>|
//! ```
//!
//! # Contract
//!
//! * **Never late.** A share is used for `length (1 - drift)` on the node's clock since the sign of life was *sent*. The
//!   store counts it as held for the length since it *came*, so what it hands to somebody else nobody uses any
//!   more, whatever was lost on the way.
//! * **One at a time.** One sign of life is under way; one that is lost is sent again an eighth of a beat later, so several can be
//!   lost before the share is.
//! * **Growing.** What comes [fresh](Heard::fresh) may be used at once. The rest of a gain was somebody else's a moment
//!   ago, and counts as just used: a log counts it as taken now, a bucket gains room but no permits.
//!   Then each permit of the total is used at most once in any window of the limit's memory, whoever has it, so
//!   actions of all members are within the total: think of a slot for each permit, which changes hands (theory 2.2).
//! * **Buckets.** Of a bucket with rate `r` and burst `b`, a share of `s` permits is a bucket with burst `s` and rate `r s / b`; its
//!   memory is `b / r`, the time it takes to fill.
//! * **A new life has a new name.** A member that has left, or forgot what it held, must not come back under its old
//!   one: a message of its old life may still be on the way.
//! * **Clock.** The node's own, monotonic; a reading older than the newest counts as that one.
//!
//! # Example
//!
//! ```
//! use core::num::NonZeroU64;
//! use rategate_core::node::{Beat, Group, Member, MemberTerms, Resize};
//!
//! let second = NonZeroU64::new(1_000_000_000).unwrap();
//! let terms = MemberTerms::new(second, 200)?;
//! let (mut group, mut member) = (Group::new(), Member::new(terms));
//!
//! let id = member.beat(0).expect("it is time");
//! let (length_ns, memory_ns) = (terms.length_ns().get(), second.get());
//! let beat = Beat { member: [7; 16], total: 45, at_least: 0, length_ns, memory_ns };
//! // The store's clock is another.
//! let heard = group.beat(123_456_789, &beat);
//! assert_eq!(member.heard(id, 1_000_000, heard), Resize { from: 0, to: 45, fresh: 45 });
//! assert_eq!(member.share(1_499_699_999), 45);
//! assert_eq!(member.share(1_499_700_000), 0);
//! # Ok::<(), rategate_core::node::TermsError>(())
//! ```

use core::num::NonZeroU64;

use super::group::Heard;
use super::terms::{MAX_DRIFT_PPM, TermsError, at_least_ns, at_most_ns};

/// How often a member shows that it is alive, and for how long that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberTerms {
    beat_ns: NonZeroU64,
    length_ns: NonZeroU64,
    usable_ns: NonZeroU64,
    drift_ppm: u32,
}

impl MemberTerms {
    /// A sign of life each `beat_ns`, which counts for half as long again; of the node's clock and the store's, neither
    /// gains on the other more than `drift_ppm` parts in a million.
    ///
    /// # Errors
    ///
    /// [`TermsError`].
    pub fn new(beat_ns: NonZeroU64, drift_ppm: u32) -> Result<Self, TermsError> {
        let half_ns = beat_ns.get().div_ceil(2);
        Self::with_length(beat_ns, beat_ns.saturating_add(half_ns), drift_ppm)
    }

    /// The same, where each counts for `length_ns`.
    ///
    /// # Errors
    ///
    /// [`TermsError`].
    pub fn with_length(
        beat_ns: NonZeroU64,
        length_ns: NonZeroU64,
        drift_ppm: u32,
    ) -> Result<Self, TermsError> {
        if drift_ppm > MAX_DRIFT_PPM {
            return Err(TermsError::Drift);
        }
        let usable_ns = NonZeroU64::new(at_least_ns(length_ns.get(), drift_ppm));
        let usable_ns = usable_ns.ok_or(TermsError::TooShort)?;
        if usable_ns <= beat_ns {
            return Err(TermsError::LengthWithinBeat);
        }
        Ok(Self { beat_ns, length_ns, usable_ns, drift_ppm })
    }

    /// From one sign of life to the next.
    #[must_use]
    pub const fn beat_ns(&self) -> NonZeroU64 {
        self.beat_ns
    }

    /// For how long one counts, on the store's clock.
    #[must_use]
    pub const fn length_ns(&self) -> NonZeroU64 {
        self.length_ns
    }
}

/// Which sign of life an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BeatId(u64);

/// What an answer does to a share. What the member has not used of it by now stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resize {
    /// What the member had until now; 0 if its time was over.
    pub from: u64,
    /// What it has from now on.
    pub to: u64,
    /// How much of what it gains may be used at once. The rest counts as used just now.
    pub fresh: u64,
}

impl Resize {
    /// How much of the gain counts as used just now.
    #[must_use]
    pub const fn stale(&self) -> u64 {
        self.to.saturating_sub(self.from).saturating_sub(self.fresh)
    }
}

/// A node that has a share of a total.
#[derive(Clone, Debug)]
pub struct Member {
    terms: MemberTerms,
    share: u64,
    /// How many members the store knew of.
    members: u64,
    /// The share may be used before that.
    ends_ns: u64,
    under_way: Option<UnderWay>,
    next_ns: u64,
    has_left: bool,
    latest_ns: u64,
    last_id: u64,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    id: BeatId,
    sent_ns: u64,
}

impl Member {
    /// A node that has nothing yet, and would like to join at once.
    #[must_use]
    pub const fn new(terms: MemberTerms) -> Self {
        Self {
            terms,
            share: 0,
            members: 0,
            ends_ns: 0,
            under_way: None,
            next_ns: 0,
            has_left: false,
            latest_ns: 0,
            last_id: 0,
        }
    }

    /// The sign of life to be sent at `now_ns`, which counts as sent then; `None` if it is not time yet, or one is under way.
    /// One of [`heard`](Self::heard) and [`lost`](Self::lost) has to follow.
    pub fn beat(&mut self, now_ns: u64) -> Option<BeatId> {
        let now_ns = self.pass_to(now_ns);
        if self.has_left || self.under_way.is_some() || now_ns < self.next_ns {
            return None;
        }
        self.last_id = self.last_id.wrapping_add(1);
        let id = BeatId(self.last_id);
        self.under_way = Some(UnderWay { id, sent_ns: now_ns });
        Some(id)
    }

    /// The store has answered. What it says takes the place of what it said before. An answer to one that was given up
    /// changes nothing.
    pub fn heard(&mut self, id: BeatId, now_ns: u64, heard: Heard) -> Resize {
        let now_ns = self.pass_to(now_ns);
        let from = self.share(now_ns);
        let Some(sent) = self.under_way.take_if(|sent| sent.id == id) else {
            return Resize { from, to: from, fresh: 0 };
        };
        let MemberTerms { beat_ns, usable_ns, drift_ppm, .. } = self.terms;
        self.share = heard.permits;
        self.members = heard.members;
        self.ends_ns = sent.sent_ns.saturating_add(usable_ns.get());
        let changes_ns = heard.changes_in_ns.map(|ns| at_most_ns(ns.get(), drift_ppm));
        let changes_ns = changes_ns.map(|ns| ns.max(self.soon_ns()));
        let beat_ns = sent.sent_ns.saturating_add(beat_ns.get());
        let changes_ns = changes_ns.map_or(u64::MAX, |ns| now_ns.saturating_add(ns));
        self.next_ns = beat_ns.min(changes_ns);
        let to = self.share(now_ns);
        Resize { from, to, fresh: heard.fresh.min(to.saturating_sub(from)) }
    }

    /// No answer came.
    pub fn lost(&mut self, id: BeatId, now_ns: u64) {
        let now_ns = self.pass_to(now_ns);
        if self.under_way.take_if(|sent| sent.id == id).is_some() {
            self.next_ns = now_ns.saturating_add(self.soon_ns());
        }
    }

    /// Gives the share up, for good. The store may be told by a sign of life that counts for no time.
    pub const fn leave(&mut self) {
        self.share = 0;
        self.has_left = true;
        self.under_way = None;
    }

    /// What this node may use at `now_ns`: nothing once its time is over.
    #[must_use]
    pub fn share(&self, now_ns: u64) -> u64 {
        if now_ns.max(self.latest_ns) < self.ends_ns { self.share } else { 0 }
    }

    /// Until when, if no answer comes.
    #[must_use]
    pub const fn ends_ns(&self) -> u64 {
        self.ends_ns
    }

    /// How many members there were when the store answered last; 0 if it never has.
    #[must_use]
    pub const fn members(&self) -> u64 {
        self.members
    }

    /// When [`beat`](Self::beat) has to be asked again; `None` while one is under way, and after leaving.
    #[must_use]
    pub fn wakes_at_ns(&self) -> Option<u64> {
        (!self.has_left && self.under_way.is_none()).then_some(self.next_ns)
    }

    /// The shortest time between two signs of life.
    fn soon_ns(&self) -> u64 {
        (self.terms.beat_ns.get() >> 3).max(1)
    }

    fn pass_to(&mut self, now_ns: u64) -> u64 {
        self.latest_ns = self.latest_ns.max(now_ns);
        self.latest_ns
    }
}
