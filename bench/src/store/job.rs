//! The job of a node and its results: one process each, JSON both ways, grants in a file.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;
use rategate_bench::engines::Made;
use serde::{Deserialize, Serialize};

use crate::oracle::{Bucket, Grant};

/// The longest time recorded, in ns; longer ones count as this.
const MAX_NS: u64 = 60_000_000_000;

/// The job of a node until its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The ports of the servers. Of several, one is the primary.
    pub(crate) ports: Vec<u16>,
    pub(crate) burst: u64,
    pub(crate) per_s: u64,
    pub(crate) mode: NodeMode,
    /// Set if the node acts on no grant of a store that may have lost some.
    pub(crate) is_quarantined: bool,
    pub(crate) keys: u64,
    pub(crate) load: Load,
    /// The file that grants are written to, if any.
    pub(crate) grants: Option<PathBuf>,
}

/// The mode in which the limit is kept.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum NodeMode {
    Exact,
    Leased { length_ms: u64, most: u64, is_guarded: bool },
}

/// The way in which calls come.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Load {
    /// Tasks in one thread that call again and again, with a pause after each call.
    Tasks { tasks: u64, pause_us: u64 },
    /// One thread that calls a key as often as it can.
    Hammer,
    /// One thread that calls until it is denied, and again after a short while.
    UntilDenied,
    /// A schedule of calls, whatever the decisions.
    Schedule { per_s: u64 },
}

/// The results of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeReport {
    pub(crate) decisions: u64,
    pub(crate) granted: u64,
    pub(crate) faults: u64,
    pub(crate) lasted_ns: u64,
    /// The times of calls in ns, each with its count.
    pub(crate) took_ns: Vec<(u64, u64)>,
    /// The maximum by which a pause was longer than planned, caused by the machine itself.
    pub(crate) paused_longer_ns: u64,
    /// The average number of requests in one call to the store, in hundredths.
    pub(crate) together_hundredths: u64,
}

impl Job {
    pub(crate) fn bucket(&self) -> Bucket {
        Bucket { burst: self.burst, per_s: self.per_s }
    }
}

impl NodeReport {
    pub(crate) fn per_s(&self) -> f64 {
        self.decisions as f64 * 1e9 / self.lasted_ns.max(1) as f64
    }
}

pub(crate) fn histogram() -> Made<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, MAX_NS, 3)?)
}

/// Returns the recorded times as pairs of value and count.
pub(crate) fn pairs(took_ns: &Histogram<u64>) -> Vec<(u64, u64)> {
    let values = took_ns.iter_recorded();
    values.map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
}

/// Merges the recorded times of several nodes.
pub(crate) fn together<'a>(
    report: impl IntoIterator<Item = &'a NodeReport>,
) -> Made<Histogram<u64>> {
    let mut all = histogram()?;
    for &(value, count) in report.into_iter().flat_map(|report| &report.took_ns) {
        all.saturating_record_n(value, count);
    }
    Ok(all)
}

/// A file of grants: their readings, eight bytes each.
pub(crate) struct Grants(Option<BufWriter<File>>);

impl Grants {
    pub(crate) fn create(path: Option<&Path>) -> Made<Self> {
        Ok(Self(path.map(File::create).transpose()?.map(BufWriter::new)))
    }

    #[inline]
    pub(crate) fn write(&mut self, before_ns: u64, after_ns: u64) -> Made<()> {
        if let Some(file) = &mut self.0 {
            file.write_all(&before_ns.to_le_bytes())?;
            file.write_all(&after_ns.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes out the grants so far, so that they are kept even if this process is killed.
    pub(crate) fn keep(&mut self) -> Made<()> {
        if let Some(file) = &mut self.0 {
            file.flush()?;
        }
        Ok(())
    }
}

pub(crate) fn read_grants(path: &Path) -> Made<Vec<Grant>> {
    let bytes = fs::read(path)?;
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    // A process that was killed may leave a part of one.
    let grant = |pair: &[u8]| {
        let (before, after) = pair.split_at(8);
        Grant { before_ns: number(before), after_ns: number(after) }
    };
    Ok(bytes.chunks_exact(16).map(grant).collect())
}
