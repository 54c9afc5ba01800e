//! Grouping of requests into calls.

use rategate::store::StoreRequest;

use super::encoder::Encoder;
use super::item::Item;

/// Requests that one call carries.
pub(crate) struct Call {
    pub(crate) items: Vec<Item>,
    pub(crate) shape: Shape,
    slot: u16,
    pub(crate) is_asking: bool,
    /// No other request joins the call.
    is_closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A request with a call of its own.
    Single,
    /// Refunds, which are sent before decisions.
    Refund,
    /// Charges, which are sent before decisions.
    Charge,
    Decide,
    Peek,
    Reserve,
    End,
}

impl Call {
    /// Groups requests into as few calls as possible; in a cluster a call holds requests of one
    /// slot. No two of them are under one id.
    pub(crate) fn gather(items: impl Iterator<Item = Item>, encoder: &Encoder) -> Vec<Self> {
        let mut calls: Vec<Self> = Vec::new();
        for item in items {
            let shape = match &item.request {
                StoreRequest::Decide { .. } | StoreRequest::Debit { .. } => Shape::Decide,
                StoreRequest::Peek { .. } => Shape::Peek,
                StoreRequest::Refund { .. } => Shape::Refund,
                StoreRequest::Charge { .. } => Shape::Charge,
                StoreRequest::Reserve { .. } => Shape::Reserve,
                StoreRequest::End { .. } => Shape::End,
                _ => Shape::Single,
            };
            let (is_asking, is_closed) = (item.is_asking, shape == Shape::Single || item.is_single);
            let slot = if encoder.is_cluster { encoder.slot_of(&item.request) } else { 0 };
            let is_its = |call: &&mut Self| {
                !is_closed
                    && !call.is_closed
                    && (call.shape, call.slot, call.is_asking) == (shape, slot, is_asking)
            };
            match calls.iter_mut().find(is_its) {
                Some(call) => call.items.push(item),
                None => calls.push(Self { items: vec![item], shape, slot, is_asking, is_closed }),
            }
        }
        // Refunds come first: they may free the permits that the others request. Charges are of
        // what has been used before.
        calls.sort_by_key(|call| match call.shape {
            Shape::Single | Shape::Refund => 0,
            Shape::Charge => 1,
            Shape::Decide | Shape::Peek | Shape::Reserve | Shape::End => 2,
        });
        calls
    }
}
