//! Loads: one thread, many connections, requests rendered in advance, replies read no further
//! than necessary.
//!
//! A load is closed: a connection sends again when it has its reply. So a server that stalls gets
//! fewer requests for that time. The times show what waiting callers saw, not what callers on a
//! schedule would have seen.

pub(crate) mod h2;
pub(crate) mod http;
pub(crate) mod key_sequence;
pub(crate) mod resp;
pub(crate) mod tally;
pub(crate) mod template;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rategate_bench::engines::Made;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use self::key_sequence::KeySequence;
use self::tally::LoadTally;
use rategate_bench::clock::now_ns;

/// The time without any reply after which a load fails.
const SILENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// The most that is read at once. The rest comes with the next event.
const READ: usize = 1 << 16;

/// The protocol of a connection, and the replies it waits for.
pub(crate) trait Dialect {
    /// Writes what comes before everything else.
    fn greet(&mut self, _out: &mut Vec<u8>) {}

    /// Writes as many requests as may be in flight at `now_ns`, until there are no more keys.
    fn write_requests(&mut self, key_sequence: &mut KeySequence, now_ns: u64, out: &mut Vec<u8>);

    /// Consumes whole replies from the front, and returns how many bytes they had.
    ///
    /// # Errors
    /// The server does not speak this protocol.
    fn read_replies(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        tally: &mut LoadTally,
        out: &mut Vec<u8>,
    ) -> Made<usize>;

    /// Returns the number of requests in flight.
    fn waits_for(&self) -> usize;
}

/// A load that can be run again and again.
pub(crate) trait Load {
    /// Sends requests while there are keys, for at most `lasts`. Returns when all have their reply.
    fn run(&mut self, key_sequence: &mut KeySequence, lasts: Duration) -> Made<LoadTally>;
}

/// A group of connections to one server.
pub(crate) struct ConnectionGroup<D> {
    connections: Vec<Connection<D>>,
    epoll: OwnedFd,
    events: Vec<Event>,
    buffer: Vec<u8>,
}

struct Connection<D> {
    stream: TcpStream,
    dialect: D,
    out: Vec<u8>,
    /// The beginning of a reply that has not fully arrived.
    partial: Vec<u8>,
}

impl<D: Dialect> ConnectionGroup<D> {
    pub(crate) fn connect(port: u16, dialects: impl IntoIterator<Item = D>) -> Made<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for (index, mut dialect) in dialects.into_iter().enumerate() {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_nodelay(true)?;
            epoll::add(&epoll, &stream, EventData::new_u64(index as u64), EventFlags::IN)?;
            let mut out = Vec::new();
            dialect.greet(&mut out);
            connections.push(Connection { stream, dialect, out, partial: Vec::new() });
        }
        let events = Vec::with_capacity(connections.len());
        Ok(Self { connections, epoll, events, buffer: vec![0; READ] })
    }
}

impl<D: Dialect> Load for ConnectionGroup<D> {
    fn run(&mut self, key_sequence: &mut KeySequence, lasts: Duration) -> Made<LoadTally> {
        let mut tally = LoadTally::nothing()?;
        let begun_ns = now_ns();
        let until_ns = begun_ns.saturating_add(lasts.as_nanos() as u64);
        let mut waiting = 0;
        for connection in &mut self.connections {
            connection.dialect.write_requests(key_sequence, begun_ns, &mut connection.out);
            connection.flush()?;
            waiting += usize::from(connection.dialect.waits_for() > 0);
        }
        let mut at_ns = begun_ns;
        while waiting > 0 {
            self.events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&SILENCE))?;
            if self.events.is_empty() {
                return Err(format!("no reply for 10 s after {} replies", tally.answers()).into());
            }
            for event in &self.events {
                let index = event.data.u64() as usize;
                let Some(connection) = self.connections.get_mut(index) else { continue };
                let waited = connection.dialect.waits_for() > 0;
                at_ns = connection.read_replies(&mut self.buffer, &mut tally)?;
                if at_ns >= until_ns {
                    key_sequence.end();
                }
                connection.dialect.write_requests(key_sequence, at_ns, &mut connection.out);
                connection.flush()?;
                if waited && connection.dialect.waits_for() == 0 {
                    waiting -= 1;
                }
            }
        }
        tally.lasted_ns = at_ns.saturating_sub(begun_ns);
        Ok(tally)
    }
}

impl<D: Dialect> Connection<D> {
    /// Reads what has arrived. Returns when.
    fn read_replies(&mut self, buffer: &mut [u8], tally: &mut LoadTally) -> Made<u64> {
        let count = self.stream.read(buffer)?;
        let at_ns = now_ns();
        let received = buffer.get(..count).unwrap_or_default();
        if received.is_empty() {
            return Err(format!("connection closed after {} replies", tally.answers()).into());
        }
        if self.partial.is_empty() {
            let taken = self.dialect.read_replies(received, at_ns, tally, &mut self.out)?;
            self.partial.extend_from_slice(received.get(taken..).unwrap_or_default());
        } else {
            self.partial.extend_from_slice(received);
            let taken = self.dialect.read_replies(&self.partial, at_ns, tally, &mut self.out)?;
            self.partial.drain(..taken);
        }
        Ok(at_ns)
    }

    fn flush(&mut self) -> Made<()> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }
}
