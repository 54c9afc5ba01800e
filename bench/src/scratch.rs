//! Temporary folders.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};

/// A folder that is removed with all its contents.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates it in cargo's target folder, next to this program.
    ///
    /// # Errors
    ///
    /// The folder cannot be created.
    pub fn new(name: &str) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let program = env::current_exe()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{name}-{}-{count}", process::id());
        let folder = program.parent().unwrap_or(Path::new(".")).join("bench-scratch").join(name);
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in the folder.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
