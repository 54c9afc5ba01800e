//! The log: a ring of words and a hint at the oldest.

use rategate_core::sliding_log::SlidingLog;

use crate::model::Act::Try;
use crate::model::{Act, Model, Story};
use crate::oracle::Places;

fn log(permits: u64, period_ns: u64) -> SlidingLog {
    SlidingLog::new(permits, period_ns).unwrap()
}

fn model(policies: &[SlidingLog], before: &[Act], threads: &[&[Act]]) -> Model<SlidingLog> {
    Model {
        policies: policies.to_vec(),
        start_ns: 100,
        before: before.to_vec(),
        threads: threads.iter().map(|acts| acts.to_vec()).collect(),
        falls_back: false,
        may_lose: false,
        preemptions: 2,
    }
}

/// The N-th grant after another is a window later, whatever the order of asking.
fn assert_ceiling(story: &Story<SlidingLog>, permits: usize, period_ns: u64) {
    let starts = story.starts();
    for pair in starts.windows(permits + 1) {
        assert!(pair[permits] - pair[0] >= period_ns, "{story:#?}");
    }
}

fn holds(model: &Model<SlidingLog>, permits: usize, period_ns: u64) {
    let law = move |story: &Story<_>| assert_ceiling(story, permits, period_ns);
    model.clone().linearises_under::<Places>(law);
}

/// Rings of one to three, more tries than places, at one instant.
#[test]
fn quick_no_more_than_the_ring_holds() {
    holds(&model(&[log(1, 100)], &[], &[&[Try(200), Try(200)], &[Try(200)]]), 1, 100);
    holds(&model(&[log(2, 100)], &[], &[&[Try(200), Try(200)], &[Try(200)]]), 2, 100);
    holds(&model(&[log(3, 100)], &[], &[&[Try(200), Try(200)], &[Try(200), Try(200)]]), 3, 100);
}

/// The head turns while another thread still looks at the lap before.
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

/// The taker of a slot is one thread, the mover of the head another, the reader a third.
#[test]
fn quick_who_sees_the_head_sees_the_slots_behind_it() {
    holds(&model(&[log(2, 100)], &[], &[&[Try(200)], &[Try(205)], &[Try(300)]]), 2, 100);
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
