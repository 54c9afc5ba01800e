//! The map from the slots of a cluster to its servers.

use super::config::Server;
use crate::key::SLOTS;
use crate::reply::Value;

/// A server and the ranges of its slots, first and last.
pub(crate) type Owner = (Server, Vec<(u16, u16)>);

/// The index of each slot's node in the driver's list.
#[derive(PartialEq)]
pub(crate) struct Slots(Vec<Option<usize>>);

impl Slots {
    /// Creates a map without owners.
    pub(crate) fn new() -> Self {
        Self(vec![None; SLOTS])
    }

    /// Creates a map that assigns all slots to one node, for a store that is no cluster.
    pub(crate) fn all(node: usize) -> Self {
        Self(vec![Some(node); SLOTS])
    }

    pub(crate) fn node_of(&self, slot: u16) -> Option<usize> {
        self.0.get(usize::from(slot)).copied().flatten()
    }

    pub(crate) fn set(&mut self, slot: u16, node: usize) {
        if let Some(entry) = self.0.get_mut(usize::from(slot)) {
            *entry = Some(node);
        }
    }

    /// Returns a slot of a node, if it has any.
    pub(crate) fn any_of(&self, node: usize) -> Option<u16> {
        let at = self.0.iter().position(|owner| *owner == Some(node))?;
        u16::try_from(at).ok()
    }
}

/// Reads owners from the reply to `CLUSTER SLOTS` of the server `guide`.
pub(crate) fn owners(guide: &Server, reply: &Value) -> Option<Vec<Owner>> {
    let Value::List(rows) = reply else { return None };
    let mut owners: Vec<Owner> = Vec::new();
    for row in rows {
        let Value::List(row) = row else { return None };
        let [first, last, Value::List(node), ..] = row.as_slice() else { return None };
        let [host, port, ..] = node.as_slice() else { return None };
        let range = (number(first)?, number(last)?);
        let server = guide.sibling(&text(host), number(port)?);
        match owners.iter_mut().find(|(known, _)| *known == server) {
            Some((_, ranges)) => ranges.push(range),
            None => owners.push((server, vec![range])),
        }
    }
    (!owners.is_empty()).then_some(owners)
}

pub(crate) fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => text(value).parse().ok(),
    }
}

/// Returns the text of a value, or an empty string for any other value.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::Value::{Bytes, Int, List};
    use super::*;

    #[test]
    fn a_slots_reply_names_the_owners() {
        let node = |host: &str, port| List(vec![Bytes(host.into()), Int(port)]);
        let row = |first, last, node| List(vec![Int(first), Int(last), node]);
        let reply = List(vec![
            row(0, 10, node("", 7_000)),
            row(11, 16_383, node("b", 7_001)),
            row(5, 5, node("", 7_000)),
        ]);
        let (a, b) = (Server::tcp("a", 7_000), Server::tcp("b", 7_001));
        let expected = vec![(a.clone(), vec![(0, 10), (5, 5)]), (b, vec![(11, 16_383)])];
        assert_eq!(owners(&a, &reply), Some(expected));
        assert_eq!(owners(&a, &List(vec![])), None);
        assert_eq!(owners(&a, &List(vec![List(vec![Int(1)])])), None);
        assert_eq!(owners(&a, &Int(1)), None);
    }
}
