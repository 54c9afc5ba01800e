//! Agreement of several limits: the first instant at which all of them let the same call start.

use core::num::NonZeroU64;

use crate::verdict::{Opening, Refusal};

/// One of several limits that must agree on a start.
pub(crate) trait Member {
    /// Returns when `permits` could start from `from_ns` on, for a request at `now_ns`.
    fn opening_from(
        &self,
        now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal>;
}

/// Returns when `permits` could start in all of `limits` from `from_ns` on, for a request at
/// `now_ns`.
pub(crate) fn opening<M: Member>(
    limits: &[M],
    now_ns: u64,
    from_ns: u64,
    permits: NonZeroU64,
) -> Result<Opening, Refusal> {
    if let [only] = limits {
        return only.opening_from(now_ns, from_ns, permits);
    }
    let starts = agree(limits, now_ns, from_ns, permits, |opening| opening.start_ns)?;
    let scheduled_ns = starts.scheduled_ns;
    let opens_ns = if starts.opens_alike {
        starts.at_ns
    } else {
        agree(limits, now_ns, from_ns, permits, |opening| opening.opens_ns)?.at_ns
    };
    Ok(Opening { start_ns: starts.at_ns, opens_ns, scheduled_ns })
}

/// An instant that all limits accept.
struct Agreed {
    at_ns: u64,
    scheduled_ns: Option<u64>,
    /// Set if every limit opens for a try no sooner than for a reservation.
    opens_alike: bool,
}

/// Returns the first instant from `from_ns` on that `instant_of` gives for every limit alike, or
/// the worst refusal.
fn agree<M: Member>(
    limits: &[M],
    now_ns: u64,
    from_ns: u64,
    permits: NonZeroU64,
    instant_of: impl Fn(&Opening) -> u64,
) -> Result<Agreed, Refusal> {
    let mut agreed = Agreed { at_ns: from_ns, scheduled_ns: None, opens_alike: true };
    loop {
        let mut latest_ns = agreed.at_ns;
        let mut worst: Option<Refusal> = None;
        for limit in limits {
            match limit.opening_from(now_ns, agreed.at_ns, permits) {
                Ok(opening) => {
                    latest_ns = latest_ns.max(instant_of(&opening));
                    agreed.scheduled_ns = agreed.scheduled_ns.max(opening.scheduled_ns);
                    agreed.opens_alike &= opening.opens_ns == opening.start_ns;
                }
                Err(refusal) => {
                    let refusal = refusal.seen_from(agreed.at_ns.saturating_sub(from_ns));
                    if worst.is_none_or(|worst| severity(refusal) > severity(worst)) {
                        worst = Some(refusal);
                    }
                }
            }
        }
        match worst {
            Some(refusal) => return Err(refusal),
            None if latest_ns == agreed.at_ns => return Ok(agreed),
            None => agreed.at_ns = latest_ns,
        }
    }
}

/// Orders refusals by severity: never possible, then time cannot help, then held, then the longest
/// wait.
const fn severity(refusal: Refusal) -> (u8, u64) {
    match refusal {
        Refusal::Exceeds(_) => (3, 0),
        Refusal::TimeCannotHelp => (2, 0),
        Refusal::Held => (1, 0),
        Refusal::BeyondClock { wait_ns } => (0, wait_ns),
    }
}
