//! Reservations some of whose counters are in a store.

use std::time::Duration;

use rategate::Clock;
use rategate::charge::{Committed, Settled};
use smallvec::SmallVec;

use super::requests::{Ended, Estimate};
use super::split::Split;
use super::{Cost, Counting, End, Reserved};
use crate::engine::Engine;
use crate::engine::answer::{Answer, ItemResult, Verdict};
use crate::engine::error::EngineError;
use crate::engine::hold_change::{HoldChange, HoldOutcome};
use crate::engine::unique_id::UniqueId;

/// Holds the permits of all items, or of none.
///
/// Of a take, which is committed at once, a hold that has ended passes: committed, it is charged,
/// as late. So a take of which a part had ended before it was made is taken as a whole.
pub(super) async fn reserve<C: Clock + Clone + 'static>(
    engine: &Engine<C>,
    split: &Split<C>,
    id: UniqueId,
    (ttl, is_take): (Duration, bool),
) -> Result<Reserved, EngineError> {
    let inner = &*engine.inner;
    let _operation = inner.reservations.in_progress.begin(id).await;
    let known = engine.known_here(split, id)?;
    let is_known = known.is_some();
    let sent_ns = inner.clock.now_ns();
    let mut estimates = split.hold(inner, id, ttl).await?;
    if let Some(known) = &known {
        split.keep_decided(id, known, &mut estimates, is_take).await;
    }
    let left_ns = estimates.iter().filter_map(|estimate| estimate.ends_in_ns).min();
    let mut is_repeated = estimates.iter().all(|estimate| estimate.is_repeated);
    let passes = estimates.iter().all(|estimate| estimate.passes(is_take));
    let here = match &known {
        // A take goes on with its end.
        Some(known) if known.ends_after_ns.is_none() && (passes || !is_take) => {
            Ok((engine.results_here(split, known), false, None))
        }
        _ if !passes => engine.peek_here(split).map(|results| (results, false, None)),
        Some(known) => {
            let ends_after_ns = known.ends_after_ns;
            Ok((engine.results_here(split, known), ends_after_ns.is_some(), ends_after_ns))
        }
        None => {
            is_repeated &= !split.counts_here;
            engine.hold_here(split, id, ttl, (&estimates, sent_ns))
        }
    };
    let is_over = estimates.iter().any(|estimate| estimate.is_over);
    let is_unavailable = estimates.iter().any(|estimate| estimate.result.verdict.is_unavailable());
    let is_denied = !matches!(here, Ok((_, true, _)));
    // What was held before may have been answered before. A denial says that nothing is.
    let all = !is_known && !is_over && !is_unavailable;
    let is_held = |it: &Estimate| it.ends_in_ns.is_some() && (all || !it.is_repeated);
    let withdrawn = estimates.iter().enumerate().filter(|(_, it)| is_denied && is_held(it));
    let withdrawn: Vec<usize> = withdrawn.map(|(index, _)| index).collect();
    split.withdraw(id, &withdrawn).await;
    let (mut results, allowed, ends_here_ns) = here?;
    let counts = &inner.reservations.counts;
    match allowed {
        true if is_repeated => counts.repeated(),
        false if is_over || is_known => counts.repeated(),
        false if is_unavailable => counts.unavailable(),
        _ => {}
    }
    for (index, (item, estimate)) in split.stored.iter().zip(estimates).enumerate() {
        let Estimate { mut result, is_repeated, permits, ends_in_ns, .. } = estimate;
        if withdrawn.contains(&index) {
            result.add_withdrawn(permits);
        }
        if allowed {
            result.set_held(if ends_in_ns.is_some() { permits } else { 0 });
        }
        if !is_repeated && (allowed || result.verdict.is_refusal()) {
            match result.verdict {
                Verdict::Granted => split.report(item, &HoldChange::of(HoldOutcome::Held)),
                Verdict::Denied { enforced: true, .. } => {
                    split.report(item, &HoldChange::of(HoldOutcome::Denied));
                }
                _ => {}
            }
            split.notify(inner, item, permits, &result);
        }
        results.push((item.at, result));
    }
    // Where nothing is held in a store, it lasts as long as it would otherwise.
    let ends_after_ns = [left_ns, ends_here_ns].into_iter().flatten().min().filter(|_| allowed);
    let answer = Answer { allowed, results: split.gathered(results) };
    Ok(Reserved { answer, is_repeated: is_repeated || is_over, ends_after_ns })
}

/// Ends a reservation of which so much was used of each item, and of each hold in the store; as
/// much as was held if `None`.
pub(super) async fn end<C: Clock + Clone + 'static>(
    engine: &Engine<C>,
    split: &Split<C>,
    id: UniqueId,
    (used_here, used): (SmallVec<[Option<u64>; 1]>, Vec<Option<u64>>),
    (end, counting): (End, Counting),
) -> Result<Reserved, EngineError> {
    let inner = &*engine.inner;
    let _operation = inner.reservations.in_progress.begin(id).await;
    // The end here is remembered, so the same again goes on with the store.
    let here = engine.end_held_here(split, id, &used_here, end)?;
    let is_repeated_here = here.is_repeated;
    let mut ended = split.end(inner, (id, &used), end).await?;
    let has_ended = |verdict: Verdict| verdict != Verdict::Unknown && !verdict.is_unavailable();
    let is_known = here.known.is_some() || ended.iter().any(|own| has_ended(own.result.verdict));
    for (item, Ended { result, is_repeated, change }) in split.stored.iter().zip(&mut ended) {
        let known = here.known.as_ref().and_then(|known| known.get(item.at));
        // What is not enforced may not have been held, and what permits in flight of this process
        // ended with is known here alone after a restart. What was admitted without the store's
        // reply was not held either: it stays unknown, so that the caller charges what it has used.
        let is_decided_here =
            !split.is_enforced(item) || split.is_in_flight_here(item) && here.known.is_some();
        if is_known && result.verdict == Verdict::Unknown && is_decided_here {
            let nothing = end.verdict(Committed::InTime(Settled::Even));
            (result.verdict, *is_repeated) = (known.map_or(nothing, |it| it.of_nothing()), true);
        }
        // All items here end at one instant.
        if split.is_in_flight_here(item)
            && let Some(known) = known.filter(|known| known.is_late() != result.verdict.is_late())
            && has_ended(result.verdict)
        {
            result.verdict = known.of_nothing();
            if let Some(change) = change {
                change.outcome = end.outcome(known.is_late());
            }
        }
    }
    let is_repeated = is_repeated_here && ended.iter().all(|own| own.is_repeated);
    let (was_over, here) = (here.was_over, here.own);
    let stored = ended.iter().map(|own| own.result.verdict);
    let verdicts: Vec<Verdict> = stored.chain(here.0.iter().copied()).collect();
    let counts = &inner.reservations.counts;
    if verdicts.iter().any(Verdict::is_unavailable) {
        counts.unavailable();
    } else if is_repeated {
        if counting != Counting::NoRepetition {
            counts.repeated();
        }
    } else if verdicts.contains(&Verdict::Unknown) {
        counts.unknown();
    }
    let allowed = verdicts.iter().all(|&verdict| end.has_effect(verdict));
    let mut results: Vec<(usize, ItemResult)> = engine.results_of(split, &here, allowed);
    for (item, Ended { result, is_repeated, change }) in split.stored.iter().zip(ended) {
        if let Some(change) = change {
            // What a store ends by its time is seen here first, unless it is one of this process.
            let is_reported = was_over && split.is_in_flight_here(item);
            if change.outcome == HoldOutcome::Late && !is_reported {
                split.report(item, &HoldChange::expired(0));
            }
            split.report(item, &change);
        }
        if !is_repeated {
            split.notify_settled(inner, item, &result);
        }
        results.push((item.at, result));
    }
    let mut answer = Answer { allowed, results: split.gathered(results) };
    if !split.usages.is_empty() || answer.results.iter().any(ItemResult::may_be_saturated) {
        split.with_costs(&used_here, |costs| answer.set_costs(costs.iter().map(Cost::stated)));
    }
    Ok(Reserved { answer, is_repeated, ends_after_ns: None })
}
