//! Behaviour of peers, frame by frame, without a socket.

use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::{Connection, Reason};
use crate::engine::{Decided, EngineError, Request};
use crate::net::{Access, Attempts};
use crate::protocol::grpc::{Health, Rls, Settings};
use crate::protocol::rls::Decide;

struct NoEngine;

impl Decide for NoEngine {
    fn decide(&self, _: &Request<'_>) -> Decided {
        Decided::Now(Err(EngineError::NotLoaded))
    }
}

const TEXT: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00";
const CONFIRMED: &[u8] = b"\x00\x00\x00\x04\x01\x00\x00\x00\x00";
const PING: &[u8] = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";

fn connection(now: Instant) -> Connection<NoEngine> {
    let rls = Rls::new(NoEngine, Access::default(), Health::new(true), Settings::default());
    Connection::new(rls, false, Attempts::default(), now, &mut BytesMut::new())
}

fn receive(connection: &mut Connection<NoEngine>, bytes: &[u8]) -> Result<usize, Reason> {
    connection.receive(&mut bytes.into(), &mut BytesMut::new())
}

#[test]
fn a_preface_is_a_text_and_settings() {
    let mut one = connection(Instant::now());
    receive(&mut one, TEXT).unwrap();
    assert!(!one.is_greeted());
    receive(&mut one, SETTINGS).unwrap();
    assert!(one.is_greeted());
    receive(&mut one, &[PING, CONFIRMED, SETTINGS].concat()).unwrap();
    for first in [PING, CONFIRMED] {
        let mut other = connection(Instant::now());
        let bytes = [TEXT, first, SETTINGS].concat();
        assert_eq!(receive(&mut other, &bytes), Err(Reason::Protocol));
    }
}

/// Calls begin until the peer has confirmed the GOAWAY, and not after.
#[test]
fn calls_after_a_goaway_are_ignored() {
    let (mut connection, mut out) = (connection(Instant::now()), BytesMut::new());
    receive(&mut connection, &[TEXT, SETTINGS].concat()).unwrap();
    // The call is not gRPC, so it is refused at once.
    let call =
        |stream: u8| [b"\x00\x00\x03\x01\x05\0\0\0", &[stream][..], b"\x83\x86\x84"].concat();
    connection.drain(&mut out);
    out.clear();
    connection.receive(&mut call(1)[..].into(), &mut out).unwrap();
    assert!(!out.is_empty(), "it was on its way");
    let acknowledged = [&PING[..4], b"\x01", &PING[5..]].concat();
    receive(&mut connection, &acknowledged).unwrap();
    out.clear();
    connection.receive(&mut call(3)[..].into(), &mut out).unwrap();
    assert!(out.is_empty(), "{out:?}");
    assert!(connection.is_over());
}

#[test]
fn a_peer_that_answers_pings_stays_connected() {
    let mut now = Instant::now();
    let mut connection = connection(now);
    receive(&mut connection, &[TEXT, SETTINGS].concat()).unwrap();
    // A ping every 10 s for a day, with the budget refilled once a minute.
    for _ in 0..24 * 60 {
        receive(&mut connection, &PING.repeat(6)).unwrap();
        now += Duration::from_mins(1);
        connection.late(now, &mut BytesMut::new()).unwrap();
    }
    assert_eq!(receive(&mut connection, &PING.repeat(2000)), Err(Reason::EnhanceYourCalm));
}
