//! Files with a right checksum and any other content: nothing panics, and what is restored can be
//! saved and restored again.

use std::time::Duration;

use rategate_server::engine::{Cost, Inline, Item, Request, Target, UniqueId, Verb};

use super::laws::{self, hold};
use crate::engine::common::now;

const TTL: Duration = Duration::from_secs(600);

/// Returns what is in a file between its head and its checksum.
fn inner(write: impl Fn(&crate::engine::common::TestEngine)) -> Vec<u8> {
    let (engine, _) = laws::engine();
    write(&engine);
    let mut bytes = Vec::new();
    engine.save(&mut bytes).unwrap();
    bytes[10..bytes.len() - 4].to_vec()
}

/// Returns the inner parts of a file with little in it, and of one with reservations of each kind.
fn files() -> [Vec<u8>; 2] {
    let of = |name| Target::Rule { name, values: &[b"ann"] };
    let inline = Inline { capacity: 8, count: 1, period_ns: 1_000_000_000 };
    let inline = Target::Inline { limit: inline, key: b"k" };
    let all = ["bucket", "window", "log", "month", "slots"].map(of);
    let few = inner(|engine| {
        now(engine.reserve(UniqueId([1; 16]), TTL, &[Item::of(of("window"), 9)])).unwrap();
    });
    let many = inner(|engine| {
        let items: Vec<_> =
            all.into_iter().chain([inline]).map(|target| Item::of(target, 1)).collect();
        for number in 1..=3 {
            let held = now(engine.reserve(UniqueId([number; 16]), TTL, &items)).unwrap();
            assert!(held.answer.allowed);
        }
        let cost = |target| Cost { target, permits: Some(1), usage: None };
        let costs: Vec<_> = items.iter().map(|item| cost(item.target)).collect();
        now(engine.commit(UniqueId([1; 16]), &costs)).unwrap();
        let charge = Request { verb: Verb::Charge, items: &items[..4], counts_denied: false };
        now(engine.once(UniqueId([9; 16]), &charge)).unwrap();
    });
    [few, many]
}

#[test]
fn files_as_they_are_hold_the_law() {
    for file in files() {
        hold(&file);
    }
    hold(b"");
}

#[test]
fn changed_files_hold_the_law() {
    const TOKENS: [&str; 12] = [
        "0",
        "-1",
        "18446744073709551615",
        "null",
        "[]",
        "{}",
        "true",
        "\"\"",
        ",",
        "]",
        "\n",
        "9",
    ];
    for (seed, file) in files().iter().enumerate() {
        let mut rng = fastrand::Rng::with_seed(u64::try_from(seed).unwrap());
        for _ in 0..300 {
            let mut changed = file.clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..changed.len());
                let until = (at + rng.usize(0..4)).min(changed.len());
                let token = TOKENS[rng.usize(..TOKENS.len())];
                // The offsets stay as a rule, so that the change is read.
                match rng.u8(0..3) {
                    0 => changed[at] = rng.u8(..),
                    1 => changed[at] = token.as_bytes()[0],
                    _ => drop(changed.splice(at..until, token.bytes())),
                }
            }
            hold(&changed);
        }
    }
}
