//! The location of a limit's counters: keys of `rate_limit` that Envoy's own service does not
//! have.

use std::time::Duration;

use super::fields::Fields;
use crate::config::gather::Gathered;
use crate::config::limit::LEASE_NS;
use crate::config::native::text::Grammar as _;
use crate::nearest::one_of;
use crate::rule::{CounterLocation, OnUnavailable};

/// Reads `store`, `lease` and `on_unavailable`, which work as in the native format.
pub(super) fn read(
    fields: &mut Fields<'_>,
    all: &mut Gathered,
) -> (CounterLocation, OnUnavailable) {
    let problems = &mut all.problems;
    let store = fields.text("store", problems);
    let lease = fields.text("lease", problems);
    let on_unavailable = fields.text("on_unavailable", problems);
    let is_known =
        store.as_ref().is_none_or(|(text, _)| ["here", "exact", "leased"].contains(text));
    let mut location = match &store {
        None | Some(("here", _)) => CounterLocation::Here,
        Some(("exact", _)) => CounterLocation::StoreExact,
        Some(("leased", _)) => CounterLocation::StoreLeased { lease_ns: LEASE_NS },
        Some((other, spot)) => {
            let message = format!("unknown store {other:?}");
            let problem = fields.problem("store", spot.clone(), &message);
            problems.push(problem.help(one_of(other, "here, exact, leased")));
            CounterLocation::Here
        }
    };
    if let Some((text, spot)) = lease {
        match (Duration::read(text), &mut location) {
            (Err(complaint), _) => problems.push(fields.problem("lease", spot, &complaint)),
            (Ok(lease), CounterLocation::StoreLeased { lease_ns }) => {
                *lease_ns = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
            }
            (Ok(_), _) if is_known => {
                let message = "a lease belongs to store: leased; leave out one of the two";
                problems.push(fields.problem("lease", spot, message));
            }
            (Ok(_), _) => {}
        }
    }
    let (on_unavailable_value, spot) = match on_unavailable {
        None => (OnUnavailable::Local, None),
        Some(("local", spot)) => (OnUnavailable::Local, Some(spot)),
        Some(("deny", spot)) => (OnUnavailable::Deny, Some(spot)),
        Some(("admit", spot)) => (OnUnavailable::Admit, Some(spot)),
        Some((other, spot)) => {
            let message = format!("unknown answer {other:?}");
            let problem = fields.problem("on_unavailable", spot, &message);
            problems.push(problem.help(one_of(other, "local, deny, admit")));
            (OnUnavailable::Local, None)
        }
    };
    if let (Some(spot), CounterLocation::Here, true) = (spot, location, is_known) {
        let message = "it is about counters in a store, and these are here";
        problems.push(fields.problem("on_unavailable", spot, message));
    }
    if let (Some((_, spot)), false) = (store, location == CounterLocation::Here) {
        all.needs_store.get_or_insert(spot);
    }
    (location, on_unavailable_value)
}
