//! Models of the window: one word.

use std::time::Duration;

use rategate_core::fixed_window::{Anchor, FixedWindow};

use crate::model::Act::{LockedSection, Peek, Remaining, Set, Try, TryMany};
use crate::model::{self, Act, History, Model};
use crate::oracle::Plain;

type Oracle = Plain;

fn window(permits: u64) -> FixedWindow {
    FixedWindow::new(permits, Duration::from_nanos(1_000), Anchor::Epoch)
}

fn model(policies: &[FixedWindow], before: &[Act], threads: &[&[Act]]) -> Model {
    model::model(policies, 100, before, threads)
}

fn assert_ceiling(story: &History, permits: usize) {
    for number in 0..3 {
        let starts = story.starts();
        let within = starts.iter().filter(|&start_ns| start_ns / 1_000 == number);
        assert!(within.count() <= permits, "{story:#?}");
    }
}

/// Two and two tries for three permits: one is denied.
#[test]
fn quick_no_more_than_the_permits_pass() {
    let model = model(&[window(3)], &[], &[&[Try(200), Try(200)], &[Try(210), Try(190)]]);
    model.linearises_under::<Oracle>(|story| assert_eq!(story.starts().len(), 3));
}

/// A try that overlaps a sealing is in the ledger, or it has not happened.
#[test]
fn quick_sealing_loses_and_invents_nothing() {
    let threads = [&[Try(200), Try(200)][..], &[Try(200)], &[LockedSection(200)]];
    model(&[window(2)], &[], &threads).linearises::<Oracle>();
}

/// Both slots of numbers are rewritten while threads try. A window that nobody has used stays
/// unused: all three words would look the same if the values did not continue.
#[test]
fn quick_new_numbers_are_never_mixed_with_old_ones() {
    let policies = [window(3), window(2), window(1)];
    let sets = [Set(200, 1), Set(200, 2)];
    model(&policies, &[], &[&[Try(200), Try(200)], &sets]).linearises::<Oracle>();
    model(&policies, &[], &[&[Remaining(200), Peek(200)], &sets]).linearises::<Oracle>();
}

/// Threads that all come after the border, of which one opens the next window.
#[test]
fn quick_each_window_keeps_its_ceiling() {
    let threads = [&[Try(1_005), TryMany(1_006, 2)][..], &[Try(1_010), Try(1_020)]];
    let mut model = model(&[window(2)], &[Try(990)], &threads);
    model.falls_back = true;
    model.linearises_under::<Oracle>(|story| assert_ceiling(story, 2));
}

/// A thread that stalls for two windows finds none that looks like its own: values continue.
#[test]
fn quick_a_later_window_is_never_taken_for_an_earlier_one() {
    let threads = [&[Try(500)][..], &[Try(600), LockedSection(1_100), LockedSection(2_100)]];
    let model = model(&[window(1)], &[], &threads);
    model.explore(|story| assert_ceiling(story, 1));
}

/// A thread whose clock is behind counts in the window that another has opened.
#[test]
fn quick_clocks_apart_keep_the_ceiling() {
    let threads = [&[Try(1_010), Try(1_020)][..], &[Try(985), Try(990), Try(995)]];
    let mut model = model(&[window(2)], &[Try(300)], &threads);
    model.falls_back = true;
    model.explore(|story| assert_ceiling(story, 2));
}

#[test]
fn full_a_limiter_with_new_numbers_twice() {
    let policies = [window(1), window(3), window(2)];
    let mut model =
        model(&policies, &[], &[&[Try(990), Try(1_010)], &[Set(995, 1), Set(1_005, 2)]]);
    model.falls_back = true;
    model.preemptions = 3;
    model.explore(|story| assert_ceiling(story, 3));
}
