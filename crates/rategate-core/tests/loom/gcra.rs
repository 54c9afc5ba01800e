//! Models of the bucket: one word.

use std::time::Duration;

use rategate_core::gcra::Gcra;
use rategate_core::rate::Rate;

use crate::model::Act::{LockedSection, Peek, Remaining, Set, Try, TryMany};
use crate::model::{self, Act, History, Model};
use crate::oracle::Plain;

type Oracle = Plain;

/// Returns a bucket that earns one permit each `slice_ns`.
fn gcra(slice_ns: u64, burst: u64) -> Gcra {
    Gcra::new(Rate::new(1, Duration::from_nanos(slice_ns)).unwrap(), burst).unwrap()
}

fn model(policies: &[Gcra], before: &[Act], threads: &[&[Act]]) -> Model {
    model::model(policies, 100, before, threads)
}

/// Checks for `ceil((W + tau) / T)` permits in any window, for each span from one grant to
/// another.
fn assert_ceiling(story: &History, slice_ns: u64, burst: u64) {
    let starts = story.starts();
    for (first, from_ns) in starts.iter().enumerate() {
        for (last, to_ns) in starts.iter().enumerate().skip(first) {
            let window_ns = to_ns - from_ns + 1;
            let max = (window_ns + (burst - 1) * slice_ns).div_ceil(slice_ns);
            assert!(u64::try_from(last - first).unwrap() < max, "{story:#?}");
        }
    }
}

/// Two and two tries at the same instant for a burst of three: one is denied.
#[test]
fn quick_no_more_than_a_burst_passes() {
    let model = model(&[gcra(1_000, 3)], &[], &[&[Try(200), Try(200)], &[Try(200), Try(200)]]);
    model.linearises_under::<Oracle>(|story| {
        assert_eq!(story.starts().len(), 3);
        assert_ceiling(story, 1_000, 3);
    });
}

/// One thread's clock is behind the other's, by more and by less than a permit's time.
#[test]
fn quick_clocks_apart_keep_the_ceiling() {
    for behind_ns in [10, 100, 250] {
        let late = 500 - behind_ns;
        let model = model(
            &[gcra(100, 2)],
            &[Try(150)],
            &[&[Try(500), Try(500), Peek(510)], &[Try(late), Remaining(late), Try(late + 100)]],
        );
        model.linearises_under::<Oracle>(|story| assert_ceiling(story, 100, 2));
    }
}

/// A try that overlaps a sealing is in the ledger, or it has not happened.
#[test]
fn quick_sealing_loses_and_invents_nothing() {
    model(&[gcra(1_000, 2)], &[], &[&[Try(200), Try(200)], &[Try(200)], &[LockedSection(200)]])
        .linearises::<Oracle>();
}

/// Both slots of numbers are rewritten while threads try. A full bucket stays full: all three
/// words would look the same if the values did not continue.
#[test]
fn quick_new_numbers_are_never_mixed_with_old_ones() {
    let policies = [gcra(10, 3), gcra(1_000, 2), gcra(100_000, 1)];
    model(&policies, &[], &[&[Try(200), Try(200)], &[Set(200, 1), Set(200, 2)]])
        .linearises::<Oracle>();
}

/// A denial and a peek report the wait by the numbers that were in force, never by half of them.
#[test]
fn quick_a_denial_is_decided_by_one_configuration() {
    let policies = [gcra(1_000, 1), gcra(10, 1), gcra(300, 3)];
    let sets = [Set(200, 1), Set(200, 2)];
    model(&policies, &[Try(200)], &[&[Try(200)], &sets]).linearises::<Oracle>();
    model(&policies, &[Try(200)], &[&[Peek(200)], &sets]).linearises::<Oracle>();
    model(&policies, &[Try(200)], &[&[Remaining(200)], &sets]).linearises::<Oracle>();
}

/// Two threads reach the third configuration, whose slot contained the first, knowing only its
/// word.
#[test]
fn quick_who_sees_a_word_sees_its_numbers() {
    let policies = [gcra(1_000, 1), gcra(10, 2), gcra(300, 3)];
    let tries = [&[Try(200)][..], &[Try(200)], &[Set(200, 2)]];
    model(&policies, &[Set(150, 1)], &tries).linearises::<Oracle>();
}

/// The word of a form that is opened again with the previous numbers names them as well.
#[test]
fn quick_who_sees_a_word_opened_again_sees_its_numbers() {
    let policies = [gcra(1_000, 1), gcra(10, 2), gcra(300, 3)];
    let sections = [Set(200, 1), Set(200, 2), LockedSection(200)];
    model(&policies, &[], &[&[Try(200)], &sections]).linearises::<Oracle>();
}

/// A try that finds the form sealed takes the lock, as in a limiter.
#[test]
fn quick_tries_fall_back_to_the_ledger() {
    let mut model =
        model(&[gcra(1_000, 2)], &[], &[&[Try(200), TryMany(200, 2)], &[LockedSection(200)]]);
    model.falls_back = true;
    model.linearises::<Oracle>();
}

#[test]
fn full_three_threads_near_the_burst() {
    let mut model =
        model(&[gcra(100, 3)], &[Try(150)], &[&[Try(300), Try(310)], &[Try(290)], &[Try(350)]]);
    model.preemptions = 3;
    model.linearises_under::<Oracle>(|story| assert_ceiling(story, 100, 3));
}

#[test]
fn full_a_limiter_with_new_numbers_twice() {
    let policies = [gcra(1_000, 1), gcra(10, 2), gcra(300, 3)];
    let mut model = model(&policies, &[], &[&[Try(200), Try(210)], &[Set(200, 1), Set(205, 2)]]);
    model.falls_back = true;
    model.preemptions = 3;
    model.linearises::<Oracle>();
}

#[test]
fn full_two_threads_try_and_a_third_changes_the_numbers() {
    let policies = [gcra(10, 3), gcra(1_000, 2), gcra(100_000, 1)];
    let mut model = model(
        &policies,
        &[],
        &[&[Try(200), Try(200)], &[Try(190), Peek(200)], &[Set(200, 1), Set(200, 2)]],
    );
    model.falls_back = true;
    model.preemptions = 1;
    model.linearises::<Oracle>();
}
