//! Reservations of permits in flight: no table has them, and no time that passes gives them back.

use std::sync::Arc;
use std::time::Duration;

use rategate::Clock;
use rategate::store::{ReservationId, ReserveVerdict};

use super::error::NotRestored;
use super::file::{HeldInFlight, TableOwner};
use super::{named, of_rule};
use crate::engine::Engine;
use crate::engine::counters::ActiveRule;
use crate::engine::live::Live;
use crate::engine::stores::Remote;
use crate::engine::unique_id::UniqueId;
use crate::rule::CounterLocation;

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Returns the reservations of the rules whose permits in flight are in this process.
    pub(super) fn reserved_in_flight(
        &self,
        live: Option<&Live<C>>,
    ) -> Vec<(TableOwner, Vec<HeldInFlight>)> {
        let rules = live.into_iter().flat_map(|live| &live.ruled);
        let of_rules = rules.filter(|ruled| ruled.is_in_flight()).map(|ruled| {
            let all = self.inner.remotes.reserved(&ruled.rule).into_iter();
            let held = all.map(|held| HeldInFlight {
                key: held.key.to_vec(),
                permits: held.permits,
                ends_in_ns: held.ends_in_ns.get(),
            });
            (of_rule(&ruled.rule), held.collect::<Vec<_>>())
        });
        of_rules.filter(|(_, held)| !held.is_empty()).collect()
    }

    /// Holds again what lasts after so much time. Returns the rules of which something is not held,
    /// and the reasons.
    pub(super) fn hold_again(
        live: Option<&Live<C>>,
        saved: Vec<(TableOwner, Vec<HeldInFlight>)>,
        elapsed_ns: u64,
    ) -> Vec<(Arc<str>, NotRestored)> {
        let mut lost = Vec::new();
        for (of, mut all) in saved {
            let TableOwner::Rule { name, .. } = &of else { continue };
            all.retain(|held| held.ends_in_ns > elapsed_ns);
            if all.is_empty() {
                continue;
            }
            // Where fewer fit now, those that last the longest.
            all.sort_by_key(|held| std::cmp::Reverse(held.ends_in_ns));
            let outcome = in_flight_rule(live, &of, name).and_then(|ruled| {
                let remote = ruled.remote.as_ref().ok_or(NotRestored::OtherPolicy)?;
                let not_held = all.iter().filter(|held| !hold(&**remote, held, elapsed_ns));
                let permits = not_held.map(|held| held.permits.get()).fold(0, u64::saturating_add);
                if permits > 0 { Err(NotRestored::InFlight { permits }) } else { Ok(()) }
            });
            if let Err(why) = outcome {
                lost.push((name.as_str().into(), why));
            }
        }
        lost
    }
}

/// Returns a rule that counts permits in flight in this process, under these entries.
fn in_flight_rule<'a, C: Clock + Clone>(
    live: Option<&'a Live<C>>,
    of: &TableOwner,
    name: &str,
) -> Result<&'a ActiveRule<C>, NotRestored> {
    let ruled = named(live, name).ok_or(NotRestored::NoSuchRule)?;
    if of_rule(&ruled.rule) != *of {
        return Err(NotRestored::OtherEntries);
    }
    let is_here = ruled.is_in_flight() && ruled.rule.location == CounterLocation::Here;
    Some(ruled).filter(|_| is_here).ok_or(NotRestored::OtherPolicy)
}

/// Holds a reservation for the rest of its time. Returns `false` if a smaller limit denies it.
fn hold(remote: &dyn Remote, held: &HeldInFlight, elapsed_ns: u64) -> bool {
    // Nobody ends it: its reservation is unknown.
    let id = UniqueId::random();
    let left = Duration::from_nanos(held.ends_in_ns.saturating_sub(elapsed_ns));
    let permits = (held.permits.get(), 0);
    // The memory of this process replies at once.
    let reply = remote.reserve(&held.key, permits, ReservationId(id.0), left).wait();
    reply.is_ok_and(|reply| matches!(reply.verdict, ReserveVerdict::Held { .. }))
}
