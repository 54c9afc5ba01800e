//! The shares of a limit on permits in flight, by the value of an entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use rategate::Share;

use super::limit::{Algorithm, Written};
use super::naming::MAX_TEXT_BYTES;
use super::node::Node;
use super::rules::{KnownAlgorithm, Reader};
use super::tables::RuleTable;
use super::text::Text;
use crate::rule::{Entry, Shares, Value};

/// The maximum number of values with a share.
const MAX_SHARES: usize = 64;

impl Reader<'_> {
    /// Reads the shares of an entry.
    pub(super) fn shares<'t>(
        &mut self,
        shares: impl Iterator<Item = (&'t String, &'t Text<Share>)>,
    ) -> Value {
        let shares = shares.map(|(value, share)| (Arc::from(value.as_str()), share.0));
        let shares: BTreeMap<Arc<str>, Share> = shares.collect();
        let is_right = self.node.child("shares").is_some_and(Node::is_right);
        if shares.is_empty() && is_right {
            self.complain("shares", "no shares; write shares = { batch = \"30%\" }");
        }
        if shares.len() > MAX_SHARES {
            self.complain("shares", format!("at most {MAX_SHARES} values have a share"));
        }
        let is_pattern = |value: &&Arc<str>| value.contains('*') && ***value != *Shares::OTHERS;
        if let Some(value) = shares.keys().find(is_pattern) {
            let message =
                format!("{value:?} is no pattern here: name each value, and all others by \"*\"");
            self.complain("shares", message);
        }
        if shares.keys().any(|value| value.len() > MAX_TEXT_BYTES) {
            self.complain("shares", "a value has at most 4096 bytes");
        }
        Value::Shares(Shares::new(shares))
    }

    /// Checks that the limit of a rule can have shares, if an entry has any.
    pub(super) fn check_shares(
        &mut self,
        table: &RuleTable,
        algorithm: KnownAlgorithm,
        entries: &[Entry],
    ) {
        let nodes = entries.iter().zip(self.node.elements("match"));
        let mut with_shares = nodes
            .filter(|(entry, _)| matches!(entry.value, Value::Shares(_)))
            .map(|(_, node)| node);
        let Some(first) = with_shares.next() else { return };
        if let Some(second) = with_shares.next() {
            self.below(second).complain("shares", "only one entry of a rule has shares");
        }
        let complaint = match (algorithm, table.limit.as_ref().map(|limit| &limit.0)) {
            _ if !table.limits.is_empty() => {
                "one of several limits has no shares; write a rule of its own, which `also` adds"
            }
            (Some(other), _) if other != Algorithm::Concurrency => {
                "only permits in flight have shares; write algorithm = \"concurrency\", or \
                 shared = true with value = \"*\" for one counter without shares"
            }
            _ if self.is_here(table.store) == Some(false) => {
                "shares are of permits in flight in one process, and these counters are in a store; \
                 leave out `store`, or `shares`"
            }
            (Some(_), Some(Written::Unlimited | Written::Exempt | Written::Nothing(_))) => {
                "shares are of a number; write a number of permits as the limit"
            }
            // The limit or the algorithm is reported, if it is wrong.
            _ => return,
        };
        self.below(first).complain("shares", complaint);
    }
}
