//! A proxy on the loopback at which a network can be cut: nothing gets through, and neither side
//! learns of it. Bytes in flight arrive after the cut, as they do with TCP.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rategate_bench::engines::Made;

const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A proxy in front of a server. Its threads end with their connections, the first with the
/// process.
pub(crate) struct Proxy {
    port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn before(server: u16) -> Made<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        thread::spawn(move || {
            for client in listener.incoming() {
                wait_while(&cut);
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server)))
                else {
                    continue;
                };
                let _ = join(client, server, &cut);
            }
        });
        Ok(Self { port, is_cut })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    pub(crate) fn mend(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }
}

fn wait_while(is_cut: &AtomicBool) {
    while is_cut.load(Ordering::Relaxed) {
        thread::sleep(LOOK_EVERY);
    }
}

fn join(client: TcpStream, server: TcpStream, is_cut: &Arc<AtomicBool>) -> std::io::Result<()> {
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let directions = [(client.try_clone()?, server.try_clone()?), (server, client)];
    for (from, to) in directions {
        let is_cut = Arc::clone(is_cut);
        thread::spawn(move || carry(from, to, &is_cut));
    }
    Ok(())
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        wait_while(is_cut);
        if to.write_all(bytes.get(..count).unwrap_or_default()).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
