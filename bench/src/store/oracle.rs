//! The judge of all grants: the number of permits by which they exceed a bucket, in the worst
//! window. All numbers are whole.
//!
//! A grant has two readings of the clock that all processes share: one before the call, one after
//! the caller had the grant. The decision, and what a caller does with it at once, lies somewhere
//! between them. Its exact instant is unknown, because the machine may stop a process there.
//!
//! So there are three judgements. Two take one of the readings as the instant of all grants, and
//! may blame a limiter for a pause of the machine. The third counts in a window only grants with
//! both readings in it: the limit was exceeded by at least so much.

/// The readings of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) before_ns: u64,
    pub(crate) after_ns: u64,
}

/// A bound of `burst` and what is earned at the rate, in any window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) burst: u64,
    pub(crate) per_s: u64,
}

/// The number of permits over the limit, by each judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    pub(crate) certain: u64,
    pub(crate) by_before: u64,
    pub(crate) by_after: u64,
}

const NS_PER_S: i128 = 1_000_000_000;

impl Bucket {
    pub(crate) fn judge(self, grants: &[Grant]) -> Excess {
        Excess {
            certain: self.certain(grants),
            by_before: self.by_instants(grants.iter().map(|grant| grant.before_ns)),
            by_after: self.by_instants(grants.iter().map(|grant| grant.after_ns)),
        }
    }

    /// Judges as if each grant was made exactly at its instant.
    fn by_instants(self, instants: impl Iterator<Item = u64>) -> u64 {
        let mut instants: Vec<u64> = instants.collect();
        instants.sort_unstable();
        let (mut min, mut max, mut count) = (i128::MAX, 0, 0);
        // The excess of a window is the excess at its end less that at its beginning.
        for at_ns in instants {
            let flowed = i128::from(self.per_s) * i128::from(at_ns);
            min = min.min(count - flowed);
            count += NS_PER_S;
            max = max.max(count - flowed - min);
        }
        self.beyond_burst(max)
    }

    /// Judges each window by the grants with both readings within it.
    fn certain(self, grants: &[Grant]) -> u64 {
        let mut by_end = grants.to_vec();
        by_end.sort_unstable_by_key(|grant| grant.after_ns);
        let mut starts: Vec<u64> = grants.iter().map(|grant| grant.before_ns).collect();
        starts.sort_unstable();
        starts.dedup();
        let per_s = i128::from(self.per_s);
        // For each window from there: its grants, less what was earned before it.
        let mut windows = Windows::new(starts.iter().map(|&at_ns| per_s * i128::from(at_ns)));
        let mut max = 0;
        for Grant { before_ns, after_ns } in by_end {
            windows.add(starts.partition_point(|&at_ns| at_ns <= before_ns), NS_PER_S);
            let until = starts.partition_point(|&at_ns| at_ns <= after_ns);
            max = max.max(windows.max(until) - per_s * i128::from(after_ns));
        }
        self.beyond_burst(max)
    }

    /// Returns the permits beyond the burst, rounded up.
    fn beyond_burst(self, permits_ns: i128) -> u64 {
        let over = permits_ns - i128::from(self.burst) * NS_PER_S;
        u64::try_from((over + NS_PER_S - 1).div_euclid(NS_PER_S)).unwrap_or(0)
    }
}

/// A list of numbers. Adding to a prefix, and finding the maximum of a prefix, take the logarithm
/// of its length.
struct Windows {
    len: usize,
    /// The maximum below each node of a tree, including what was added to the node, but not what
    /// was added above it.
    max: Vec<i128>,
    added: Vec<i128>,
}

impl Windows {
    fn new(numbers: impl ExactSizeIterator<Item = i128>) -> Self {
        let len = numbers.len().next_power_of_two();
        // For windows that do not exist: far below all reachable numbers, and no sum overflows.
        let mut max = vec![i128::MIN / 4; 2 * len];
        for (knot, number) in max.iter_mut().skip(len).zip(numbers) {
            *knot = number;
        }
        for knot in (1..len).rev() {
            max[knot] = max[2 * knot].max(max[2 * knot + 1]);
        }
        Self { len, max, added: vec![0; 2 * len] }
    }

    /// Adds `number` to the first `count` numbers.
    fn add(&mut self, count: usize, number: i128) {
        self.add_below(1, self.len, count, number);
    }

    fn add_below(&mut self, knot: usize, width: usize, count: usize, number: i128) {
        if count == 0 {
            return;
        }
        if count >= width {
            self.max[knot] += number;
            self.added[knot] += number;
            return;
        }
        let half = width / 2;
        self.add_below(2 * knot, half, count.min(half), number);
        self.add_below(2 * knot + 1, half, count.saturating_sub(half), number);
        self.max[knot] = self.max[2 * knot].max(self.max[2 * knot + 1]) + self.added[knot];
    }

    /// Returns the maximum of the first `count` numbers.
    fn max(&self, count: usize) -> i128 {
        self.max_below(1, self.len, count)
    }

    fn max_below(&self, knot: usize, width: usize, count: usize) -> i128 {
        if count == 0 {
            return i128::MIN / 4;
        }
        if count >= width {
            return self.max[knot];
        }
        let half = width / 2;
        let first = self.max_below(2 * knot, half, count.min(half));
        let second = self.max_below(2 * knot + 1, half, count.saturating_sub(half));
        first.max(second) + self.added[knot]
    }
}

#[cfg(test)]
mod tests {
    use super::{Bucket, Excess, Grant};

    fn at(before_ns: u64, after_ns: u64) -> Grant {
        Grant { before_ns, after_ns }
    }

    #[test]
    fn nothing_is_within_any_limit() {
        let none = Excess { certain: 0, by_before: 0, by_after: 0 };
        assert_eq!(Bucket { burst: 1, per_s: 1 }.judge(&[]), none);
    }

    #[test]
    fn a_pause_before_the_second_reading_is_not_counted() {
        // One at once, and one each millisecond.
        let bucket = Bucket { burst: 1, per_s: 1_000 };
        let (late, next) = (at(0, 1_000_000), at(1_000_000, 1_000_001));
        let blamed = Excess { certain: 0, by_before: 0, by_after: 1 };
        assert_eq!(bucket.judge(&[late, next]), blamed);
        let caught = at(999_999, 999_999);
        let Excess { certain, by_after, .. } = bucket.judge(&[at(0, 0), caught]);
        assert_eq!((certain, by_after), (1, 1));
    }

    /// Counts every window between any two readings.
    fn counted(bucket: Bucket, grants: &[Grant]) -> u64 {
        let windows = grants.iter().flat_map(|from| grants.iter().map(move |to| (from, to)));
        let over = windows.map(|(from, to)| {
            let (from, to) = (from.before_ns, to.after_ns);
            let within = |grant: &&Grant| grant.before_ns >= from && grant.after_ns <= to;
            let count = grants.iter().filter(within).count() as u64;
            let flowed = bucket.per_s * to.saturating_sub(from) / 1_000_000_000;
            count.saturating_sub(bucket.burst + flowed)
        });
        over.max().unwrap_or(0)
    }

    #[test]
    fn it_finds_the_fullest_window() {
        let (mut seed, mut found) = (1_u64, 0);
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let grants: Vec<Grant> = (0..=random(40))
                .map(|_| {
                    let before_ns = random(50_000_000);
                    at(before_ns, before_ns + random(10) * random(1_000_000))
                })
                .collect();
            let bucket = Bucket { burst: 1 + random(5), per_s: 100 + random(400) };
            let certain = bucket.judge(&grants).certain;
            assert_eq!(certain, counted(bucket, &grants));
            let points: Vec<Grant> =
                grants.iter().map(|grant| at(grant.after_ns, grant.after_ns)).collect();
            assert_eq!(bucket.judge(&grants).by_after, counted(bucket, &points));
            assert_eq!(bucket.judge(&points).certain, counted(bucket, &points));
            found += u64::from(certain > 0);
        }
        assert!((50..300).contains(&found), "{found}");
    }
}
