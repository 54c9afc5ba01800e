//! No reply causes a panic, whatever its content.

use std::time::Duration;

use fastrand::Rng;
use rategate::store::LeaseId;
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::batch::{Batch, Extra};
use rategate_redis::command::Settings;
use rategate_redis::error::{ReplyError, RequestError};
use rategate_redis::key::KeySpace;
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;
use rategate_redis::refusal::ServerRefusal;
use rategate_redis::reply::Value;
use rategate_redis::returns;

fn plan() -> Plan {
    let limits = [
        ("g", Limit::gcra(&Gcra::new("999999999/s".parse().unwrap(), 1 << 52).unwrap())),
        (
            "w",
            Limit::fixed_window(&FixedWindow::new(
                1 << 52,
                Duration::from_micros(1),
                Anchor::Epoch,
            )),
        ),
        ("l", Limit::sliding_log(&SlidingLog::new(9, Duration::from_millis(1)))),
        ("c", Limit::concurrency(&Concurrency::new(9), 1)),
    ];
    Plan::new(limits.map(|(label, limit)| (label, limit.unwrap()))).unwrap()
}

fn random_value(random: &mut Rng, depth: u32) -> Value {
    match random.u64(..if depth == 0 { 12 } else { 14 }) {
        0..9 => {
            let ends =
                [0, 1, 2, -1, i64::MAX, i64::MIN, 1 << 52, (1 << 53) - 1, 1_790_000_000_000_000];
            Value::Int(ends[random.usize(..9)])
        }
        9 => Value::Int(random.u64(..) as i64),
        10 => Value::Int(random.u64(..20) as i64),
        11 => Value::Null,
        _ => Value::List((0..random.u64(..5)).map(|_| random_value(random, depth - 1)).collect()),
    }
}

#[test]
fn random_answers_never_panic() {
    let (plan, mut random) = (plan(), Rng::with_seed(13));
    let key = KeySpace::new("k").unwrap().key(b"k");
    let extra = Extra { lease: Some(LeaseId([1; 16])), request: None };
    let mut batch = Batch::new();
    batch.try_acquire(&plan, &key, 3, extra).unwrap();
    batch.try_acquire(&plan, &key, 9, extra).unwrap();
    assert_eq!(batch.debit(&plan, &key, 9, extra), Err(RequestError::HeldByLease));
    let release = returns::release(&plan, &key, LeaseId([1; 16]), 3, Settings::default()).unwrap();
    let mut read = 0;
    for _ in 0..200_000 {
        let mut values: Vec<Value> = (0..31).map(|_| random_value(&mut random, 0)).collect();
        // Most have the right length and version: the rest is refused at once.
        values[0] = Value::Int(1);
        match random.u64(..4) {
            0 => values = (0..random.u64(..40)).map(|_| random_value(&mut random, 2)).collect(),
            1 => values.iter_mut().for_each(|value| *value = Value::Int(random.u64(..4) as i64)),
            _ => {}
        }
        let value = Value::List(values);
        read += u32::from(batch.read(&value).is_ok());
        let _ = returns::read(&plan, &release, &value);
    }
    assert!(read < 10_000, "{read}");
    assert_eq!(batch.read(&Value::Null), Err(ReplyError::Shape));
    assert_eq!(batch.read(&Value::List(vec![Value::Int(2)])), Err(ReplyError::Version));
    assert_eq!(batch.read(&Value::List(vec![Value::Int(1)])), Err(ReplyError::Length));
}

#[test]
fn random_errors_never_panic() {
    let words = [
        "MOVED",
        "ASK",
        "ERR",
        "-1",
        "3999",
        "127.0.0.1:1",
        "\u{0}",
        "é",
        "RATEGATE ",
        "Function not found",
        "  ",
    ];
    let mut random = Rng::with_seed(17);
    for _ in 0..20_000 {
        let line: Vec<&str> = (0..random.u64(..6)).map(|_| words[random.usize(..11)]).collect();
        let _ = ServerRefusal::of(&line.join(" ")).remedy();
        let _ = ServerRefusal::of(&line.concat()).to_string();
    }
}
