//! Harmless callers: their decisions are exact, whatever others do.

use std::time::Duration;

use rategate_bench::engines::Made;

use crate::contend::TIGHT;
use crate::grpc::{RATE_LIMITS, request_message};
use crate::load::h2::Grpc;
use crate::load::http::Http;
use crate::load::key_sequence::KeySequence;
use crate::load::resp::{Answer, Resp};
use crate::load::tally::LoadTally;
use crate::load::template::KEY;
use crate::load::{ConnectionGroup, Load};
use crate::ours::{Ours, TIGHT_RULE};

/// The number of requests for a key of which ten may pass.
const TIMES: u64 = 15;

/// One caller of each protocol.
pub(super) struct Checker {
    callers: Vec<(&'static str, Box<dyn Load>)>,
    key: u64,
    pub(super) tally: LoadTally,
    pub(super) keys: u64,
}

impl Checker {
    pub(super) fn connect(ours: &Ours) -> Made<Self> {
        let tight = TIGHT.to_string();
        let words = ["THROTTLE", KEY, &tight, "1", "3600"];
        let body = format!(
            "{{\"key\":\"h:{KEY}\",\"max_burst\":{TIGHT},\"count_per_period\":1,\
             \"period\":3600,\"quantity\":1}}"
        );
        let resp = ConnectionGroup::connect(ours.resp, [Resp::new(&words, Answer::Allowed, 1)])?;
        let http = ConnectionGroup::connect(ours.http, [Http::post("/throttle", &body)])?;
        let grpc = ConnectionGroup::connect(
            ours.grpc,
            [Grpc::new(RATE_LIMITS, &request_message(TIGHT_RULE, KEY), 1)],
        )?;
        let callers: Vec<(&'static str, Box<dyn Load>)> =
            vec![("RESP", Box::new(resp)), ("HTTP", Box::new(http)), ("gRPC", Box::new(grpc))];
        Ok(Self { callers, key: 0, tally: LoadTally::nothing()?, keys: 0 })
    }

    /// Checks one key by each caller.
    ///
    /// # Errors
    /// A caller was not served, or not exactly.
    pub(super) fn check(&mut self) -> Made<()> {
        self.key += 1;
        for (name, caller) in &mut self.callers {
            let tally = caller.run(&mut KeySequence::one(self.key, TIMES), Duration::MAX);
            let tally =
                tally.map_err(|error| format!("a caller by {name} is not served: {error}"))?;
            if (tally.allowed, tally.denied) != (TIGHT, TIMES - TIGHT) {
                let LoadTally { allowed, denied, failed, failure, .. } = tally;
                return Err(format!(
                    "a caller by {name} may pass {TIGHT} of {TIMES} times: {allowed} passed, \
                     {denied} denied, {failed} failed {failure:?}"
                )
                .into());
            }
            self.tally.add(&tally);
            self.keys += 1;
        }
        Ok(())
    }
}
