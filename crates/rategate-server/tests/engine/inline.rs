//! Limits that come with a call.

use rategate_server::engine::{Engine, EngineSettings, Fault, Inline, Verb, Verdict};

use crate::common::*;

const LIMIT: Inline = Inline { capacity: 5, count: 1, period_ns: SECOND };

#[test]
fn each_limit_counts_each_key_apart() {
    let (engine, _) = engine(Vec::new());
    let take = |limit, key: &[u8]| engine.inline(limit, key, Verb::Take, 1).unwrap();
    for left in (0..5).rev() {
        assert_eq!(take(LIMIT, b"a").remaining, Some(left));
    }
    assert!(take(LIMIT, b"a").verdict.is_over());
    assert_eq!(take(LIMIT, b"b").remaining, Some(4));
    let wider = Inline { capacity: 6, ..LIMIT };
    assert_eq!(take(wider, b"a").remaining, Some(5));
}

#[test]
fn an_answer_says_when_the_call_passes_and_when_all_is_free() {
    let (engine, clock) = engine(Vec::new());
    let part = engine.inline(LIMIT, b"a", Verb::Take, 5).unwrap();
    assert_eq!((part.verdict, part.reset_after_ns), (Verdict::Granted, 5 * SECOND));
    clock.advance(300 * 1_000_000);
    let part = engine.inline(LIMIT, b"a", Verb::Take, 2).unwrap();
    let Verdict::Denied { retry_after_ns, .. } = part.verdict else { panic!("{part:?}") };
    assert_eq!(retry_after_ns.unwrap().get(), 1_700_000_000);
    assert_eq!(part.reset_after_ns, 4_700_000_000);
}

#[test]
fn a_look_at_an_unknown_limit_or_key_leaves_no_trace() {
    let (engine, _) = engine(Vec::new());
    let part = engine.inline(LIMIT, b"a", Verb::Peek, 3).unwrap();
    assert_eq!((part.verdict, part.remaining, part.reset_after_ns), (Verdict::Granted, Some(5), 0));
    engine.inline(LIMIT, b"a", Verb::Take, 0).unwrap();
    assert_eq!(engine.keys(), 0);
    let over = engine.inline(LIMIT, b"a", Verb::Peek, 6).unwrap();
    assert_eq!(over.verdict, Verdict::Denied { retry_after_ns: None, enforced: true });
}

#[test]
fn numbers_that_are_no_limit_are_refused_and_others_of_any_size_decided() {
    let (engine, _) = engine(Vec::new());
    for limit in [
        Inline { capacity: 0, ..LIMIT },
        Inline { count: 0, ..LIMIT },
        Inline { period_ns: 0, ..LIMIT },
    ] {
        for verb in [Verb::Take, Verb::Peek, Verb::Refund, Verb::Reset] {
            assert!(engine.inline(limit, b"a", verb, 1).is_err(), "{limit:?}");
        }
    }
    let huge = [1, u64::MAX / 2, u64::MAX];
    for capacity in huge {
        for count in huge {
            for period_ns in huge {
                let limit = Inline { capacity, count, period_ns };
                for permits in [0, 1, u64::MAX] {
                    let _ = engine.inline(limit, b"a", Verb::Take, permits);
                }
            }
        }
    }
}

#[test]
fn a_limit_that_nobody_uses_makes_room_for_another_and_one_in_use_does_not() {
    let clock = rategate::ManualClock::new();
    let settings =
        EngineSettings { inline_limits: 31, inline_keys: 1000, ..EngineSettings::default() };
    let engine = Engine::new(clock.clone(), settings);
    let limit = |capacity| Inline { capacity, count: 1, period_ns: SECOND };
    let take = |capacity| engine.inline(limit(capacity), b"a", Verb::Take, 1);
    for capacity in 10..41 {
        take(capacity).unwrap();
    }
    assert_eq!(take(41), Err(Fault::TooManyLimits { most: 31 }));
    // The one of 10 remembers for 10 s.
    clock.advance(11 * SECOND);
    assert!(take(41).is_err(), "some may not have been noted yet");
    clock.advance(1500 * 1_000_000);
    let part = take(41).unwrap();
    assert_eq!((part.limit, part.remaining), (41, Some(40)));
    assert!(take(10).is_err(), "the one of 11 may still be remembered");
    clock.advance(1_500 * 1_000_000);
    assert_eq!(take(10).map(|part| part.remaining), Ok(Some(9)), "anew, as it would be by now");
    assert_eq!(take(40).map(|part| part.remaining), Ok(Some(39)), "one of 14 seconds ago is back");
}
