//! Bytes under a limit, and estimates of them, as threads see them.

use std::error::Error;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::time::Duration;

use rategate::adapter::AdapterError;
use rategate::adapter::ByteLimited;
use rategate::charge::{Charged, Committed, Debt, Settled};
use rategate::{AcquireError, Clock as _, Concurrency, Grant, Limiter, ManualClock, SlidingLog};
use rategate_testkit::ns;

const S: u64 = 1_000_000_000;

fn limited(permits: u64) -> (Limiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::with_clock(SlidingLog::new(permits, Duration::from_nanos(S)), clock.clone()), clock)
}

/// A stream that moves as many bytes as its script says, or fails.
#[derive(Debug)]
struct Scripted(Vec<io::Result<usize>>);

impl Scripted {
    fn step(&mut self, max_bytes: usize) -> io::Result<usize> {
        self.0.remove(0).map(|bytes| bytes.min(max_bytes))
    }
}

impl Read for Scripted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.step(buffer.len())
    }
}

impl Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.step(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Permits of bytes that did not move are refunded: after a short read, a short write, an error,
/// and at the end.
#[test]
fn only_bytes_that_moved_are_paid_for() {
    let (limiter, _) = limited(100);
    let interrupted = || io::Error::from(io::ErrorKind::Interrupted);
    let blocked = || io::Error::from(io::ErrorKind::WouldBlock);
    let script = Scripted(vec![Ok(3), Err(interrupted()), Err(blocked()), Ok(7), Ok(0)]);
    let mut stream = ByteLimited::new(script, &limiter);
    let mut buffer = [0; 60];
    assert_eq!(stream.read(&mut buffer).unwrap(), 3);
    assert_eq!(limiter.remaining(), Ok(97));
    assert_eq!(stream.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::Interrupted);
    assert_eq!(stream.write(&buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(limiter.remaining(), Ok(97));
    assert_eq!(stream.write(&buffer).unwrap(), 7);
    assert_eq!(limiter.remaining(), Ok(90));
    assert_eq!(stream.read(&mut buffer).unwrap(), 0, "the end");
    assert_eq!(limiter.remaining(), Ok(90));
}

/// A buffer larger than the burst goes through in chunks, and every byte arrives.
#[test]
fn chunks_are_bounded_by_what_can_pass_at_once() {
    let (limiter, clock) = limited(100);
    let text: Vec<u8> = (0..950_u32).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
    let mut slow = ByteLimited::new(&text[..], &limiter);
    let (mut seen, mut large) = (Vec::new(), [0; 200]);
    assert_eq!(slow.read(&mut large).unwrap(), 7, "a sixteenth of what can pass");
    seen.extend_from_slice(&large[..7]);
    let mut slow = slow.with_chunk(NonZeroU64::new(5).unwrap());
    slow.read_to_end(&mut seen).unwrap();
    assert_eq!((seen == text, clock.now_ns() / S), (true, 9), "and {} ns", clock.now_ns());

    let (limiter, clock) = limited(100);
    let mut slow = ByteLimited::new(Vec::new(), &limiter).with_chunk(NonZeroU64::new(10).unwrap());
    slow.write_all(&text).unwrap();
    assert_eq!((slow.into_inner() == text, clock.now_ns() / S), (true, 9));
}

/// A closed limiter is an error with its source, and no byte moves.
#[test]
fn a_closed_limiter_moves_nothing() {
    let (limiter, _) = limited(100);
    limiter.close();
    let mut stream = ByteLimited::new(Scripted(Vec::new()), &limiter);
    let error = stream.read(&mut [0; 5]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<AdapterError>()).unwrap();
    assert_eq!(reason.reason(), AcquireError::Closed);
    assert!(reason.source().unwrap().is::<AcquireError>());
}

/// A stream that panics after it may have moved bytes.
struct Panics;

impl Write for Panics {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        panic!("after it has moved some")
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a chunk counts in flight ends with its call, and once: to release it again would end others.
/// A call that panics counts as moved.
#[test]
fn a_chunk_ends_with_its_call() {
    let limiter = Limiter::with_clock(Concurrency::new(4), ManualClock::new());
    let mut sent = ByteLimited::new(Vec::new(), &limiter);
    sent.write_all(&[7; 3]).unwrap();
    assert_eq!((sent.get_ref().len(), limiter.remaining()), (3, Ok(4)));

    let (limiter, _) = limited(10);
    let mut sent = ByteLimited::new(Panics, &limiter);
    let call = std::panic::AssertUnwindSafe(|| sent.write(&[7; 6]));
    assert!(std::panic::catch_unwind(call).is_err());
    assert_eq!(limiter.remaining(), Ok(4));
}

/// Another language keeps a grant as words, which are documented.
#[test]
fn a_grant_is_its_words() {
    let clock = ManualClock::with_sleep(|requested| requested + Duration::from_nanos(5));
    let log = SlidingLog::new(2, Duration::from_secs(1));
    let limiter = Limiter::with_clock(log, clock);
    let grants = [(); 3].map(|()| limiter.acquire(2).unwrap());
    for grant in grants {
        let instants = [grant.released_at(), grant.promised_at(), grant.scheduled_at()].map(ns);
        assert_eq!(grant.words()[..], [&instants[..], &[2]].concat());
        assert_eq!(Grant::from_words(grant.words()), grant);
    }
}

/// S4.17: a page turns out larger than its estimate, and the next call waits for the debt.
#[test]
fn a_debt_is_waited_for_by_the_next() {
    for debt in [Debt::FORGOTTEN, Debt::CARRIED] {
        let (limiter, clock) = limited(100);
        let limiter = limiter.with_debt(debt);
        let page = limiter.hold(40, Duration::MAX).unwrap();
        let owed = Settled::Owed { permits: 110, forgiven: 0 };
        assert_eq!(page.commit(150), Ok(Committed::InTime(owed)));
        assert_eq!(clock.now_ns(), 0, "a commit does not wait");
        let next = limiter.hold(50, Duration::MAX).unwrap();
        assert_eq!(clock.now_ns(), S);
        assert_eq!(next.commit(20), Ok(Committed::InTime(Settled::Back { permits: 30 })));
        let Charged { booked, forgiven, .. } = limiter.charge(u64::MAX).unwrap();
        assert_eq!(booked + forgiven, u64::MAX);
        assert!(forgiven > 0, "a log counts no more than it can");
    }
}
