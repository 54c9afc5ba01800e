//! Settled operations in a file of counters: one row of JSON for each.

use std::io::{self, BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::Unreadable;
use crate::engine::reservation::Outcome;

/// An operation that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine) struct SettledRow {
    /// The digest of the id, and of the names.
    pub(in crate::engine) id: u64,
    pub(in crate::engine) names: u64,
    /// The time for which it is remembered, when saving began.
    pub(in crate::engine) left_ns: u64,
    pub(in crate::engine) outcome: Outcome,
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
    use std::num::NonZeroU64;

    use rategate::charge::Settled;

    use super::*;
    use crate::engine::answer::Verdict;

    #[test]
    fn each_verdict_comes_back() {
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
        let all: Vec<Verdict> = all.collect();
        let mut list = Vec::new();
        write(&mut list, &all).unwrap();
        assert_eq!(read::<Verdict>(list.as_slice()).unwrap(), all);
    }

    #[test]
    fn what_is_no_row_is_malformed() {
        for text in
            ["{", "Reset", "\"Odd\"", "7", "\"Reset\" \"Odd\"", "\"Reset\"\n\n", "\"Reset\"\n\"Od"]
        {
            let rows = read::<Verdict>(text.as_bytes());
            assert!(matches!(rows, Err(Unreadable::Malformed)), "{text}");
        }
        assert_eq!(read::<Verdict>(&b""[..]).unwrap(), []);
    }
}
