//! Places to listen at.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP. Port 0 is any that is free.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix {
        /// The file.
        path: PathBuf,
        /// Who may connect, as the bits of a file's mode; 0o600 is this user alone.
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
