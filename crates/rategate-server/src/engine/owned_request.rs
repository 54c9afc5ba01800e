//! Items that outlive their request.

use rategate_protocol::rls::Override;

use super::request::{Inline, Item, Target};

/// An item that owns all its bytes.
#[derive(Debug)]
pub(super) struct OwnedItem {
    target: Owned,
    permits: u64,
    refund: bool,
}

#[derive(Debug)]
enum Owned {
    Rule { name: String, values: Vec<Vec<u8>> },
    Descriptor { domain: String, entries: Vec<(Vec<u8>, Vec<u8>)>, limit: Option<Override> },
    Inline { limit: Inline, key: Vec<u8> },
}

/// The lists that a borrowed item refers to.
pub(super) struct Lists<'a> {
    values: Vec<&'a [u8]>,
    entries: Vec<(&'a [u8], &'a [u8])>,
}

impl OwnedItem {
    pub(super) fn of(item: &Item<'_>) -> Self {
        let target = match item.target {
            Target::Rule { name, values } => Owned::Rule {
                name: name.to_owned(),
                values: values.iter().map(|value| value.to_vec()).collect(),
            },
            Target::Descriptor { domain, entries, limit } => Owned::Descriptor {
                domain: domain.to_owned(),
                entries: entries
                    .iter()
                    .map(|(key, value)| (key.to_vec(), value.to_vec()))
                    .collect(),
                limit,
            },
            Target::Inline { limit, key } => Owned::Inline { limit, key: key.to_vec() },
        };
        Self { target, permits: item.permits, refund: item.refund }
    }

    pub(super) fn borrowed(&self) -> Lists<'_> {
        let (mut values, mut entries) = (Vec::new(), Vec::new());
        match &self.target {
            Owned::Rule { values: own, .. } => values.extend(own.iter().map(Vec::as_slice)),
            Owned::Descriptor { entries: own, .. } => {
                entries.extend(own.iter().map(|(key, value)| (key.as_slice(), value.as_slice())));
            }
            Owned::Inline { .. } => {}
        }
        Lists { values, entries }
    }

    pub(super) fn item<'a>(&'a self, lists: &'a Lists<'a>) -> Item<'a> {
        let target = match &self.target {
            Owned::Rule { name, .. } => Target::Rule { name, values: &lists.values },
            Owned::Descriptor { domain, limit, .. } => {
                Target::Descriptor { domain, entries: &lists.entries, limit: *limit }
            }
            Owned::Inline { limit, key } => Target::Inline { limit: *limit, key },
        };
        Item { target, permits: self.permits, refund: self.refund }
    }
}
