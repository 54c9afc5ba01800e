//! The store's clock goes back, as it does when another server takes over: nothing is granted
//! twice, and states too far ahead recover.

use std::time::Duration;

use crate::common::store::{Store, denied, first, granted, key};
use fastrand::Rng;
use rategate::store::Verdict;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::batch::{Batch, Extra};
use rategate_redis::command::Settings;
use rategate_redis::library::Library;
use rategate_redis::limit::{Limit, MAX_INSTANT_US};
use rategate_redis::plan::Plan;
use rategate_redis::refusal::ServerRefusal;
use rategate_testkit::redis::Reply;

const NOW_US: u64 = 1_790_000_000_000_000;

fn limits() -> [(&'static str, Limit); 4] {
    let bucket = Gcra::new("10/s".parse().unwrap(), 5).unwrap();
    let window = FixedWindow::new(5, Duration::from_secs(1), Anchor::Epoch);
    let log = SlidingLog::new(5, Duration::from_secs(1));
    let grid = log.with_resolution(Duration::from_millis(10)).unwrap();
    [
        ("bucket", Limit::gcra(&bucket).unwrap()),
        ("window", Limit::fixed_window(&window).unwrap()),
        ("log", Limit::sliding_log(&log).unwrap()),
        ("grid", Limit::sliding_log(&grid).unwrap()),
    ]
}

#[test]
fn a_clock_that_goes_back_grants_no_more() {
    for mut store in Store::each() {
        for (name, limit) in limits() {
            let plan = Plan::new([(name, limit)]).unwrap();
            let mut random = Rng::with_seed(9);
            let (mut now_us, mut newest_us) = (NOW_US, NOW_US);
            // The instants as the limit may see them: never before the newest.
            let mut seen = Vec::new();
            for _ in 0..1_500 {
                now_us = match random.u64(..6) {
                    0 => newest_us - random.u64(..300_000),
                    _ => now_us + random.u64(..60_000),
                };
                newest_us = newest_us.max(now_us);
                match store.try_acquire(&plan, &key("k"), 1, now_us) {
                    Verdict::Granted(_) => seen.push(newest_us),
                    Verdict::Denied(denial) if random.u64(..4) == 0 => {
                        let wait_us = denial.retry_after_ns.unwrap().get() / 1_000;
                        let sooner = store.peek(&plan, &key("k"), 1, now_us + wait_us - 1);
                        assert_eq!(denied(sooner).retry_after_ns.unwrap().get(), 1_000, "{name}");
                        granted(store.peek(&plan, &key("k"), 1, now_us + wait_us));
                    }
                    Verdict::Denied(_) => {}
                }
            }
            // The ceilings of a second: for a bucket 10 and a burst, for a window two of them,
            // for a log one.
            let ceiling = match name {
                "bucket" => 14,
                "window" => 10,
                _ => 5,
            };
            let fullest = (0..seen.len()).map(|from| {
                let window = seen.iter().skip(from).take_while(|&&at| at < seen[from] + 1_000_000);
                window.count()
            });
            let fullest = fullest.max().unwrap();
            assert!(fullest <= ceiling && seen.len() > 50, "{name}: {fullest} of {}", seen.len());
        }
    }
}

#[test]
fn an_instant_after_the_last_is_refused() {
    for mut store in Store::each() {
        let plan = Plan::new([limits()[0]]).unwrap();
        let mut batch = Batch::new();
        batch.try_acquire(&plan, &key("k"), 1, Extra::default()).unwrap();
        let mut at = |now_us| {
            let command = batch.decide(Settings::default()).at_us(now_us);
            store.client.call(&command.fcall(Library::DEBUG))
        };
        assert!(matches!(at(MAX_INSTANT_US), Reply::List(_)));
        assert_eq!(ServerRefusal::of(at(MAX_INSTANT_US + 1).error()), ServerRefusal::Refused);
    }
}

#[test]
fn what_lies_beyond_the_horizon_counts_as_just_used_up() {
    for mut store in Store::each() {
        for (name, limit) in limits() {
            let plan = Plan::new([(name, limit)]).unwrap();
            granted(store.try_acquire(&plan, &key("k"), 5, NOW_US));
            // One day earlier by the new clock; within the horizon the state would be trusted.
            let earlier_us = NOW_US - 86_400_000_000;
            let mut batch = Batch::new();
            batch.try_acquire(&plan, &key("k"), 1, Extra::default()).unwrap();
            let answer = store.answer(&batch, earlier_us);
            assert_eq!(answer.corrected, 1, "{name}");
            let denial = denied(first(answer));
            let wait_us = denial.retry_after_ns.unwrap().get() / 1_000;
            assert!(wait_us <= 1_000_000, "{name}: {wait_us}");
            // The state has recovered: it is counted once, and passes after the reported wait.
            let answer = store.answer(&batch, earlier_us + wait_us);
            assert_eq!(answer.corrected, 0, "{name}");
            granted(first(answer));
        }
    }
}

#[test]
fn foreign_state_counts_as_just_used_up() {
    for mut store in Store::each() {
        for (name, limit) in limits() {
            let plan = Plan::new([(name, limit)]).unwrap();
            granted(store.try_acquire(&plan, &key("k"), 1, NOW_US));
            let mut keys = match store.client.ok(&["KEYS", &format!("*{name}?")]) {
                Reply::List(keys) => keys,
                other => panic!("{other:?}"),
            };
            let state = keys.remove(0).text();
            let mut random = Rng::with_seed(3);
            let texts = [
                "",
                "x",
                "-1",
                "1:",
                "1:2",
                "9999999999999999999999",
                "5+1/0:3:4",
                "1:99999999999999999999",
            ];
            let texts = texts.into_iter().map(|text| text.as_bytes().to_vec());
            // Log headers of random content.
            let headers = (0..300).map(|_| {
                let bytes =
                    (0..40 + random.u64(..60)).map(|_| (random.u64(..5) * random.u64(..60)) as u8);
                [1].into_iter().chain(bytes.collect::<Vec<_>>()).collect()
            });
            // A header that claims 4 294 967 294 entries, now.
            let now = NOW_US.to_le_bytes();
            let huge = [
                &[1, 3, 1][..],
                &[0xff; 4],
                &[0; 4],
                &[0xfe, 0xff, 0xff, 0xff],
                &now[..7],
                &now[..7],
            ];
            let huge =
                [&huge.concat()[..], &[5, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0]].concat();
            for junk in texts.chain([huge]).chain(headers.collect::<Vec<_>>()) {
                store.client.ok(&[b"SET", state.as_bytes(), &junk]);
                // The call succeeds with any verdict, and does not fail.
                let _ = store.try_acquire(&plan, &key("k"), 1, NOW_US + 10);
                store.client.ok(&["DEL", &state]);
            }
            store.client.ok(&["SET", &state, "junk and more junk and more junk and more junk"]);
            denied(store.try_acquire(&plan, &key("k"), 1, NOW_US + 10));
        }
    }
}
