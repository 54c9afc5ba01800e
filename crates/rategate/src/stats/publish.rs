//! Counts for a metrics system: the only place that names the `metrics` facade. A limit's name becomes a
//! label, and a key never does.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use super::counts::Counts;

const CALLS: &str = "rategate_calls_total";
const PERMITS: &str = "rategate_permits_total";
const NEAR_CALLS: &str = "rategate_near_calls_total";
const OVERFLOWS: &str = "rategate_overflows_total";
const KEYS: &str = "rategate_keys";

/// Tells the recorder what the metrics are. Once, when the recorder is in place; without it they have no
/// help texts.
pub fn describe() {
    describe_counter!(CALLS, Unit::Count, "Calls that a limit granted or denied");
    describe_counter!(PERMITS, Unit::Count, "Permits that calls were granted or denied");
    describe_counter!(NEAR_CALLS, Unit::Count, "Granted calls that left less than a tenth");
    describe_counter!(OVERFLOWS, Unit::Count, "Newcomers that a full table had no room for");
    describe_gauge!(KEYS, Unit::Count, "Keys in a table");
}

pub(super) fn counts(limit: &str, counts: &Counts) {
    let limit = limit.to_owned();
    let outcomes = [
        ("granted", counts.granted_calls, counts.granted_permits),
        ("denied", counts.denied_calls, counts.denied_permits),
    ];
    for (outcome, calls, permits) in outcomes {
        counter!(CALLS, "limit" => limit.clone(), "outcome" => outcome).absolute(calls);
        counter!(PERMITS, "limit" => limit.clone(), "outcome" => outcome).absolute(permits);
    }
    counter!(NEAR_CALLS, "limit" => limit).absolute(counts.near_calls);
}

pub(super) fn table(limit: &str, all: &Counts, keys: usize) {
    counts(limit, all);
    counter!(OVERFLOWS, "limit" => limit.to_owned()).absolute(all.overflows);
    // More keys than that fit into no memory.
    let keys = f64::from(u32::try_from(keys).unwrap_or(u32::MAX));
    gauge!(KEYS, "limit" => limit.to_owned()).set(keys);
}
