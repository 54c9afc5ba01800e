//! A loopback proxy that simulates network faults.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The faults applied to replies.
#[derive(Default)]
pub(crate) struct ReplyFaults {
    /// The delay of each piece of a reply.
    pub(crate) delay_ms: AtomicU64,
    /// Cuts the next reply in half, and its connection with it.
    pub(crate) cuts: AtomicBool,
    /// Changes one byte of the next reply: its position, from the start.
    pub(crate) spoils: AtomicU64,
    /// Drops all replies over this many connections, the first ones.
    pub(crate) swallows: AtomicU64,
    /// The number of connections so far.
    pub(crate) connections: AtomicU64,
}

pub(crate) struct Proxy {
    pub(crate) reply_faults: Arc<ReplyFaults>,
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let (reply_faults, is_over) =
            (Arc::<ReplyFaults>::default(), Arc::new(AtomicBool::new(false)));
        let (sky, ends) = (Arc::clone(&reply_faults), Arc::clone(&is_over));
        thread::spawn(move || {
            for client in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", port)))
                else {
                    continue;
                };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                }
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || carry(from, to, None));
                let (sky, number) =
                    (Arc::clone(&sky), sky.connections.fetch_add(1, Ordering::Relaxed));
                thread::spawn(move || carry(server, client, Some((&sky, number))));
            }
        });
        Self { reply_faults, port: own, is_over }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, reply_faults: Option<(&ReplyFaults, u64)>) {
    let mut bytes = vec![0; 65_536];
    while let Ok(count) = from.read(&mut bytes) {
        let Some(piece) = bytes.get_mut(..count).filter(|piece| !piece.is_empty()) else { break };
        let mut end = piece.len();
        let mut is_cut = false;
        if let Some((reply_faults, number)) = reply_faults {
            if number < reply_faults.swallows.load(Ordering::Relaxed) {
                continue;
            }
            thread::sleep(Duration::from_millis(reply_faults.delay_ms.load(Ordering::Relaxed)));
            let offset = reply_faults.spoils.swap(0, Ordering::Relaxed);
            let offset = usize::try_from(offset).unwrap() % piece.len().max(1);
            if let Some(byte) = piece.get_mut(offset).filter(|_| offset > 0) {
                *byte ^= 0x15;
            }
            is_cut = reply_faults.cuts.swap(false, Ordering::Relaxed);
            if is_cut {
                end /= 2;
            }
        }
        if to.write_all(piece.get(..end).unwrap_or_default()).is_err() || is_cut {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
