//! Models of the average schedule: a counter, and a cached clock.
//!
//! No model has two threads add while a third seals and opens again. The checker would let a
//! later load of the word find an addition to the sealed word in place of the store that has
//! opened it since. But the addition, which read the sealed word, can only come before that
//! store.

use std::time::Duration;

use rategate_core::rate::Rate;
use rategate_core::two_timeline::{Mode, TwoTimeline};

use crate::model::Act::{LockedSection, Peek, Remaining, Set, Try, TryMany};
use crate::model::{self, Act, History, Model, Observed};
use crate::oracle::Plain;

type Oracle = Plain;

fn average(slice_ns: u64) -> TwoTimeline {
    let rate = Rate::new(1, Duration::from_nanos(slice_ns)).unwrap();
    TwoTimeline::new(rate, Mode::Average, None)
}

/// Returns a model whose schedule starts at zero: a call at 10 000 with a slice of 1 ns is far
/// behind.
fn model(policies: &[TwoTimeline], before: &[Act], threads: &[&[Act]]) -> Model {
    model::model(policies, 0, before, threads)
}

/// Checks each operation once: with single permits the instants of the schedule are distinct.
fn assert_distinct(story: &History) {
    let mut scheduled: Vec<u64> = story
        .events()
        .filter(|event| event.permits == 1)
        .filter_map(|event| match event.observed {
            Observed::Granted { scheduled_ns, .. } => Some(scheduled_ns),
            _ => None,
        })
        .collect();
    scheduled.sort_unstable();
    assert!(scheduled.windows(2).all(|pair| pair[0] < pair[1]), "{story:#?}");
}

fn holds(model: &Model) {
    model.clone().linearises_under::<Oracle>(assert_distinct);
}

#[test]
fn quick_operations_start_when_due() {
    holds(&model(&[average(100)], &[], &[&[Try(150), Try(250)], &[Try(120), Peek(210)]]));
    holds(&model(&[average(100)], &[Try(0)], &[&[TryMany(250, 2)], &[Try(250), Remaining(250)]]));
}

/// Two threads, both far behind schedule, take operations by addition.
#[test]
fn quick_additions_hand_out_each_operation_once() {
    holds(&model(&[average(1)], &[Try(10_000)], &[&[Try(10_005), Try(9_000)], &[Try(10_010)]]));
}

/// The first caller reads the clock for the second.
#[test]
fn quick_the_cached_clock_is_one_that_was_read() {
    holds(&model(&[average(1)], &[], &[&[Try(10_000), Try(10_020)], &[Try(10_010)]]));
}

/// An operation reads the clock for the others, while these add.
#[test]
fn quick_additions_go_on_while_the_clock_is_refreshed() {
    let before = [TryMany(10_000, 62)];
    holds(&model(
        &[average(1)],
        &before,
        &[&[Try(10_100), Try(10_101), Try(10_102)], &[Try(10_050)]],
    ));
}

/// An addition to a sealed word is no grant.
#[test]
fn quick_sealing_loses_and_invents_nothing() {
    holds(&model(
        &[average(1)],
        &[Try(10_000)],
        &[&[Try(10_000), Try(10_000)], &[LockedSection(10_000)]],
    ));
    holds(&model(&[average(100)], &[], &[&[Try(150)], &[Try(150)], &[LockedSection(150)]]));
}

/// An addition from before a change is undone, or lost if the form is sealed first.
///
/// The backlog is worked off, so that the form opens with new numbers.
#[test]
fn quick_an_addition_to_other_numbers_is_taken_back() {
    let policies = [average(1), average(1_000)];
    let drain = [TryMany(10_000, 10_000), Set(10_000, 1)];
    let mut model = model(&policies, &[Try(10_000)], &[&[Try(10_000)], &drain]);
    model.may_lose = true;
    model.linearises::<Oracle>();
}

#[test]
fn quick_new_numbers_are_never_mixed_with_old_ones() {
    let policies = [average(100), average(10_000), average(7)];
    let sets = [Set(150, 1), Set(150, 2)];
    let before = [Try(0), Try(100)];
    model(&policies, &before, &[&[Try(150)], &sets]).linearises::<Oracle>();
    model(&policies, &before, &[&[Peek(150)], &sets]).linearises::<Oracle>();
}

#[test]
fn quick_tries_fall_back_to_the_ledger() {
    let mut model =
        model(&[average(1)], &[Try(10_000)], &[&[Try(10_000)], &[LockedSection(10_000)]]);
    model.falls_back = true;
    holds(&model);
}

#[test]
fn full_three_threads_add_and_swap() {
    let mut model = model(
        &[average(1)],
        &[Try(2_060)],
        &[&[Try(2_060), Try(2_070)], &[Try(2_060), Try(2_050)], &[Try(3_000)]],
    );
    holds(&model);
    model.preemptions = 3;
    model.threads.pop();
    holds(&model);
}

/// Two late additions to other numbers invent no operation.
///
/// In between one may see the other's, so single operations may be taken in another's position;
/// their number is right, and none starts early.
#[test]
fn full_late_additions_invent_nothing() {
    let policies = [average(1), average(1_000)];
    let drain = [TryMany(10_000, 9_998), Set(10_000, 1), Try(11_500)];
    let tries = [&[Try(10_000)][..], &[Try(10_000)], &drain];
    model(&policies, &[Try(10_000)], &tries).explore(|story| {
        let late = story.events().filter(|event| event.at_ns == 11_500);
        let late = late.filter(|event| matches!(event.observed, Observed::Granted { .. })).count();
        // Due by 10 000 are 10 001 operations, and one more by 11 500.
        assert!(story.starts().len() <= 10_001 + late, "{story:#?}");
        assert!(late <= 1, "{story:#?}");
    });
}
