//! Listening sockets and their addresses.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// The number of connections that the system keeps until they are accepted. It may keep fewer.
const BACKLOG: i32 = 4096;

/// An address to listen at: `127.0.0.1:6380`, `[::1]:6380`, `unix:/run/rategate.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP address. Port 0 stands for any free port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Address {
    /// Returns an address of this machine that no other machine can reach.
    #[must_use]
    pub const fn loopback(port: u16) -> Self {
        Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }

    /// Returns `true` if other machines can reach the address.
    #[must_use]
    pub fn is_public(&self) -> bool {
        match self {
            Self::Tcp(address) => !address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => false,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening socket. Dropping it removes its file, if it has one.
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

/// The file of a Unix socket. Dropping it removes the file unless another process has replaced it.
#[derive(Debug)]
pub(super) struct OwnFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

/// Listens at an address. Connections can arrive from now on, and wait until they are accepted.
///
/// The file of a Unix socket is replaced if it is a socket without a listener. Any other file is
/// left alone. `mode` are the permission bits of the new file: `0o600` lets only the server's user
/// connect.
///
/// # Errors
///
/// The system's error, most often `AddrInUse`.
pub fn bind(address: &Address, mode: u32) -> io::Result<Bound> {
    match address {
        Address::Tcp(at) => tcp(*at),
        Address::Unix(path) => unix(path, mode),
    }
}

impl Bound {
    /// Returns the address, with the actual port if port 0 was given.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }
}

fn tcp(at: SocketAddr) -> io::Result<Bound> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted server must not wait for the connections of its predecessor.
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        // `[::]` serves both families. Where the system supports only one, it serves that one.
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
    let (socket, file) = named(path, mode)?;
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)?;
    let address = Address::Unix(path.to_owned());
    Ok(Bound { socket: Kind::Unix(socket.into(), file), address })
}

/// Creates a socket with its file. No client can connect before it listens, and by then the mode
/// is set.
fn named(path: &Path, mode: u32) -> io::Result<(Socket, OwnFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = OwnFile { path: path.to_owned(), identity: identity(path) };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok((socket, file))
}

/// Removes the socket file of a server that no longer runs.
fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.file_type().is_socket() => {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            // The other server's queue may be full.
            socket.set_nonblocking(true)?;
            match socket.connect(&SockAddr::unix(path)?) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path)
                }
                // Another server listens there, or this process may not connect.
                _ => Err(io::ErrorKind::AddrInUse.into()),
            }
        }
        Ok(_) => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket"))
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
            // The next server replaces the file anyway.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use std::os::unix::net::UnixStream;

    use super::*;

    fn path(folder: &tempfile::TempDir) -> PathBuf {
        folder.path().join("s")
    }

    #[test]
    fn only_what_others_can_reach_is_public() {
        let public = |text: &str| Address::Tcp(text.parse().unwrap()).is_public();
        assert!(!public("127.0.0.1:1") && !public("[::1]:1") && !public("[::ffff:127.0.0.1]:1"));
        assert!(public("0.0.0.0:1") && public("[::]:1") && public("10.0.0.1:1"));
        assert!(!Address::Unix("/run/s".into()).is_public());
    }

    /// The mode is set before any client can connect.
    #[test]
    fn a_socket_has_its_mode_before_it_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder);
        let (_socket, _file) = named(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = UnixStream::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        // The file is then replaced like that of any server that no longer runs.
        assert!(bind(&Address::Unix(path), 0o600).is_ok());
    }

    /// Binding does not wait for a server that does not accept.
    #[test]
    fn a_socket_whose_server_is_busy_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder);
        let (busy, _file) = named(&path, 0o600).unwrap();
        busy.listen(0).unwrap();
        let _queued = UnixStream::connect(&path).unwrap();
        let begun = Instant::now();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(bind(&Address::Unix(path), 0o600)));
        let bound = receiver.recv_timeout(Duration::from_secs(5)).expect("an answer at once");
        assert_eq!(bound.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
