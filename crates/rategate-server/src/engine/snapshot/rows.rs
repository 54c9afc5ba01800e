//! Settled operations in a file of counters: one row of JSON for each.

use std::io::{self, BufRead, Write};
use std::num::NonZeroU64;

use rategate::charge::Settled;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::Unreadable;
use crate::engine::answer::Verdict;
use crate::engine::reservation::Usages;

/// The settled operations in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lists {
    /// The key of the digests of ids and of names.
    pub(super) key: [u64; 2],
    /// `true` if nothing was settled after the file was written, as its process ended then.
    pub(super) is_last: bool,
    /// Those that were settled before the first counter was saved, as [`SettledRow`].
    pub(super) settled: Section,
}

/// The place of a list in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Section {
    pub(super) from: u64,
    pub(super) bytes: u64,
}

/// An operation that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine) struct SettledRow {
    /// The digest of the id, and of the names.
    pub(in crate::engine) id: u64,
    pub(in crate::engine) names: u64,
    /// The time for which it is remembered, when saving began.
    pub(in crate::engine) left_ns: u64,
    pub(in crate::engine) permits: Vec<u64>,
    #[serde(default, skip_serializing_if = "is_empty")]
    pub(in crate::engine) usages: Usages,
    pub(in crate::engine) verdicts: Vec<SavedVerdict>,
    /// The verdicts of rules: the index of the item, the name, the verdict, and `true` if it is
    /// saturated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::engine) parts: Vec<(usize, String, SavedVerdict, bool)>,
}

/// A verdict on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine) enum SavedVerdict {
    Unmatched,
    Unlimited,
    Replaced,
    Granted,
    Denied(Option<NonZeroU64>, bool),
    Charged(u64),
    Refunded(u64),
    Reset,
    Even,
    Back(u64),
    Owed(u64, u64),
    Cancelled(u64),
    Late(u64),
}

impl SavedVerdict {
    /// Returns a verdict that is remembered; `None` for one that never is.
    pub(in crate::engine) const fn of(verdict: Verdict) -> Option<Self> {
        Some(match verdict {
            Verdict::Unmatched => Self::Unmatched,
            Verdict::Unlimited => Self::Unlimited,
            Verdict::Replaced => Self::Replaced,
            Verdict::Granted => Self::Granted,
            Verdict::Denied { retry_after_ns, enforced } => Self::Denied(retry_after_ns, enforced),
            Verdict::Charged(permits) => Self::Charged(permits),
            Verdict::Refunded(permits) => Self::Refunded(permits),
            Verdict::Reset => Self::Reset,
            Verdict::Committed(Settled::Even) => Self::Even,
            Verdict::Committed(Settled::Back { permits }) => Self::Back(permits),
            Verdict::Committed(Settled::Owed { permits, forgiven }) => {
                Self::Owed(permits, forgiven)
            }
            Verdict::Cancelled(permits) => Self::Cancelled(permits),
            Verdict::Late(permits) => Self::Late(permits),
            Verdict::Unknown | Verdict::Unavailable { .. } => return None,
        })
    }

    pub(in crate::engine) const fn verdict(self) -> Verdict {
        match self {
            Self::Unmatched => Verdict::Unmatched,
            Self::Unlimited => Verdict::Unlimited,
            Self::Replaced => Verdict::Replaced,
            Self::Granted => Verdict::Granted,
            Self::Denied(retry_after_ns, enforced) => Verdict::Denied { retry_after_ns, enforced },
            Self::Charged(permits) => Verdict::Charged(permits),
            Self::Refunded(permits) => Verdict::Refunded(permits),
            Self::Reset => Verdict::Reset,
            Self::Even => Verdict::Committed(Settled::Even),
            Self::Back(permits) => Verdict::Committed(Settled::Back { permits }),
            Self::Owed(permits, forgiven) => {
                Verdict::Committed(Settled::Owed { permits, forgiven })
            }
            Self::Cancelled(permits) => Verdict::Cancelled(permits),
            Self::Late(permits) => Verdict::Late(permits),
        }
    }
}

fn is_empty(usages: &Usages) -> bool {
    usages.is_empty()
}

/// Writes rows, one a line, in one piece.
pub(super) fn write<T: Serialize>(mut to: impl Write, rows: &[T]) -> io::Result<()> {
    let mut lines = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut lines, row)?;
        lines.push(b'\n');
    }
    to.write_all(&lines)
}

/// Reads all rows of a list.
pub(super) fn read<T: DeserializeOwned>(mut from: impl BufRead) -> Result<Vec<T>, Unreadable> {
    let (mut rows, mut line) = (Vec::new(), Vec::new());
    while from.read_until(b'\n', &mut line)? > 0 {
        rows.push(serde_json::from_slice(&line).map_err(|_| Unreadable::Malformed)?);
        line.clear();
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verdict_that_is_remembered_comes_back() {
        let retry_after_ns = NonZeroU64::new(7);
        let committed = [
            Settled::Even,
            Settled::Back { permits: 3 },
            Settled::Owed { permits: u64::MAX, forgiven: 1 },
        ];
        let all = committed.into_iter().map(Verdict::Committed).chain([
            Verdict::Unmatched,
            Verdict::Unlimited,
            Verdict::Replaced,
            Verdict::Granted,
            Verdict::Denied { retry_after_ns, enforced: false },
            Verdict::Charged(4),
            Verdict::Refunded(5),
            Verdict::Reset,
            Verdict::Cancelled(6),
            Verdict::Late(8),
        ]);
        let rows: Vec<SavedVerdict> = all.clone().filter_map(SavedVerdict::of).collect();
        let mut list = Vec::new();
        write(&mut list, &rows).unwrap();
        let read = read::<SavedVerdict>(list.as_slice()).unwrap();
        assert!(read.into_iter().map(SavedVerdict::verdict).eq(all));
        assert_eq!(SavedVerdict::of(Verdict::Unknown), None);
        let unavailable = Verdict::Unavailable { admitted: true, retry_after_ns };
        assert_eq!(SavedVerdict::of(unavailable), None);
    }

    #[test]
    fn what_is_no_row_is_malformed() {
        for text in
            ["{", "Even", "\"Odd\"", "7", "\"Even\" \"Odd\"", "\"Even\"\n\n", "\"Even\"\n\"Od"]
        {
            let rows = read::<SavedVerdict>(text.as_bytes());
            assert!(matches!(rows, Err(Unreadable::Malformed)), "{text}");
        }
        assert_eq!(read::<SavedVerdict>(&b""[..]).unwrap(), []);
    }
}
