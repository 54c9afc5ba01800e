//! The fields of a request.

use super::{GRPC, PROTOCOL, Reply, Reset, Row, call_with, headed};
use crate::rls::abuse::{PATH, field};

/// Sections 8.2 and 8.3.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (cases, name, value) in [
        ("http2/8.1.2/1", "X", "y"),
        ("", "x y", "z"),
        ("", "x:", "y"),
        ("", "", "y"),
        ("", "x", "a\0b"),
        ("", "x", "a\rb"),
        ("", "x", "a\nb"),
        ("", "x", " a"),
        ("", "x", "a\t"),
        ("http2/8.1.2.2/1", "connection", "keep-alive"),
        ("", "proxy-connection", "keep-alive"),
        ("", "keep-alive", "5"),
        ("", "transfer-encoding", "chunked"),
        ("", "upgrade", "h2c"),
        ("", "te", "gzip"),
        ("http2/8.1.2.2/2", "te", "trailers, deflate"),
        ("http2/8.1.2.1/1", ":made-up", "x"),
        ("http2/8.1.2.1/2", ":status", "200"),
        // Valid, except for the preceding fields.
        ("http2/8.1.2.1/4", ":authority", "x"),
    ] {
        rows.push((cases, name, call_with(&[(name, value)], 5), Reset(PROTOCOL)));
    }
    for (name, value) in [("te", "trailers"), ("x", ""), ("x", "a b\tc"), ("x", "\u{e9}")] {
        rows.push(("", name, call_with(&[(name, value)], 5), Reply));
    }
    let (post, scheme, path) = (&b"\x83"[..], &b"\x86"[..], field(":path", PATH));
    let (none, grpc) = (field(":path", ""), field(GRPC.0, GRPC.1));
    let of = |fields: &[&[u8]]| headed(&[&fields.concat(), &grpc]);
    rows.extend([
        ("http2/8.1.2.3/2", "no method", of(&[scheme, &path]), Reset(PROTOCOL)),
        ("http2/8.1.2.3/3", "no scheme", of(&[post, &path]), Reset(PROTOCOL)),
        ("http2/8.1.2.3/4", "no path", of(&[post, scheme]), Reset(PROTOCOL)),
        ("http2/8.1.2.3/1", "an empty path", of(&[post, scheme, &none]), Reset(PROTOCOL)),
        ("http2/8.1.2.3/5", "two methods", of(&[post, post, scheme, &path]), Reset(PROTOCOL)),
        ("http2/8.1.2.3/6", "two schemes", of(&[post, scheme, scheme, &path]), Reset(PROTOCOL)),
        ("http2/8.1.2.3/7", "two paths", of(&[post, scheme, &path, &path]), Reset(PROTOCOL)),
        ("", "all, and an authority", of(&[post, scheme, &path, b"\x41\x01x"]), Reply),
        ("", "two authorities", of(&[post, scheme, &path, b"\x41\x01x\xbe"]), Reset(PROTOCOL)),
    ]);
    rows
}
