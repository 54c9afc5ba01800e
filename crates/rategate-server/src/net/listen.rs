//! Listening sockets.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, Socket, Type};

use super::Address;

/// How many connections the system keeps that nobody has accepted yet. It may keep fewer.
const BACKLOG: i32 = 4096;

/// A socket that listens. A file of it goes with it.
#[derive(Debug)]
pub struct Bound {
    pub(super) socket: Kind,
    address: Address,
}

#[derive(Debug)]
pub(super) enum Kind {
    Tcp(std::net::TcpListener),
    Unix(UnixListener, OwnFile),
}

/// A socket's file, removed with it unless it is another's by then.
#[derive(Debug)]
pub(super) struct OwnFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

/// Listens at an address. Connections can come in from now on; they wait until somebody accepts them.
///
/// A Unix socket's file is taken over if it is a socket that nobody listens at, and nothing else is.
///
/// # Errors
///
/// What the system says, `AddrInUse` above all.
pub fn bind(address: &Address) -> io::Result<Bound> {
    match address {
        Address::Tcp(at) => tcp(*at),
        Address::Unix { path, mode } => unix(path, *mode),
    }
}

impl Bound {
    /// Where it listens: with the port that was found if none was said.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }
}

fn tcp(at: SocketAddr) -> io::Result<Bound> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    // A server that starts again must not wait for the connections of the one before.
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        // `[::]` is for both; where the system has only one, it is that.
        let _ = socket.set_only_v6(!at.ip().is_unspecified());
    }
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    let listener: std::net::TcpListener = socket.into();
    let address = Address::Tcp(listener.local_addr()?);
    Ok(Bound { socket: Kind::Tcp(listener), address })
}

fn unix(path: &Path, mode: u32) -> io::Result<Bound> {
    clear(path)?;
    let listener = UnixListener::bind(path)?;
    let file = OwnFile { path: path.to_owned(), identity: identity(path) };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    let address = Address::Unix { path: path.to_owned(), mode };
    Ok(Bound { socket: Kind::Unix(listener, file), address })
}

/// Removes a socket's file that a server left behind which is gone.
fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.file_type().is_socket() => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            // Somebody listens there, or nobody may look.
            _ => Err(io::ErrorKind::AddrInUse.into()),
        },
        Ok(_) => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file is there that is no socket"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    fs::symlink_metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // Whoever starts next takes it over anyway.
            let _ = fs::remove_file(&self.path);
        }
    }
}
