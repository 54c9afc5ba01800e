//! HTTP/2 frames, counted as a connection's bytes are read.
//!
//! The HTTP/2 library acknowledges pings, settings and the like without a bound. Such frames are
//! therefore charged here to the same kind of budget that gRPC connections have.

use std::time::Instant;

use rategate_protocol::http2::{DATA, END_STREAM, HEAD, HEADERS, RST_STREAM};

use crate::protocol::budget::{Budget, Overspent, RESET};

/// The frames of a connection, after its preface.
#[derive(Debug)]
pub(super) struct Frames {
    /// The head of the next frame, as far as received.
    head: [u8; HEAD],
    have: usize,
    /// The number of payload bytes of the last frame that are still to come.
    payload: usize,
    budget: Budget,
}

impl Frames {
    pub(super) fn new(now: Instant) -> Self {
        Self { head: [0; HEAD], have: 0, payload: 0, budget: Budget::new(now) }
    }

    /// Follows bytes that were read, and charges the frames that begin in them.
    ///
    /// # Errors
    ///
    /// [`Overspent`] if the connection sends too many frames for the decisions it requests.
    pub(super) fn follow(&mut self, bytes: &[u8], now: Instant) -> Result<(), Overspent> {
        self.budget.wait(now);
        let mut rest = bytes;
        while !rest.is_empty() {
            let skipped = self.payload.min(rest.len());
            self.payload = self.payload.saturating_sub(skipped);
            rest = rest.get(skipped..).unwrap_or_default();
            let taken = rest.len().min(HEAD.saturating_sub(self.have));
            let (chunk, after) = rest.split_at_checked(taken).unwrap_or_default();
            let end = self.have.saturating_add(taken);
            if let Some(target) = self.head.get_mut(self.have..end) {
                target.copy_from_slice(chunk);
            }
            (self.have, rest) = (end, after);
            if self.have == HEAD {
                self.begin()?;
            }
        }
        Ok(())
    }

    /// Records that `bytes` bytes were written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.budget.wrote(bytes);
    }

    /// Charges the frame whose head is complete.
    fn begin(&mut self) -> Result<(), Overspent> {
        let [a, b, c, kind, flags, ..] = self.head;
        self.payload = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
        self.have = 0;
        match kind {
            HEADERS => {
                self.budget.earn();
                Ok(())
            }
            DATA if self.payload > 0 || flags & END_STREAM > 0 => Ok(()),
            RST_STREAM => self.budget.spend(RESET),
            _ => self.budget.spend(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Returns how many of these frames pass, with the bytes read in pieces of `cut`.
    fn let_through(frames: &[Vec<u8>], cut: usize) -> usize {
        let now = Instant::now();
        let mut followed = Frames::new(now);
        let all =
            |frame: &Vec<u8>| frame.chunks(cut).all(|chunk| followed.follow(chunk, now).is_ok());
        frames.iter().map(all).take_while(|is_through| *is_through).count()
    }

    #[test]
    fn what_asks_for_nothing_comes_to_an_end() {
        let settings = frame(4, 0, &[0, 3, 0, 0, 0, 9]);
        let (ping, priority) = (frame(6, 0, &[0; 8]), frame(2, 0, &[0; 5]));
        let empty = frame(0, 0, &[]);
        for flood in [settings, ping, priority, empty, frame(9, 0, &[1]), frame(99, 0, &[1; 70])] {
            let frames = vec![flood; 5_000];
            for cut in [1, 7, 1_000] {
                assert_eq!(let_through(&frames, cut), 1_024);
            }
        }
        assert_eq!(let_through(&vec![frame(3, 0, &[0; 4]); 200], 3), 1_024 / 12);
    }

    /// Sends one window update per kilobyte of a long reply for its stream, and one for the
    /// connection.
    #[test]
    fn answers_pay_for_the_windows_that_they_need() {
        let now = Instant::now();
        let mut followed = Frames::new(now);
        let windows = frame(8, 0, &[0; 4]).repeat(2);
        for _ in 0..10_000 {
            followed.wrote(1_024 + HEAD);
            assert!(followed.follow(&windows, now).is_ok());
        }
        // Replies to pings and settings earn the budget for few of them.
        for (flood, answer) in [(frame(6, 0, &[0; 8]), HEAD + 8), (frame(4, 0, &[]), HEAD)] {
            let mut followed = Frames::new(now);
            let mut through = 0;
            while followed.follow(&flood, now).is_ok() {
                followed.wrote(answer);
                through += 1;
            }
            assert!(through < 1_300, "{through}");
        }
    }

    #[test]
    fn requests_pay_for_what_comes_with_them() {
        let request = [frame(1, 4, &[0; 40]), frame(0, 1, b"{}")].concat();
        let window = frame(8, 0, &[0; 4]);
        let call = [request, window.repeat(4), frame(6, 0, &[0; 8])].concat();
        for cut in [1, 5, 64] {
            assert_eq!(let_through(&vec![call.clone(); 3_000], cut), 3_000);
        }
        // Bodies cost nothing, whatever their bytes are.
        assert_eq!(let_through(&vec![frame(0, 0, &[6; 300]); 3_000], 100), 3_000);
    }
}
