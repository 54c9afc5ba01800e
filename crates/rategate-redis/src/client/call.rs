//! Questions that go out together: which of them one call carries.

use std::collections::BTreeMap;

use rategate::store::Question;

use super::item::Item;
use super::manner::Manner;

/// Questions that one call carries.
pub(crate) struct Call {
    pub(crate) items: Vec<Item>,
    pub(crate) shape: Shape,
    pub(crate) is_asking: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    /// A call each.
    Alone,
    /// What comes back goes before what is taken.
    Refund,
    Decide,
    Peek,
}

impl Call {
    /// Puts questions together that may go together: in a cluster those of one slot.
    pub(crate) fn gather(items: impl Iterator<Item = Item>, manner: &Manner) -> Vec<Self> {
        let mut calls: Vec<Self> = Vec::new();
        let mut places: BTreeMap<(Shape, u16, bool), usize> = BTreeMap::new();
        for item in items {
            let shape = match item.question() {
                Some(Question::Decide { .. } | Question::Debit { .. }) => Shape::Decide,
                Some(Question::Peek { .. }) => Shape::Peek,
                Some(Question::Refund { .. }) => Shape::Refund,
                _ => Shape::Alone,
            };
            let is_asking = item.is_asking;
            if shape == Shape::Alone || item.is_alone {
                calls.push(Self { items: vec![item], shape, is_asking });
                continue;
            }
            let slot = if manner.is_cluster { manner.slot_of(&item.task) } else { 0 };
            let place = *places.entry((shape, slot, is_asking)).or_insert(calls.len());
            match calls.get_mut(place) {
                Some(call) => call.items.push(item),
                None => calls.push(Self { items: vec![item], shape, is_asking }),
            }
        }
        // What comes back first: it may be what the others want.
        calls.sort_by_key(|call| !matches!(call.shape, Shape::Alone | Shape::Refund));
        calls
    }
}
