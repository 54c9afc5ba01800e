//! A temporary folder.

use std::fs;
use std::path::{Path, PathBuf};

use rategate_bench::engines::Made;

/// A folder that is removed with all its contents.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates it in cargo's target folder, next to this program. Remains of an interrupted run
    /// are removed.
    pub(crate) fn new(name: &str) -> Made<Self> {
        let program = std::env::current_exe()?;
        let folder = program.parent().unwrap_or(Path::new(".")).join("bench-store").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
