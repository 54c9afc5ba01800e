//! A file descriptor that an event loop watches.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A file descriptor that is readable while it is raised: an eventfd on Linux, elsewhere a pipe.
#[derive(Debug)]
pub struct Signal {
    read: OwnedFd,
    /// The end of the pipe that is written to.
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
}

#[cfg(target_os = "linux")]
impl Signal {
    /// Creates one that is not raised.
    ///
    /// # Errors
    ///
    /// The system's, such as too many open files.
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};

        Ok(Self { read: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    fn writing(&self) -> &OwnedFd {
        &self.read
    }
}

#[cfg(not(target_os = "linux"))]
impl Signal {
    /// Creates one that is not raised.
    ///
    /// # Errors
    ///
    /// The system's, such as too many open files.
    pub fn new() -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe()?;
        for end in [&read, &write] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(end, true)?;
        }
        Ok(Self { read, write })
    }

    fn writing(&self) -> &OwnedFd {
        &self.write
    }
}

impl Signal {
    /// Raises it, from any thread.
    pub fn raise(&self) {
        // It can only fail because it is raised already, more often than it can count.
        let _ = rustix::io::write(self.writing(), &1_u64.to_ne_bytes());
    }

    /// Lowers it, before the loop looks at what it was raised for.
    pub fn lower(&self) {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.read, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }

    /// Blocks the thread until it is raised.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Interrupted`] where the thread has handled a signal meanwhile.
    pub fn wait(&self) -> io::Result<()> {
        let mut polled = [PollFd::new(&self.read, PollFlags::IN)];
        poll(&mut polled, None::<&Timespec>).map(drop).map_err(|error| match error {
            Errno::INTR => io::ErrorKind::Interrupted.into(),
            error => error.into(),
        })
    }
}

impl AsRawFd for Signal {
    fn as_raw_fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}
