//! What a grant leaves, in the form in which the state that granted it knows it.

use crate::refund::RefundEpoch;
use crate::verdict::Ticket;

/// Permits left behind by a grant, and those in flight with it, where the limit counts them.
///
/// They are not counted until a caller needs them, because the division would cost as much as the
/// decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftover {
    parts: u64,
    parts_per_permit: u64,
    in_flight: u32,
    fills_share: bool,
}

impl Leftover {
    /// Returns a leftover of `permits` whole permits.
    #[must_use]
    pub const fn of(permits: u64) -> Self {
        Self::in_parts(permits, 1)
    }

    pub(crate) const fn in_parts(parts: u64, parts_per_permit: u64) -> Self {
        Self { parts, parts_per_permit, in_flight: 0, fills_share: false }
    }

    /// Returns what a grant has left of `permits`, as its ticket says.
    #[must_use]
    pub const fn of_ticket(permits: u64, ticket: &Ticket) -> Self {
        let (in_flight, fills_share) = (ticket.in_flight, ticket.fills_share);
        Self { in_flight, fills_share, ..Self::of(permits) }
    }

    /// Returns the ticket of a grant that started at `start_ns` and left these permits.
    #[must_use]
    pub const fn ticket(self, start_ns: u64) -> Ticket {
        let Self { in_flight, fills_share, .. } = self;
        Ticket { in_flight, fills_share, ..Ticket::booked(start_ns, 0, RefundEpoch::UNKNOWN) }
    }

    /// Returns the leftover as words, for a grant that leaves Rust and comes back.
    #[must_use]
    pub const fn words(self) -> [u64; 3] {
        let [a, b, c, d] = self.in_flight.to_le_bytes();
        let fills_share = if self.fills_share { 1 } else { 0 };
        let flight = u64::from_le_bytes([a, b, c, d, fills_share, 0, 0, 0]);
        [self.parts, self.parts_per_permit, flight]
    }

    /// Returns the leftover of these [words](Self::words). Any words are one.
    #[must_use]
    pub const fn from_words([parts, parts_per_permit, flight]: [u64; 3]) -> Self {
        let [a, b, c, d, fills_share, ..] = flight.to_le_bytes();
        let (in_flight, fills_share) = (u32::from_le_bytes([a, b, c, d]), fills_share != 0);
        Self { parts, parts_per_permit, in_flight, fills_share }
    }

    /// Returns `true` if fewer than `permits` whole permits are left. Costs no division.
    #[must_use]
    pub const fn is_below(self, permits: u64) -> bool {
        match permits.checked_mul(self.parts_per_permit) {
            Some(0) => 0 < permits,
            Some(needed) => self.parts < needed,
            None => true,
        }
    }

    /// Returns the number of whole permits left.
    #[must_use]
    pub const fn permits(self) -> u64 {
        match self.parts.checked_div(self.parts_per_permit) {
            Some(permits) => permits,
            None => 0,
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
                }
            }
        }
    }

    #[test]
    fn words_are_the_leftover() {
        for number in [0, 1, 1 << 32, u64::MAX] {
            for (in_flight, fills_share) in [(0, false), (7, true), (u32::MAX, false)] {
                let leftover = Leftover { in_flight, fills_share, ..Leftover::in_parts(number, 3) };
                assert_eq!(Leftover::from_words(leftover.words()), leftover);
            }
        }
    }
}
