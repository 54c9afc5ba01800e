//! A folder for a while.

use std::fs;
use std::path::{Path, PathBuf};

use rategate_bench::engines::Made;

/// Is removed with all that is in it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// In cargo's target folder, beside this program. What a run left that was cut off is removed.
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
