//! The engine's own requests, without a protocol.

use std::sync::Arc;

use rategate_server::engine::{Answer, Decided, Item, Request, Target, Verb, Verdict};

use crate::carrier::{Carrier, PartTold, TestEngine, Told};

pub(crate) struct Directly(pub(crate) TestEngine);

impl Carrier for Directly {
    fn ask(&self, verb: Verb, rules: &[Arc<str>], value: &[u8], permits: u64) -> Told {
        let values = [value];
        let target = |name| Target::Rule { name, values: &values };
        let items: Vec<Item<'_>> =
            rules.iter().map(|name| Item::of(target(name), permits)).collect();
        let Decided::Now(answer) =
            self.0.decide(&Request { verb, items: &items, counts_denied: false })
        else {
            unreachable!("all counters are here")
        };
        let Answer { allowed, parts } = answer.unwrap();
        let told = parts.iter().map(|part| {
            let retry_after_ns = match part.verdict {
                Verdict::Denied { retry_after_ns, .. } => retry_after_ns.map(Into::into),
                _ => None,
            };
            let remaining = part.remaining.unwrap();
            PartTold { is_over: part.verdict.is_over(), retry_after_ns, remaining }
        });
        Told { allowed, parts: told.collect() }
    }
}
