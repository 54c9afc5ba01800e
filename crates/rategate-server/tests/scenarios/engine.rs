//! The engine's own requests, without a protocol.

use std::sync::Arc;

use rategate_server::engine::{Answer, Decided, Item, Request, Target, Verb, Verdict};

use crate::scenarios::carrier::{Carrier, CarrierAnswer, ItemAnswer, TestEngine};

pub(crate) struct Directly(pub(crate) TestEngine);

impl Carrier for Directly {
    fn ask(&self, verb: Verb, rules: &[Arc<str>], value: &[u8], permits: u64) -> CarrierAnswer {
        let values = [value];
        let target = |name| Target::Rule { name, values: &values };
        let items: Vec<Item<'_>> =
            rules.iter().map(|name| Item::of(target(name), permits)).collect();
        let Decided::Now(answer) =
            self.0.decide(&Request { verb, items: &items, counts_denied: false })
        else {
            unreachable!("all counters are here")
        };
        let Answer { allowed, results } = answer.unwrap();
        let outcome = results.iter().map(|result| {
            let retry_after_ns = match result.verdict {
                Verdict::Denied { retry_after_ns, .. } => retry_after_ns.map(Into::into),
                _ => None,
            };
            let remaining = result.remaining.unwrap();
            let (is_over, debt) = (result.verdict.is_over(), result.debt);
            ItemAnswer { is_over, retry_after_ns, remaining, debt }
        });
        CarrierAnswer { allowed, results: outcome.collect() }
    }
}
