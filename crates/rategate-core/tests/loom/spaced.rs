//! Models of the schedules that space operations: a word with a parity, and a count.

use std::time::Duration;

use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::two_timeline::{Mode, TwoTimeline};

use crate::model::Act::{Change, LockedSection, Peek, Remaining, Set, Try};
use crate::model::{self, Act, History, Model, Observed};
use crate::oracle::Plain;

type Oracle = Plain;

fn timeline(slice_ns: u64, mode: Mode, catch_up_ns: Option<u64>) -> TwoTimeline {
    TwoTimeline::new(
        Rate::new(1, Duration::from_nanos(slice_ns)).unwrap(),
        mode,
        catch_up_ns.map(Duration::from_nanos),
    )
}

fn strict(slice_ns: u64) -> TwoTimeline {
    timeline(slice_ns, Mode::Strict, None)
}

fn burst(slice_ns: u64) -> TwoTimeline {
    timeline(slice_ns, Mode::Burst(Ratio::new(3, 2).unwrap()), None)
}

fn damped(slice_ns: u64) -> TwoTimeline {
    timeline(slice_ns, Mode::from_compensation(0.5).unwrap(), None)
}

fn bounded(slice_ns: u64) -> TwoTimeline {
    timeline(slice_ns, Mode::Average, Some(2 * slice_ns))
}

/// Returns every mode with its closest spacing.
fn modes(slice_ns: u64) -> [(TwoTimeline, u64); 4] {
    [
        (strict(slice_ns), slice_ns),
        (burst(slice_ns), slice_ns * 2 / 3),
        (damped(slice_ns), 0),
        (bounded(slice_ns), 0),
    ]
}

fn model(policies: &[TwoTimeline], before: &[Act], threads: &[&[Act]]) -> Model {
    model::model(policies, 0, before, threads)
}

/// Checks each operation once, at its own scheduled instant, in order and with none left out.
fn assert_each_once(story: &History, slice_ns: u64) {
    let scheduled = story.events().filter_map(|event| match event.observed {
        Observed::Granted { scheduled_ns, .. } => Some(scheduled_ns),
        _ => None,
    });
    let mut scheduled: Vec<u64> = scheduled.collect();
    scheduled.sort_unstable();
    let ideal: Vec<u64> = (0..).map(|nth| nth * slice_ns).take(scheduled.len()).collect();
    assert_eq!(scheduled, ideal, "{story:#?}");
}

/// Checks a model whose slice does not change.
fn holds(model: &Model, slice_ns: u64, spacing_ns: u64) {
    model.clone().linearises_under::<Oracle>(move |story| {
        assert_each_once(story, slice_ns);
        let starts = story.starts();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= spacing_ns), "{story:#?}");
    });
}

/// The schedule is some slices behind, and the clocks are apart.
#[test]
fn quick_operations_start_when_due() {
    for (policy, spacing_ns) in modes(90) {
        let tries = [&[Try(250), Try(330)][..], &[Try(240), Try(320)]];
        holds(&model(&[policy], &[], &tries), 90, spacing_ns);
        let status = [&[Try(250), Peek(260)][..], &[Try(240), Remaining(300)]];
        holds(&model(&[policy], &[Try(20)], &status), 90, spacing_ns);
    }
}

/// The winner, the thread that counts for it and the thread that helps late are three.
#[test]
fn quick_three_threads_count_each_operation_once() {
    for (policy, spacing_ns) in modes(90) {
        let mut model = model(&[policy], &[], &[&[Try(1_000)], &[Try(1_010)], &[Try(1_100)]]);
        holds(&model, 90, spacing_ns);
        model.before = vec![Try(10)];
        holds(&model, 90, spacing_ns);
    }
}

/// A grant that has not counted itself is counted by the thread that seals.
#[test]
fn quick_sealing_loses_and_invents_nothing() {
    for (policy, spacing_ns) in modes(90) {
        let tries = [&[Try(1_000), Try(1_100)][..], &[LockedSection(1_000)]];
        holds(&model(&[policy], &[], &tries), 90, spacing_ns);
    }
    let tries = [&[Try(1_000)][..], &[Try(1_000)], &[LockedSection(1_000)]];
    holds(&model(&[damped(90)], &[], &tries), 90, 0);
}

/// A word with new numbers never equals an old one.
///
/// Two configurations later the dispatch instant is again 200 parts from its origin and the
/// parity the same: the word would look the same if its values did not continue. The peek after
/// both shows which of the grants came before.
#[test]
fn quick_new_numbers_are_never_mixed_with_old_ones() {
    let sets = [Set(150, 1), Set(150, 2), Peek(210)];
    let before = [Try(0), Try(100)];
    let mut model = model(&[100, 1_000, 400].map(strict), &before, &[&[Try(210)], &sets]);
    // Each of the twelve numbers may be seen old or new, without any preemption.
    model.preemptions = 0;
    model.linearises::<Oracle>();
}

/// A thread reaches the third configuration knowing only its word, which another has moved.
#[test]
fn quick_who_sees_a_word_sees_its_numbers() {
    let policies = [strict(100), damped(1_000), burst(60)];
    let before = [Try(0), Try(100), Set(150, 1)];
    let mut model = model(&policies, &before, &[&[Try(210)], &[Try(230)], &[Set(150, 2)]]);
    model.preemptions = 1;
    model.linearises::<Oracle>();
}

/// A change of the mode seals one form and opens the other.
#[test]
fn quick_a_change_of_the_mode_moves_to_the_other_lock_free_form() {
    let average = timeline(100, Mode::Average, None);
    let before = [Try(0), Try(100)];
    for (other, at_ns) in [(strict(400), 210), (average, 360)] {
        let first = if other == average { damped(400) } else { average };
        let mut model = model(&[first, other], &before, &[&[Try(at_ns)], &[Change(150, 1)]]);
        if other == average {
            model.before = vec![Try(0), Try(400)];
            model.threads = vec![vec![Try(850)], vec![Change(500, 1), Peek(600)]];
        }
        model.clone().linearises::<Oracle>();
        model.falls_back = true;
        model.linearises::<Oracle>();
    }
}

#[test]
fn quick_tries_fall_back_to_the_ledger() {
    for (policy, spacing_ns) in modes(90) {
        let mut model = model(&[policy], &[], &[&[Try(1_000)], &[LockedSection(1_000)]]);
        model.falls_back = true;
        holds(&model, 90, spacing_ns);
    }
}

#[test]
fn full_three_threads_while_one_seals() {
    for (policy, spacing_ns) in modes(90) {
        let tries = [&[Try(1_000), Try(1_100)][..], &[Try(1_050)], &[LockedSection(1_000)]];
        let mut model = model(&[policy], &[], &tries);
        model.preemptions = 1;
        holds(&model, 90, spacing_ns);
    }
}

#[test]
fn full_three_threads_with_three_preemptions() {
    for (policy, spacing_ns) in modes(90) {
        let tries = [&[Try(1_000), Try(1_100)][..], &[Try(1_050), Try(1_090)], &[Try(1_200)]];
        let mut model = model(&[policy], &[], &tries);
        model.preemptions = 3;
        holds(&model, 90, spacing_ns);
    }
}

#[test]
fn full_a_limiter_that_changes_its_mode_twice() {
    let policies = [strict(100), timeline(1_000, Mode::Average, None), burst(400)];
    let changes = [Change(150, 1), Change(160, 2)];
    let mut model = model(&policies, &[Try(0), Try(100)], &[&[Try(210), Try(220)], &changes]);
    model.falls_back = true;
    model.linearises::<Oracle>();
}
