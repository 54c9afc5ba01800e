//! What a grant leaves, in the form in which the state that granted it knows it.

use crate::refund::{RefundBasis, RefundEpoch};
use crate::verdict::{STARTED, Ticket};

/// Permits left behind by a grant, with the refund epoch at that time.
///
/// They are not counted until a caller needs them, because the division would cost as much as the
/// decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftover {
    left: Amount,
    epoch: RefundEpoch,
}

/// The leftover permits in the form in which the lock-free state knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Parts {
        parts: u64,
        parts_per_permit: u64,
    },
    /// Beside the permits left, those in flight where the limit counts them.
    Permits {
        permits: u64,
        busy_until_ns: u64,
        in_flight: u32,
        fills_share: bool,
    },
}

impl Leftover {
    /// Returns a leftover of `permits` whole permits.
    #[must_use]
    pub const fn of(permits: u64) -> Self {
        Self::in_parts(permits, 1)
    }

    pub(crate) const fn in_parts(parts: u64, parts_per_permit: u64) -> Self {
        Self { left: Amount::Parts { parts, parts_per_permit }, epoch: RefundEpoch::UNKNOWN }
    }

    /// Returns a leftover of `permits` behind a grant that keeps its limit busy.
    ///
    /// Without that grant, the limit could not have been at rest before `busy_until_ns`.
    #[must_use]
    pub const fn booked(permits: u64, busy_until_ns: u64) -> Self {
        let left = Amount::Permits { permits, busy_until_ns, in_flight: 0, fills_share: false };
        Self { left, epoch: RefundEpoch::UNKNOWN }
    }

    /// Returns what a grant has left of `permits`, as its ticket says.
    #[must_use]
    pub const fn of_ticket(permits: u64, ticket: &Ticket) -> Self {
        let busy_until_ns = ticket.busy_until_ns();
        let (in_flight, fills_share) = (ticket.in_flight, ticket.fills_share);
        let left = Amount::Permits { permits, busy_until_ns, in_flight, fills_share };
        Self { left, epoch: ticket.epoch }
    }

    /// Returns this leftover with the refund epoch `epoch`.
    #[must_use]
    pub const fn with_epoch(self, epoch: RefundEpoch) -> Self {
        Self { epoch, ..self }
    }

    /// Returns the refund epoch at the time of the grant.
    #[must_use]
    pub const fn epoch(self) -> RefundEpoch {
        self.epoch
    }

    /// Returns the ticket of a grant that started at `start_ns` and left these permits.
    #[must_use]
    pub const fn ticket(self, start_ns: u64) -> Ticket {
        let (rest, in_flight, fills_share) = match self.left {
            Amount::Parts { parts, parts_per_permit } => {
                (RefundBasis::Leftover { parts, parts_per_permit }, 0, false)
            }
            Amount::Permits { busy_until_ns, in_flight, fills_share, .. } => {
                (RefundBasis::BusyUntil(busy_until_ns), in_flight, fills_share)
            }
        };
        Ticket { start_ns, serial: STARTED, rest, epoch: self.epoch, in_flight, fills_share }
    }

    /// Returns the leftover as words, for a grant that leaves Rust and comes back.
    #[must_use]
    pub const fn words(self) -> [u64; 4] {
        let epoch = self.epoch.bits();
        match self.left {
            Amount::Parts { parts, parts_per_permit } => [parts, parts_per_permit, 0, epoch],
            Amount::Permits { permits, busy_until_ns, in_flight, fills_share } => {
                let [a, b, c, d] = in_flight.to_le_bytes();
                let fills_share = if fills_share { 1 } else { 0 };
                let flags = u64::from_le_bytes([a, b, c, d, fills_share, 1, 0, 0]);
                [permits, busy_until_ns, flags, epoch]
            }
        }
    }

    /// Returns the leftover of these [words](Self::words). Any words are one.
    #[must_use]
    pub const fn from_words([first, second, flags, epoch]: [u64; 4]) -> Self {
        let epoch = RefundEpoch::from_bits(epoch);
        let [a, b, c, d, fills_share, is_permits, ..] = flags.to_le_bytes();
        let left = if is_permits == 0 {
            Amount::Parts { parts: first, parts_per_permit: second }
        } else {
            let in_flight = u32::from_le_bytes([a, b, c, d]);
            let fills_share = fills_share != 0;
            Amount::Permits { permits: first, busy_until_ns: second, in_flight, fills_share }
        };
        Self { left, epoch }
    }

    /// Returns `true` if fewer than `permits` whole permits are left. Costs no division.
    #[must_use]
    pub const fn is_below(self, permits: u64) -> bool {
        match self.left {
            Amount::Permits { permits: left, .. } => left < permits,
            Amount::Parts { parts_per_permit: 0, .. } => 0 < permits,
            Amount::Parts { parts, parts_per_permit } => {
                match permits.checked_mul(parts_per_permit) {
                    Some(needed) => parts < needed,
                    None => true,
                }
            }
        }
    }

    /// Returns the number of whole permits left.
    #[must_use]
    pub const fn permits(self) -> u64 {
        match self.left {
            Amount::Permits { permits, .. } => permits,
            Amount::Parts { parts, parts_per_permit } => {
                match parts.checked_div(parts_per_permit) {
                    Some(permits) => permits,
                    None => 0,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `is_below` agrees with the division without performing it.
    #[test]
    fn below_is_what_the_division_says() {
        let numbers = [0, 1, 2, 3, 6, 7, 8, 1 << 32, u64::MAX / 3, u64::MAX - 1, u64::MAX];
        for parts in numbers {
            for parts_per_permit in numbers {
                let leftover = Leftover::in_parts(parts, parts_per_permit);
                for permits in numbers {
                    let below = leftover.permits() < permits;
                    assert_eq!(leftover.is_below(permits), below, "{leftover:?} {permits}");
                    let booked = Leftover::booked(parts, parts_per_permit);
                    assert_eq!(booked.is_below(permits), parts < permits);
                }
            }
        }
    }

    #[test]
    fn words_are_the_leftover() {
        for number in [0, 1, 1 << 32, u64::MAX] {
            for (in_flight, fills_share) in [(0, false), (7, true), (u32::MAX, false)] {
                let epoch = RefundEpoch::from_bits(number);
                let ticket = Ticket { in_flight, fills_share, ..Ticket::booked(5, number, epoch) };
                let booked = Leftover::of_ticket(number, &ticket);
                let parts = Leftover::in_parts(number, 3).with_epoch(epoch);
                for leftover in [booked, parts] {
                    assert_eq!(Leftover::from_words(leftover.words()), leftover);
                }
            }
        }
    }
}
