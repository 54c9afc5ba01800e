//! Following of log files as they grow, over rotation by renaming and by truncation.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::analysis::Analysis;
use crate::input::{self, Lines};
use crate::settings::POLL;
use crate::{AnalyzeError, wall_ns};

/// The maximum number of files followed at the same time.
const MAX_FOLLOWED: usize = 64;
/// The time a renamed log is still read once its successor exists: servers briefly write to both.
const GRACE: Duration = Duration::from_secs(1);

/// A reader of log files as they grow. Together they form one log.
///
/// Wait for [`POLL`] whenever there is nothing to read:
///
/// ```no_run
/// use rategate_analyze::{Analysis, Follower, Limit, POLL, Settings};
///
/// let mut analysis = Analysis::new(Settings::new(Limit::any_window("100/min")?));
/// let mut follower = Follower::open(&["access.log".into()])?;
/// # let is_stopped = || true;
/// while !is_stopped() {
///     if !follower.poll(&mut analysis)? {
///         std::thread::sleep(POLL);
///     }
/// }
/// follower.finish(&mut analysis)?;
/// println!("{}", analysis.report().to_text());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Follower {
    tails: Vec<Tail>,
    published: Instant,
}

impl Follower {
    /// Opens the files.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Unusable`] for more than 64 files, and for one that is missing, compressed
    /// or no plain file; [`AnalyzeError::Io`] for one that cannot be read.
    pub fn open(files: &[PathBuf]) -> Result<Self, AnalyzeError> {
        if files.len() > MAX_FOLLOWED {
            let count = files.len();
            let why = format!("{count} files to follow; it must be at most {MAX_FOLLOWED}");
            return Err(AnalyzeError::Unusable(why));
        }
        let tails: Result<_, _> = files.iter().map(|path| Tail::open(path)).collect();
        Ok(Self { tails: tails?, published: Instant::now() })
    }

    /// Reads each file once, and publishes the deny list if that is due. Returns `false` if
    /// nothing was there to read.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Io`] for a file that cannot be read, and for a list that cannot be written.
    pub fn poll(&mut self, analysis: &mut Analysis) -> Result<bool, AnalyzeError> {
        analysis.follows.get_or_insert_default();
        let mut is_dry = true;
        for tail in &mut self.tails {
            let has_read = tail.poll(analysis);
            is_dry &= !has_read.map_err(|error| AnalyzeError::Io(tail.name.to_string(), error))?;
        }
        if is_dry {
            analysis.catch_up();
        }
        // However fast the log grows, the list is published now and then.
        if is_dry || self.published.elapsed() >= POLL {
            analysis.publish(wall_ns())?;
            self.published = Instant::now();
        }
        if is_dry {
            // Lines from here on are new.
            analysis.set_live();
        }
        Ok(!is_dry)
    }

    /// Processes incomplete last lines, and ends the analysis as [`Analysis::finish`] does.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Io`] for a list that cannot be written.
    pub fn finish(self, analysis: &mut Analysis) -> Result<(), AnalyzeError> {
        for mut tail in self.tails {
            analysis.resume(&tail.name, tail.line);
            analysis.end_of_file(&mut tail.lines);
        }
        analysis.finish()
    }
}

/// The file behind a name, as far as it has been read.
#[derive(Debug)]
struct Tail {
    path: PathBuf,
    /// The name as it is displayed.
    name: Arc<str>,
    /// The number of lines of the file that have been read. `lines` holds the bytes of an
    /// unfinished line.
    line: u64,
    lines: Lines,
    file: File,
    /// The instant at which the name was first seen to refer to another file.
    renamed: Option<Instant>,
}

/// The state of a file that has no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rotation {
    /// The file is unchanged.
    Same,
    /// The name refers to another file, since this instant or before. A process may still write
    /// to the old one.
    Renamed(Instant),
    /// The file is shorter than what was read of it, and is read again from its start.
    Cut,
}

impl Tail {
    fn open(path: &Path) -> Result<Self, AnalyzeError> {
        let refuse =
            |why: &dyn fmt::Display| AnalyzeError::Unusable(format!("{}: {why}", path.display()));
        let file = File::open(path).map_err(|error| refuse(&error))?;
        if !file.metadata().is_ok_and(|about| about.is_file()) {
            return Err(refuse(&"not a plain file, which could grow"));
        }
        let start = File::open(path).and_then(|mut file| input::start(&mut file));
        let failed = |error| AnalyzeError::Io(path.display().to_string(), error);
        if start.map_err(failed)?.1 {
            return Err(refuse(&"a compressed file does not grow"));
        }
        Ok(Self {
            path: path.to_owned(),
            name: Arc::from(path.display().to_string()),
            line: 0,
            lines: Lines::new(),
            file,
            renamed: None,
        })
    }

    /// Reads once, or continues with the next file of the name. Returns `true` if anything was
    /// done.
    fn poll(&mut self, analysis: &mut Analysis) -> io::Result<bool> {
        analysis.resume(&self.name, self.line);
        if self.lines.fill(&mut self.file)? > 0 {
            analysis.drain(&mut self.lines);
            self.line = analysis.line();
            return Ok(true);
        }
        let is_over = match self.check_rotation()? {
            Rotation::Same => false,
            Rotation::Renamed(since) => since.elapsed() >= GRACE,
            Rotation::Cut => true,
        };
        if is_over {
            analysis.end_of_file(&mut self.lines);
            if self.resume()? {
                let follows = analysis.follows.get_or_insert_default();
                follows.rotations = follows.rotations.saturating_add(1);
            }
        }
        Ok(is_over)
    }

    /// Checks if the name refers to another file, or if the file has been truncated.
    ///
    /// A name without a file is between two files. Call this at the end of the file.
    fn check_rotation(&mut self) -> io::Result<Rotation> {
        let named = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Rotation::Same),
            named => named?,
        };
        let own = self.file.metadata()?;
        let is_other = (named.dev(), named.ino()) != (own.dev(), own.ino());
        if is_other {
            return Ok(Rotation::Renamed(*self.renamed.get_or_insert_with(Instant::now)));
        }
        Ok(if own.len() < self.file.stream_position()? { Rotation::Cut } else { Rotation::Same })
    }

    /// Starts with the file that the name refers to now. Returns `false` if there is none.
    fn resume(&mut self) -> io::Result<bool> {
        let named = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        self.file = named;
        self.line = 0;
        self.renamed = None;
        Ok(true)
    }
}
