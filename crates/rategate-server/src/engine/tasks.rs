//! The items of a request with their counters, and how items of one request affect each other.
//!
//! Items of rules that another rule replaces are not decided. Items of one counter are decided as
//! one, for the sum.

use std::sync::Arc;

use rategate::Clock;
use smallvec::SmallVec;

use super::answer::{ItemResult, Verdict};
use super::counter::Counter;
use super::request::Verb;
use crate::rule::{Limit, Rule};

/// The work on the items of a request, in their order.
pub(super) type Tasks<'a, C> = SmallVec<[Task<'a, C>; 4]>;

/// The work on one item.
pub(super) enum Task<'a, C: Clock> {
    Acquisition(PendingItem<'a, C>),
    Done(ItemResult),
}

/// An item with its counter.
pub(super) struct PendingItem<'a, C: Clock> {
    pub(super) counter: Counter<'a, C>,
    pub(super) permits: u64,
    pub(super) verb: Verb,
    /// `true` if the item counts as a quota whatever its rule is.
    pub(super) quota: bool,
    /// `true` if a denial of the item denies a caller, even if the item takes nothing.
    pub(super) is_decision: bool,
    /// The index of an earlier item with the same counter, which takes the permits of both.
    pub(super) same_as: Option<usize>,
    /// `true` if the item is only peeked at, since another window alone counts the request.
    pub(super) is_uncharged: bool,
    pub(super) result: Option<ItemResult>,
}

impl<C: Clock + Clone> PendingItem<'_, C> {
    /// Returns `true` for a take from a counter that counts every hit.
    pub(super) fn is_counted_take(&self) -> bool {
        self.verb == Verb::Take && self.counter.counts_all()
    }

    pub(super) fn is_quota(&self) -> bool {
        self.counter.is_quota(self.quota)
    }

    pub(super) fn is_enforced_take(&self) -> bool {
        self.verb == Verb::Take && self.counter.is_enforced()
    }
}

impl<C: Clock> Task<'_, C> {
    pub(super) fn into_result(self) -> ItemResult {
        match self {
            Self::Done(result) => result,
            Self::Acquisition(item) => item.result.unwrap_or(ItemResult::UNMATCHED),
        }
    }
}

/// Returns the enforced takes that are not decided yet, with their indices.
pub(super) fn takes<'t, 'a, C: Clock + Clone>(
    tasks: &'t [Task<'a, C>],
) -> impl Iterator<Item = (usize, &'t PendingItem<'a, C>)> {
    tasks.iter().enumerate().filter_map(|(index, task)| match task {
        Task::Acquisition(item)
            if item.same_as.is_none() && item.result.is_none() && item.is_enforced_take() =>
        {
            Some((index, item))
        }
        _ => None,
    })
}

/// Marks the items whose rules are replaced by another rule of the request, or are `replaced` by
/// one in a store.
pub(super) fn replace<C: Clock + Clone>(tasks: &mut Tasks<'_, C>, replaced: &[Arc<str>]) {
    let rules = tasks.iter().filter_map(|task| match task {
        Task::Acquisition(item) => Some(&item.counter.ruled()?.rule),
        Task::Done(_) => None,
    });
    let rules: SmallVec<[Arc<Rule>; 4]> =
        rules.filter(|rule| !rule.replaces.is_empty()).map(Arc::clone).collect();
    let is_replaced = |name: &Arc<str>| {
        replaced.contains(name) || rules.iter().any(|rule| rule.replaces.contains(name))
    };
    for task in tasks.iter_mut().filter(|_| !rules.is_empty() || !replaced.is_empty()) {
        if let Task::Acquisition(item) = task
            && let Some(ruled) = item.counter.ruled()
            // An unlimited rule limits nothing, so there is nothing to replace.
            && ruled.counters.in_force().limit != Limit::Unlimited
            && is_replaced(&ruled.rule.name)
        {
            *task = Task::Done(ruled.result(Verdict::Replaced));
        }
    }
}

/// Merges items of the same counter into one that takes the sum.
pub(super) fn merge<C: Clock + Clone>(tasks: &mut Tasks<'_, C>) {
    for later in 1..tasks.len() {
        let (before, rest) = tasks.split_at_mut(later);
        let Some(Task::Acquisition(item)) = rest.first_mut() else { continue };
        for (index, task) in before.iter_mut().enumerate() {
            if let Task::Acquisition(first) = task
                && first.same_as.is_none()
                && first.verb == item.verb
                && first.counter.is(&item.counter)
            {
                first.permits = first.permits.saturating_add(item.permits);
                item.same_as = Some(index);
                break;
            }
        }
    }
}

/// Copies the result to merged items. Refunded and charged permits are split between them, in
/// order.
pub(super) fn split_merged<C: Clock + Clone>(tasks: &mut Tasks<'_, C>) {
    for later in (1..tasks.len()).rev() {
        let (before, rest) = tasks.split_at_mut(later);
        let Some(Task::Acquisition(item)) = rest.first_mut() else { continue };
        let Some(Task::Acquisition(first)) = item.same_as.and_then(|first| before.get_mut(first))
        else {
            continue;
        };
        first.permits = first.permits.saturating_sub(item.permits);
        item.result.clone_from(&first.result);
        if let (
            Some(ItemResult { verdict: Verdict::Refunded(all) | Verdict::Charged(all), .. }),
            Some(ItemResult { verdict: Verdict::Refunded(own) | Verdict::Charged(own), .. }),
        ) = (&mut first.result, &mut item.result)
        {
            *own = all.saturating_sub(first.permits);
            *all = all.saturating_sub(*own);
        }
    }
}
