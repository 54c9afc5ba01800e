//! Metrics export: the only file that names the `metrics` facade.
//!
//! A limit's name becomes a label; a key never does.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use super::counts::Counts;
#[cfg(feature = "distributed")]
use crate::store::StoreStatus;

const CALLS: &str = "rategate_calls_total";
const PERMITS: &str = "rategate_permits_total";
const NEAR_CALLS: &str = "rategate_near_calls_total";
const OVERFLOWS: &str = "rategate_overflows_total";
const KEYS: &str = "rategate_keys";
#[cfg(feature = "distributed")]
const DECIDED: &str = "rategate_distributed_calls_total";
#[cfg(feature = "distributed")]
const CHANGES: &str = "rategate_store_changes_total";
#[cfg(feature = "distributed")]
const DROPPED_CHARGES: &str = "rategate_dropped_charges_total";
#[cfg(feature = "distributed")]
const WAITING_CHARGES: &str = "rategate_waiting_charges";
#[cfg(feature = "distributed")]
const STORE: &str = "rategate_store_state";

/// Describes the metrics to the installed recorder, which has no help texts for them otherwise.
///
/// Call it once, after the recorder is installed.
pub fn describe() {
    describe_counter!(CALLS, Unit::Count, "Calls that a limit granted or denied");
    describe_counter!(PERMITS, Unit::Count, "Permits that calls were granted or denied");
    describe_counter!(NEAR_CALLS, Unit::Count, "Granted calls that left less than a tenth");
    describe_counter!(OVERFLOWS, Unit::Count, "New keys that a full table had no capacity for");
    describe_gauge!(KEYS, Unit::Count, "Keys in a table");
    #[cfg(feature = "distributed")]
    describe_distributed();
}

#[cfg(feature = "distributed")]
fn describe_distributed() {
    describe_counter!(
        DECIDED,
        Unit::Count,
        "Calls of a distributed limit, by the party that decided"
    );
    describe_counter!(CHANGES, Unit::Count, "Changes of a store's status");
    describe_counter!(
        DROPPED_CHARGES,
        Unit::Count,
        "Permits used beyond a reservation that no store was charged"
    );
    describe_gauge!(
        WAITING_CHARGES,
        Unit::Count,
        "Permits used beyond a reservation that wait to be charged to a store"
    );
    describe_gauge!(
        STORE,
        Unit::Count,
        "Status of a store: 0 available, 1 quarantined, 2 unavailable"
    );
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
    // More keys than that do not fit in any memory.
    let keys = f64::from(u32::try_from(keys).unwrap_or(u32::MAX));
    gauge!(KEYS, "limit" => limit.to_owned()).set(keys);
}

/// The figures of a distributed limit.
#[cfg(feature = "distributed")]
pub(crate) struct Distributed {
    /// The calls granted and denied by each party that decides.
    pub(crate) calls: [(&'static str, u64, u64); 3],
    pub(crate) changes: u64,
    pub(crate) dropped_charges: u64,
    pub(crate) waiting_charges: u64,
    pub(crate) store_status: StoreStatus,
}

#[cfg(feature = "distributed")]
pub(crate) fn distributed(limit: &str, figures: &Distributed) {
    for (by, granted, denied) in figures.calls {
        for (outcome, calls) in [("granted", granted), ("denied", denied)] {
            counter!(DECIDED, "limit" => limit.to_owned(), "by" => by, "outcome" => outcome)
                .absolute(calls);
        }
    }
    counter!(CHANGES, "limit" => limit.to_owned()).absolute(figures.changes);
    counter!(DROPPED_CHARGES, "limit" => limit.to_owned()).absolute(figures.dropped_charges);
    let waiting = f64::from(u32::try_from(figures.waiting_charges).unwrap_or(u32::MAX));
    gauge!(WAITING_CHARGES, "limit" => limit.to_owned()).set(waiting);
    let state = match figures.store_status {
        StoreStatus::Healthy => 0_u8,
        StoreStatus::Quarantined => 1,
        StoreStatus::Unavailable => 2,
    };
    gauge!(STORE, "limit" => limit.to_owned()).set(f64::from(state));
}
