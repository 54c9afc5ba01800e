//! The judge of all grants: by how many permits they are over a bucket, in whichever window that is most. Whole
//! numbers throughout.
//!
//! A grant has two readings of the clock that all processes share: one from before the call, one from when the grant was
//! in hand. The decision, and what a caller does with it at once, is somewhere in between; where, nobody can say,
//! because the machine may stop a process there. So there are three judgements. Two take one of the readings for the
//! instant of all grants, and may blame a limiter for a pause of the machine. The third counts in a window what has
//! both readings in it: by so much the limit was exceeded in any case.

/// Readings of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) before_ns: u64,
    pub(crate) after_ns: u64,
}

/// At most `burst` and what flows in, in any window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) burst: u64,
    pub(crate) per_s: u64,
}

/// Permits over the limit.
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

    /// As if each was exactly then.
    fn by_instants(self, instants: impl Iterator<Item = u64>) -> u64 {
        let mut instants: Vec<u64> = instants.collect();
        instants.sort_unstable();
        let (mut least, mut most, mut count) = (i128::MAX, 0, 0);
        // What is over in a window is what is over at its end less what was over at its beginning.
        for at_ns in instants {
            let flowed = i128::from(self.per_s) * i128::from(at_ns);
            least = least.min(count - flowed);
            count += NS_PER_S;
            most = most.max(count - flowed - least);
        }
        self.beyond_burst(most)
    }

    /// What both readings are within the window of.
    fn certain(self, grants: &[Grant]) -> u64 {
        let mut by_end = grants.to_vec();
        by_end.sort_unstable_by_key(|grant| grant.after_ns);
        let mut starts: Vec<u64> = grants.iter().map(|grant| grant.before_ns).collect();
        starts.sort_unstable();
        starts.dedup();
        let per_s = i128::from(self.per_s);
        // For each window from there: its grants, less what flowed in before it.
        let mut windows = Windows::new(starts.iter().map(|&at_ns| per_s * i128::from(at_ns)));
        let mut most = 0;
        for Grant { before_ns, after_ns } in by_end {
            windows.add(starts.partition_point(|&at_ns| at_ns <= before_ns), NS_PER_S);
            let until = starts.partition_point(|&at_ns| at_ns <= after_ns);
            most = most.max(windows.most(until) - per_s * i128::from(after_ns));
        }
        self.beyond_burst(most)
    }

    /// Whole permits, a part of one counted as one.
    fn beyond_burst(self, permits_ns: i128) -> u64 {
        let over = permits_ns - i128::from(self.burst) * NS_PER_S;
        u64::try_from((over + NS_PER_S - 1).div_euclid(NS_PER_S)).unwrap_or(0)
    }
}

/// Numbers in a row, of which a first part is added to and the largest of a first part is asked for, in the
/// logarithm of how many there are.
struct Windows {
    len: usize,
    /// The largest below each knot of a tree, what was added to it included, what was added above it not.
    most: Vec<i128>,
    added: Vec<i128>,
}

impl Windows {
    fn new(numbers: impl ExactSizeIterator<Item = i128>) -> Self {
        let len = numbers.len().next_power_of_two();
        // Of no window: far below all that can be reached, and no sum of it overflows.
        let mut most = vec![i128::MIN / 4; 2 * len];
        for (knot, number) in most.iter_mut().skip(len).zip(numbers) {
            *knot = number;
        }
        for knot in (1..len).rev() {
            most[knot] = most[2 * knot].max(most[2 * knot + 1]);
        }
        Self { len, most, added: vec![0; 2 * len] }
    }

    /// Adds to the first `count`.
    fn add(&mut self, count: usize, number: i128) {
        self.add_below(1, self.len, count, number);
    }

    fn add_below(&mut self, knot: usize, width: usize, count: usize, number: i128) {
        if count == 0 {
            return;
        }
        if count >= width {
            self.most[knot] += number;
            self.added[knot] += number;
            return;
        }
        let half = width / 2;
        self.add_below(2 * knot, half, count.min(half), number);
        self.add_below(2 * knot + 1, half, count.saturating_sub(half), number);
        self.most[knot] = self.most[2 * knot].max(self.most[2 * knot + 1]) + self.added[knot];
    }

    /// The largest of the first `count`.
    fn most(&self, count: usize) -> i128 {
        self.most_below(1, self.len, count)
    }

    fn most_below(&self, knot: usize, width: usize, count: usize) -> i128 {
        if count == 0 {
            return i128::MIN / 4;
        }
        if count >= width {
            return self.most[knot];
        }
        let half = width / 2;
        let first = self.most_below(2 * knot, half, count.min(half));
        let second = self.most_below(2 * knot + 1, half, count.saturating_sub(half));
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
    fn a_pause_before_the_second_reading_is_nobodys_fault() {
        // 1 at once, and one a millisecond.
        let bucket = Bucket { burst: 1, per_s: 1_000 };
        let (late, next) = (at(0, 1_000_000), at(1_000_000, 1_000_001));
        let blamed = Excess { certain: 0, by_before: 0, by_after: 1 };
        assert_eq!(bucket.judge(&[late, next]), blamed);
        let caught = at(999_999, 999_999);
        let Excess { certain, by_after, .. } = bucket.judge(&[at(0, 0), caught]);
        assert_eq!((certain, by_after), (1, 1));
    }

    /// Every window between any two readings, counted.
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
