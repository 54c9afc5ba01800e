//! Models of the log: a ring of words and a hint at the oldest.

use std::time::Duration;

use rategate_core::sliding_log::SlidingLog;

use crate::model::Act::{LockedSection, Peek, Set, Try};
use crate::model::{self, Act, History, Model};
use crate::oracle::Slots;

fn log(permits: u64, period_ns: u64) -> SlidingLog {
    SlidingLog::new(permits, Duration::from_nanos(period_ns))
}

fn model(policies: &[SlidingLog], before: &[Act], threads: &[&[Act]]) -> Model {
    model::model(policies, 100, before, threads)
}

/// Checks that the N-th grant after another is a window later, whatever the order of the calls.
fn assert_ceiling(story: &History, permits: usize, period_ns: u64) {
    let starts = story.starts();
    for pair in starts.windows(permits + 1) {
        assert!(pair[permits] - pair[0] >= period_ns, "{story:#?}");
    }
}

fn holds(model: &Model, permits: usize, period_ns: u64) {
    let law = move |story: &History| assert_ceiling(story, permits, period_ns);
    model.clone().linearises_under::<Slots>(law);
}

/// Rings of one to three slots, with more tries than slots at one instant.
#[test]
fn quick_no_more_than_the_ring_holds() {
    holds(&model(&[log(1, 100)], &[], &[&[Try(200), Try(200)], &[Try(200)]]), 1, 100);
    holds(&model(&[log(2, 100)], &[], &[&[Try(200), Try(200)], &[Try(200)]]), 2, 100);
    holds(&model(&[log(3, 100)], &[], &[&[Try(200), Try(200)], &[Try(200), Try(200)]]), 3, 100);
}

/// The head moves into a new round while another thread still reads the round before.
#[test]
fn quick_a_thread_that_is_a_lap_behind_denies_nothing_that_is_free() {
    holds(&model(&[log(1, 100)], &[], &[&[Try(300)], &[Try(200), Try(300)]]), 1, 100);
    holds(&model(&[log(2, 100)], &[], &[&[Try(300)], &[Try(200), Try(200), Try(300)]]), 2, 100);
    holds(&model(&[log(2, 100)], &[], &[&[Try(300)], &[Try(200), Try(205)]]), 2, 100);
    holds(
        &model(&[log(2, 100)], &[Try(200)], &[&[Try(300)], &[Try(205), Try(300), Try(310)]]),
        2,
        100,
    );
}

/// One thread takes a slot, another moves the head, and a third reads.
#[test]
fn quick_who_sees_the_head_sees_the_slots_behind_it() {
    holds(&model(&[log(2, 100)], &[], &[&[Try(200)], &[Try(205)], &[Try(300)]]), 2, 100);
}

/// With clocks apart, a window contains no more than N by any clock.
#[test]
fn quick_clocks_apart_keep_the_ceiling() {
    holds(
        &model(&[log(2, 100)], &[Try(150)], &[&[Try(260), Try(340)], &[Try(240), Peek(245)]]),
        2,
        100,
    );
    holds(&model(&[log(1, 100)], &[], &[&[Try(300), Try(400)], &[Try(250), Try(390)]]), 1, 100);
}

/// A grant that overlaps a sealing is in the log, or it has not happened.
#[test]
fn quick_sealing_loses_and_invents_nothing() {
    holds(&model(&[log(1, 100)], &[], &[&[Try(200), Try(200)], &[LockedSection(200)]]), 1, 100);
    holds(
        &model(&[log(2, 100)], &[Try(150)], &[&[Try(200)], &[Try(200)], &[LockedSection(200)]]),
        2,
        100,
    );
    holds(&model(&[log(3, 100)], &[], &[&[Try(200), Try(200)], &[LockedSection(200)]]), 3, 100);
}

/// A thread with the old head must not use a ring that was opened again.
///
/// Opened long after its use, the ring counts in release instants below those that a reading by
/// the old origin gives.
#[test]
fn quick_a_ring_opened_again_is_not_seen_through_the_old_head() {
    holds(&model(&[log(1, 10)], &[Try(110)], &[&[Try(5_000)], &[LockedSection(5_000)]]), 1, 10);
    holds(
        &model(
            &[log(2, 10)],
            &[],
            &[&[Try(5_000), Try(5_000)], &[LockedSection(5_000), Try(5_000)]],
        ),
        2,
        10,
    );
}

/// N and M change while another thread tries.
#[test]
fn quick_new_numbers_are_never_mixed_with_old_ones() {
    let policies = [log(3, 100), log(1, 1_000), log(2, 50)];
    model(&policies, &[], &[&[Try(200)], &[Set(200, 1), Set(200, 2)]]).linearises::<Slots>();
    model(&policies, &[Try(150)], &[&[Try(200)], &[Set(200, 2), LockedSection(220)]])
        .linearises::<Slots>();
}

#[test]
fn quick_tries_fall_back_to_the_ledger() {
    let mut model = model(&[log(2, 100)], &[], &[&[Try(200), Try(200)], &[LockedSection(200)]]);
    model.falls_back = true;
    holds(&model, 2, 100);
}

#[test]
fn full_three_threads_over_two_laps() {
    for permits in [1, 2, 3] {
        let tries = [&[Try(200), Try(310)][..], &[Try(205), Try(305)], &[Try(300)]];
        let mut model = model(&[log(permits, 100)], &[], &tries);
        model.preemptions = 2;
        holds(&model, usize::try_from(permits).unwrap(), 100);
    }
}

#[test]
fn full_a_limiter_with_new_numbers_twice() {
    let policies = [log(2, 100), log(1, 1_000), log(2, 50)];
    let mut model = model(&policies, &[], &[&[Try(200), Try(210)], &[Set(200, 1), Set(205, 2)]]);
    model.falls_back = true;
    model.linearises::<Slots>();
}
