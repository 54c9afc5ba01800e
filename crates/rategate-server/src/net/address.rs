//! Addresses of listeners.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP address. Port 0 stands for any free port.
    Tcp(SocketAddr),
    /// A Unix socket in the file system.
    Unix {
        /// The path of the socket file.
        path: PathBuf,
        /// The permission bits of the socket file. `0o600` lets only the server's user connect.
        mode: u32,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}
