//! What peers do, frame by frame, without a socket.

use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::{Connection, Reason};
use crate::engine::{Decided, Fault, Request};
use crate::net::Access;
use crate::protocol::grpc::{Health, Rls, Settings};
use crate::protocol::rls::Decide;

struct Nobody;

impl Decide for Nobody {
    fn decide(&self, _: &Request<'_>) -> Decided {
        Decided::Now(Err(Fault::NotLoaded))
    }
}

#[test]
fn who_only_says_that_he_is_there_may_stay() {
    let rls = Rls::new(Nobody, Access::default(), Health::new(true), Settings::default());
    let (mut now, mut out) = (Instant::now(), BytesMut::new());
    let mut connection = Connection::new(rls, None, now, &mut out);
    let mut input = BytesMut::from(&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..]);
    connection.receive(&mut input, &mut out).unwrap();
    let ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
    let mut pings = |connection: &mut Connection<Nobody>, many| {
        input.extend_from_slice(&ping.repeat(many));
        out.clear();
        connection.receive(&mut input, &mut out)
    };
    // Each 10 s for a day, and looked at once a minute.
    for _ in 0..24 * 60 {
        pings(&mut connection, 6).unwrap();
        now += Duration::from_mins(1);
        connection.late(now, &mut BytesMut::new());
    }
    assert_eq!(pings(&mut connection, 2000), Err(Reason::EnhanceYourCalm));
}
