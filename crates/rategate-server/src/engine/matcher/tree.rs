//! The tree of the entries of rules.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::MAX_RULES_PER_MATCH;
use crate::rule::{Entry, Value, is_like};

/// A map by names of the configuration. Callers look names up and add none, so its hash need not
/// withstand them.
pub(super) type ByName<T> = HashMap<Arc<str>, T, RandomState>;

/// A node of the tree: the state after some entries.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The rules that end here, in the order of their files and lines.
    pub(super) rules: SmallVec<[usize; 2]>,
    next: ByName<Choices>,
}

/// The nodes by the value of an entry.
#[derive(Debug, Default)]
struct Choices {
    exact: ByName<Node>,
    patterns: Vec<(Arc<str>, Node)>,
    any: Option<Box<Node>>,
}

impl Node {
    /// Adds a rule below this node, or returns the first rule there if there are too many. Sets
    /// `is_layered` if other rules are there too.
    pub(super) fn insert(
        &mut self,
        entries: &[Entry],
        rule: usize,
        is_layered: &mut bool,
    ) -> Result<(), usize> {
        let Some((entry, rest)) = entries.split_first() else {
            if let (Some(first), true) =
                (self.rules.first(), self.rules.len() >= MAX_RULES_PER_MATCH)
            {
                return Err(*first);
            }
            *is_layered |= !self.rules.is_empty();
            self.rules.push(rule);
            return Ok(());
        };
        let choices = self.next.entry(Arc::clone(&entry.key)).or_default();
        match &entry.value {
            Value::Any => choices.any.get_or_insert_default().insert(rest, rule, is_layered),
            Value::Exact(value) => choices.exact(value).insert(rest, rule, is_layered),
            Value::OneOf(values) => {
                let mut values = values.iter();
                values.try_for_each(|value| choices.exact(value).insert(rest, rule, is_layered))
            }
            Value::Pattern { text, .. } => choices.pattern(text).insert(rest, rule, is_layered),
        }
    }

    /// Returns the node to which these entries lead.
    pub(super) fn descend(&self, entries: &[(&[u8], &[u8])]) -> Option<&Self> {
        let mut node = self;
        for (key, value) in entries {
            node = node.next.get(text(key)?)?.choose(value)?;
        }
        Some(node)
    }
}

impl Choices {
    fn exact(&mut self, value: &Arc<str>) -> &mut Node {
        self.exact.entry(Arc::clone(value)).or_default()
    }

    fn pattern(&mut self, text: &Arc<str>) -> &mut Node {
        let index = self.patterns.iter().position(|(known, _)| known == text);
        let index = index.unwrap_or_else(|| {
            self.patterns.push((Arc::clone(text), Node::default()));
            self.patterns.len().saturating_sub(1)
        });
        #[expect(clippy::indexing_slicing, reason = "it has just been found, or put there")]
        &mut self.patterns[index].1
    }

    fn choose(&self, value: &[u8]) -> Option<&Node> {
        text(value)
            .and_then(|value| self.exact.get(value))
            .or_else(|| {
                let mut patterns = self.patterns.iter();
                patterns.find(|(text, _)| is_like(value, text.as_bytes())).map(|(_, node)| node)
            })
            .or(self.any.as_deref())
    }
}

pub(super) fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
