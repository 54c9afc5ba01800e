//! What a node is told, and what it tells: one process each, JSON both ways, grants in a file.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;
use rategate_bench::engines::Made;
use serde::{Deserialize, Serialize};

use crate::oracle::{Bucket, Grant};

/// What is longer than that, in ns, is told as that.
const LONGEST_NS: u64 = 60_000_000_000;

/// What a node does until it is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Where servers listen. Of several one is the primary.
    pub(crate) ports: Vec<u16>,
    pub(crate) burst: u64,
    pub(crate) per_s: u64,
    pub(crate) mode: Manner,
    /// Acts on no grant of a store that may have forgotten some.
    pub(crate) is_quarantined: bool,
    pub(crate) keys: u64,
    pub(crate) load: Load,
    /// Where grants are written, if they are.
    pub(crate) grants: Option<PathBuf>,
}

/// How the limit is kept.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Manner {
    Exact,
    Leased { length_ms: u64, most: u64, is_guarded: bool },
    SharedOut { beat_ms: u64 },
}

/// How calls come.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Load {
    /// Tasks in one thread that call again and again, with a pause after each call.
    Tasks { tasks: u64, pause_us: u64 },
    /// One thread that calls a key as often as it can.
    Hammer,
    /// One thread that calls until it is denied, and again after a little while.
    Sips,
    /// By a schedule, whatever the answers.
    Schedule { per_s: u64 },
}

/// What has come of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) decisions: u64,
    pub(crate) granted: u64,
    pub(crate) faults: u64,
    pub(crate) lasted_ns: u64,
    /// How long calls took, in ns, and how many did.
    pub(crate) took_ns: Vec<(u64, u64)>,
    /// By how much a pause was longer than it should have been, at most: what the machine adds by itself.
    pub(crate) paused_longer_ns: u64,
    /// How many questions went together on an average, in hundredths.
    pub(crate) together_hundredths: u64,
}

impl Job {
    pub(crate) fn bucket(&self) -> Bucket {
        Bucket { burst: self.burst, per_s: self.per_s }
    }
}

impl Told {
    pub(crate) fn per_s(&self) -> f64 {
        self.decisions as f64 * 1e9 / self.lasted_ns.max(1) as f64
    }
}

pub(crate) fn histogram() -> Made<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LONGEST_NS, 3)?)
}

/// As it is told.
pub(crate) fn pairs(took_ns: &Histogram<u64>) -> Vec<(u64, u64)> {
    let values = took_ns.iter_recorded();
    values.map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
}

/// What several nodes told, together.
pub(crate) fn together<'a>(told: impl IntoIterator<Item = &'a Told>) -> Made<Histogram<u64>> {
    let mut all = histogram()?;
    for &(value, count) in told.into_iter().flat_map(|told| &told.took_ns) {
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

    /// From here on they are there even if this process is killed.
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
