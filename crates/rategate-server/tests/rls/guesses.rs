//! A connection that a proxy's clients share: some have the token, and others guess it.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rategate_server::net::{
    Access, Attempts, Drainer, Guesses, Peer, Protocol, RefusalReason, Tally,
};
use rategate_server::protocol::grpc::{Health, Rls, Settings};

use crate::rls::abuse::{PATH, PREFACE, Raw, contains_text, frame, head, right_message};
use crate::rls::common::{engine, rules};

const GRPC: (&str, &str) = ("content-type", "application/grpc");

/// Encodes a call that shows a token, without its message.
fn begun(stream: u32, token: &str) -> Vec<u8> {
    let token = format!("Bearer {token}");
    frame(1, 4, stream, &head(PATH, &[GRPC, ("authorization", &token)]))
}

fn message_frame(stream: u32) -> Vec<u8> {
    frame(0, 1, stream, &right_message())
}

/// Connects to a service that requires the token `s3cret`, after its greeting.
fn connection() -> Raw {
    counted(Arc::new(()))
}

/// Connects to a service that counts refusals in `tally`.
fn counted(tally: Arc<dyn Tally>) -> Raw {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (stream, from) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::from_std(stream).unwrap();
            let access = Access::token(b"s3cret");
            let health = Health::new(true);
            let rls = Rls::new(engine(rules()).0, access, health, Settings::default());
            let attempts = Attempts::new(tally, Some(from), Guesses::default());
            let peer = Peer { address: Some(from), identity: None, token_required: true, attempts };
            let drainer = Drainer::new();
            rls.serve(stream, peer, drainer.drain()).await;
        });
    });
    let stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut raw = Raw(stream);
    raw.send(&[PREFACE, &frame(4, 0, 0, &[])].concat());
    raw
}

/// Calls of other clients, begun before and after, are answered at once; the guesses wait, one at
/// a time. With the tenth the connection ends in order.
#[test]
fn guesses_slow_and_end_no_call_of_others() {
    let mut raw = connection();
    let started = Instant::now();
    raw.send(&[begun(1, "s3cret"), begun(3, "s3cret"), message_frame(3)].concat());
    assert_eq!(raw.answer(3).len(), 3);
    for nth in 0..10 {
        raw.send(&[begun(5 + 2 * nth, "x"), message_frame(5 + 2 * nth)].concat());
    }
    // The first three are answered at once.
    assert!([5, 7, 9].iter().all(|&stream| contains_text(&raw.answer(stream), "16")));
    raw.send(&message_frame(1));
    assert_eq!(raw.answer(1).len(), 3, "it was on its way");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    // No call shows the right token meanwhile, so there is one guess too many.
    assert!(contains_text(&raw.answer(23), "16"));
    assert!(started.elapsed() > Duration::from_millis(6_300), "{:?}", started.elapsed());
    assert_eq!(raw.goaway(), Some(0), "in order");
    assert!(raw.next().is_none());
}

/// A call with the token in between resets the count, and is not refused with the guesses.
#[test]
fn the_token_sets_the_count_back() {
    let mut raw = connection();
    raw.send(&[begun(1, "s3cret"), message_frame(1)].concat());
    for round in 0..5 {
        let first = 3 + round * 20;
        for nth in 0..9 {
            raw.send(&begun(first + 2 * nth, "x"));
        }
        let (last, sent_at) = (first + 18, Instant::now());
        raw.send(&[begun(last, "s3cret"), message_frame(last)].concat());
        assert_eq!(raw.answer(last).len(), 3);
        assert!(sent_at.elapsed() < Duration::from_secs(1), "{:?}", sent_at.elapsed());
    }
}

/// A waiting call keeps its later frames, whatever its token is, and continues with them.
#[test]
fn a_call_that_waits_is_answered_later() {
    let mut raw = connection();
    (0..4).for_each(|nth| raw.send(&begun(1 + 2 * nth, "x")));
    let started = Instant::now();
    let message = right_message();
    raw.send(&begun(9, "s3cret"));
    raw.send(&[frame(0, 0, 9, &message[..4]), frame(0, 1, 9, &message[4..])].concat());
    raw.send(&begun(11, "s3cret"));
    let answer = raw.answer(9);
    assert!(answer.iter().any(|frame| frame.0 == 0), "{answer:?}");
    assert!(started.elapsed() > Duration::from_millis(150), "{:?}", started.elapsed());
    // The message of another call arrives after the wait.
    raw.send(&message_frame(11));
    assert_eq!(raw.answer(11).len(), 3);
}

/// The reasons of refused calls.
#[derive(Default)]
struct Reasons(Mutex<Vec<RefusalReason>>);

impl Tally for Reasons {
    fn call_refused(&self, reason: RefusalReason, _: Option<SocketAddr>) {
        self.0.lock().unwrap().push(reason);
    }
}

#[test]
fn a_call_that_ends_late_is_counted() {
    let reasons = Arc::new(Reasons::default());
    let mut raw = counted(Arc::<Reasons>::clone(&reasons));
    let fields = [GRPC, ("authorization", "Bearer s3cret"), ("grpc-timeout", "20m")];
    raw.send(&frame(1, 4, 1, &head(PATH, &fields)));
    assert!(contains_text(&raw.answer(1), "the deadline has passed"));
    assert_eq!(*reasons.0.lock().unwrap(), [RefusalReason::Late]);
}

/// A guess whose call is cancelled counts as one.
#[test]
fn a_call_that_is_given_up_while_it_waits_is_counted() {
    let reasons = Arc::new(Reasons::default());
    let mut raw = counted(Arc::<Reasons>::clone(&reasons));
    (0..5).for_each(|nth| raw.send(&begun(1 + 2 * nth, "x")));
    raw.send(&[frame(3, 0, 7, &[0; 4]), frame(3, 0, 9, &[0; 4]), frame(6, 0, 0, &[0; 8])].concat());
    while raw.next().unwrap().0 != 6 {}
    assert_eq!(*reasons.0.lock().unwrap(), [RefusalReason::InvalidToken; 5]);
}
