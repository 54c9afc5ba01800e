//! The waits between attempts to reach the control plane.

use std::time::Duration;

/// The waits after streams that ended: each is drawn from a range that doubles up to a maximum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first }
    }

    /// Returns the next wait. Services that lost one control plane do not come back together.
    pub(super) fn draw(&mut self) -> Duration {
        let doubled = self.next.saturating_mul(2).min(self.max);
        let wait = between(self.next, doubled);
        self.next = doubled;
        wait
    }

    /// Begins with the first wait again.
    pub(super) const fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Returns a wait around `usual`, from a half of it to one and a half.
pub(super) fn around(usual: Duration) -> Duration {
    let half = usual.div_f64(2.0);
    between(half, usual.saturating_add(half))
}

fn between(from: Duration, to: Duration) -> Duration {
    let ns = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(fastrand::u64(ns(from)..=ns(to.max(from))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_up_to_the_maximum_and_begin_anew() {
        let mut backoff = Backoff::new(10 * S, 60 * S);
        for _ in 0..200 {
            for (from, to) in [(10, 20), (20, 40), (40, 60), (60, 60), (60, 60)] {
                let wait = backoff.draw();
                assert!((from * S..=to * S).contains(&wait), "{wait:?} of {from} to {to}");
            }
            backoff.reset();
        }
        let drawn: std::collections::HashSet<_> = (0..20)
            .map(|_| {
                backoff.reset();
                backoff.draw()
            })
            .collect();
        assert!(drawn.len() > 10, "they are spread");
        // Bounds that leave no choice, and the greatest of all.
        assert_eq!(Backoff::new(S, S).draw(), S);
        assert!(Backoff::new(Duration::MAX, Duration::MAX).draw() >= S);
    }

    #[test]
    fn a_usual_wait_varies_by_a_half() {
        for _ in 0..1_000 {
            assert!((S..=3 * S).contains(&around(2 * S)));
        }
    }
}
