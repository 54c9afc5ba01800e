//! Which key is asked for next, and when there is no next one.

/// The digits of a key.
pub(crate) const DIGITS: usize = 8;

/// Keys by number.
#[derive(Debug)]
pub(crate) struct Draw {
    order: Order,
    keys: u64,
    left: u64,
}

#[derive(Debug)]
enum Order {
    /// Uniformly; the state of a generator that is no more than fast.
    Drawn(u64),
    /// One after the other, and again.
    InTurn(u64),
}

impl Draw {
    /// Of so many keys, for as long as nobody ends it.
    pub(crate) fn uniform(keys: u64, seed: u64) -> Self {
        Self { order: Order::Drawn(seed | 1), keys, left: u64::MAX }
    }

    /// All of these keys, each so often.
    pub(crate) fn each(keys: u64, times: u64) -> Self {
        Self { order: Order::InTurn(0), keys, left: keys * times }
    }

    pub(crate) fn end(&mut self) {
        self.left = 0;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Its number, in digits.
    #[inline]
    pub(crate) fn key(&mut self) -> Option<[u8; DIGITS]> {
        self.left = self.left.checked_sub(1)?;
        let key = match &mut self.order {
            Order::Drawn(state) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                // The upper half, scaled: no division.
                ((*state >> 32) * self.keys) >> 32
            }
            Order::InTurn(next) => {
                let key = *next;
                *next = if key + 1 == self.keys { 0 } else { key + 1 };
                key
            }
        };
        Some(digits(key))
    }
}

#[inline]
fn digits(mut number: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    digits
}
