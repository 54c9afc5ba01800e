//! Courses of requests: by a script, by a seed, and by where the network is cut.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;

/// The fate of one request and its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// The request and the reply are delivered at once.
    #[default]
    Prompt,
    /// The request and the reply are delayed.
    ///
    /// Past the budget no caller waits any more, and the permits of the reply return to the store.
    Slow {
        /// The time from the request to the store's decision.
        there_ns: u64,
        /// The time from the decision to the caller.
        back_ns: u64,
    },
    /// The request is lost: the store never receives it.
    RequestLost,
    /// The reply is lost: the store has decided, but the caller never learns the result.
    ReplyLost,
    /// The request is delivered twice, and the reply to the first delivery arrives at once.
    ///
    /// Only a request that counts once under its id is: a reservation or its end. Of any other a
    /// driver sends no second one, so it is delivered as if [`Prompt`](Self::Prompt).
    Doubled {
        /// The time from the first delivery to the second.
        again_ns: u64,
    },
    /// There is no connection, which is known at once.
    Unreachable,
    /// The store replies at once that it is unable.
    Unable,
}

/// The number of requests in 1 000 that take each course. All others go straight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// [`Fate::Slow`], with two delays of up to [`max_delay_ns`](Self::max_delay_ns) each.
    pub slow: u64,
    /// [`Fate::RequestLost`].
    pub lost_there: u64,
    /// [`Fate::ReplyLost`].
    pub lost_back: u64,
    /// [`Fate::Doubled`], after up to [`max_delay_ns`](Self::max_delay_ns).
    pub doubled: u64,
    /// [`Fate::Unreachable`].
    pub unreachable: u64,
    /// [`Fate::Unable`].
    pub unable: u64,
    /// The longest delay in one direction.
    pub max_delay_ns: u64,
}

/// The source of the next request's course.
#[derive(Debug, Default)]
pub(super) struct Courses {
    script: VecDeque<Fate>,
    usual: Fate,
    odds: Option<(FaultRates, Rng)>,
    cut: BTreeMap<usize, Fate>,
}

impl Courses {
    /// Sets the courses of the next requests, one after another. Only a cut overrides them.
    pub(super) fn script(&mut self, courses: impl IntoIterator<Item = Fate>) {
        self.script.extend(courses);
    }

    /// Sets the course of all other requests.
    pub(super) fn usual(&mut self, course: Fate) {
        (self.usual, self.odds) = (course, None);
    }

    /// Draws the course of each other request at random, by `seed`.
    pub(super) fn odds(&mut self, odds: FaultRates, seed: u64) {
        self.odds = Some((odds, Rng::with_seed(seed)));
    }

    /// Sets or ends the course of all requests for a part.
    pub(super) fn cut(&mut self, backend: usize, course: Option<Fate>) {
        match course {
            Some(course) => self.cut.insert(backend, course),
            None => self.cut.remove(&backend),
        };
    }

    /// Returns the course of the next request, which is for this part.
    pub(super) fn next(&mut self, backend: usize) -> Fate {
        if let Some(course) = self.cut.get(&backend) {
            return *course;
        }
        if let Some(course) = self.script.pop_front() {
            return course;
        }
        match &mut self.odds {
            Some((odds, random)) => odds.pick(random),
            None => self.usual,
        }
    }
}

impl FaultRates {
    fn pick(&self, random: &mut Rng) -> Fate {
        let mut left = random.u64(..1_000);
        let mut happens = |often: u64| {
            let is_hit = left < often;
            left = left.saturating_sub(often);
            is_hit
        };
        let mut delay_ns = || random.u64(..=self.max_delay_ns);
        if happens(self.slow) {
            Fate::Slow { there_ns: delay_ns(), back_ns: delay_ns() }
        } else if happens(self.lost_there) {
            Fate::RequestLost
        } else if happens(self.lost_back) {
            Fate::ReplyLost
        } else if happens(self.doubled) {
            Fate::Doubled { again_ns: delay_ns() }
        } else if happens(self.unreachable) {
            Fate::Unreachable
        } else if happens(self.unable) {
            Fate::Unable
        } else {
            Fate::Prompt
        }
    }
}
