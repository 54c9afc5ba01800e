//! Random scenarios of a wait queue, as files.

use std::fmt::Write as _;

use fastrand::Rng;

/// The limits, each with the maximum of permits in a window and the window's length.
const LIMITS: [(&str, u64, &str); 5] = [
    ("[limit]\npolicy = \"sliding-log\"\npermits = 5\nperiod = \"10ms\"\n", 5, "10ms"),
    ("[limit]\npolicy = \"gcra\"\nrate = \"1/ms\"\nburst = 5\n", 15, "10ms"),
    ("[limit]\npolicy = \"two-timeline\"\nrate = \"1/ms\"\nmode = \"strict\"\n", 1, "1ms"),
    ("[limit]\npolicy = \"commit-log\"\npermits = 5\nperiod = \"10ms\"\n", 5, "10ms"),
    (
        "[[limit]]\npolicy = \"sliding-log\"\npermits = 5\nperiod = \"10ms\"\n\
         [[limit]]\npolicy = \"concurrency\"\npermits = 6\n",
        5,
        "10ms",
    ),
];

/// Returns the scenario of a seed, as the text of a file, whose callers wait in up to three
/// classes, try, leave, release, charge, hold and change the limit.
///
/// The limit is never raised above its first numbers, so its check holds from beginning to end. It
/// may become one of another policy, and then the check is that of the one that grants most.
/// In half of the scenarios no estimate is too low, and nothing is charged. In the others, permits
/// owed and charged exceed the limit, in any window.
#[must_use]
pub fn random(seed: u64) -> String {
    let mut random = Rng::with_seed(seed);
    let mut below = |bound: u64| random.u64(..bound);
    let (mut limit, mut at_most, mut window) = LIMITS[usize::try_from(below(5)).unwrap()];
    // The clock does not begin at zero: of that instant nothing comes back to a strict schedule.
    let debt = ["forget", "carry"][usize::try_from(below(2)).unwrap()];
    let mut text = format!("debt = \"{debt}\"\n{limit}[clock]\nstart = \"1s\"\n[queue]\n");
    let (waiters, permits) = (1 + below(8), 4 + below(12));
    let on_full = ["refuse", "evict-newest"][usize::try_from(below(2)).unwrap()];
    writeln!(text, "waiters = {waiters}\npermits = {permits}\non_full = \"{on_full}\"").unwrap();
    let has_classes = below(2) == 0;
    if has_classes {
        writeln!(text, "classes = {{ a = {}, b = {} }}", 1 + below(3), 1 + below(9)).unwrap();
    }
    let (may_owe, has_holds) = (below(2) == 0, below(2) == 0);
    // A limiter merges wakes that are less than 0.4 ms apart. A bucket from which a hold comes back
    // later is not always one that makes up for a late start, so no two wakes of it are so close.
    let (grid_us, calls) = if has_holds { (500, 46) } else { (250, 23) };
    let (mut at_us, mut named, mut number, mut owed) = (0, 0, 5, 0);
    // The holds and their permits. Committed permits have had their effect: no grant shows then
    // that a commit was not its own.
    let (mut held, mut has_committed) = (Vec::new(), false);
    for _ in 0..10 + below(30) {
        at_us += [0, 0, grid_us, 1_000, 3_000][usize::try_from(below(5)).unwrap()];
        let call = match below(calls) {
            0..=9 => {
                named += 1;
                let deadline = match below(3) {
                    0 => format!("\nmax_wait = \"{}ms\"", below(20)),
                    _ => String::new(),
                };
                let class = match below(3) {
                    class @ 1..=2 if has_classes => {
                        format!("\nclass = \"{}\"", ["", "a", "b"][usize::try_from(class).unwrap()])
                    }
                    _ => String::new(),
                };
                let permits = 1 + below(5) * below(2);
                // Tapes have words for neither classes nor such waits, so they come together.
                let may_hold = has_classes && has_holds && !has_committed;
                let holds = may_hold && deadline.is_empty() && below(2) == 0;
                // Nobody knows when it will start: its end comes long after all else, or it may
                // have come already.
                let ttl = match (holds, may_owe) {
                    (false, _) => String::new(),
                    (true, false) => "\nttl = \"30s\"".to_owned(),
                    (true, true) => format!("\nttl = \"{}us\"", ttl_us(&mut below)),
                };
                if holds {
                    held.push((named.to_string(), permits, if may_owe { 0 } else { u64::MAX }));
                }
                format!("wait\"\nname = \"{named}\"\npermits = {permits}{deadline}{class}{ttl}")
            }
            21..=22 if may_owe => {
                let permits = below(9);
                owed += permits;
                format!("charge\"\npermits = {permits}")
            }
            10..=12 if named > 0 => format!("leave\"\nname = \"{}\"", 1 + below(named)),
            13..=14 => {
                format!("try\"\npermits = {}", below(3))
            }
            15 => format!("peek\"\npermits = {}", 1 + below(2)),
            23.. if !has_committed => {
                let (call, more) = hold_or_end(&mut held, at_us, may_owe, &mut below);
                owed += more;
                call
            }
            16..=18
                if limit.contains("concurrency") || limit.contains("commit") && held.is_empty() =>
            {
                has_committed |= limit.contains("commit");
                format!("release\"\npermits = {}", 1 + below(5))
            }
            // Another of the policies whose permits come with time.
            19 if !has_holds && below(3) == 0 && LIMITS[..3].iter().any(|it| it.0 == limit) => {
                (limit, ..) = LIMITS[usize::try_from(below(3)).unwrap()];
                (at_most, window) = (15, "10ms");
                let keys = limit.trim_start_matches("[limit]\n").trim_end().replace('\n', ", ");
                format!("set\"\nlimit = {{ {keys} }}")
            }
            19 if !has_holds || !limit.contains("gcra") => {
                // Always another number, since some engines take an equal number for no change.
                number = 2 + (number + below(3) + 3) % 4;
                let key = if limit.contains("rate") { "rate" } else { "permits" };
                let value = match key {
                    "rate" => format!("\"{number}/10ms\""),
                    _ => number.to_string(),
                };
                format!("set\"\nlimit = {{ policy = \"{}\", {key} = {value} }}", kind(limit))
            }
            _ => {
                format!("reserve\"\npermits = {}", 1 + below(2))
            }
        };
        writeln!(text, "[[step]]\nat = \"{at_us}us\"\ncall = \"{call}").unwrap();
    }
    if !text.contains("\"wait\"") {
        writeln!(text, "[[step]]\nat = \"{at_us}us\"\ncall = \"wait\"").unwrap();
    }
    writeln!(text, "[[check]]\nwindow = \"{window}\"\nat_most = {}", at_most + owed).unwrap();
    text
}

/// Returns a hold, or the end of one of `held`, each with its permits and its end. The number is
/// that of the permits that exceed the limit.
fn hold_or_end(
    held: &mut Vec<(String, u64, u64)>,
    at_us: u64,
    may_owe: bool,
    below: &mut impl FnMut(u64) -> u64,
) -> (String, u64) {
    match below(16) {
        0..=7 if !held.is_empty() => {
            let (name, permits, end_us) = pick(held, below);
            let held = if at_us < end_us { permits } else { 0 };
            let actual = if may_owe { below(8) } else { below(held + 1) };
            let owed = actual.saturating_sub(held);
            (format!("commit\"\nname = \"{name}\"\nactual = {actual}"), owed)
        }
        8..=9 if !held.is_empty() => (format!("cancel\"\nname = \"{}\"", pick(held, below).0), 0),
        _ => {
            let (name, permits) = (format!("hold {}", held.len()), below(6));
            let ttl_us = ttl_us(below);
            held.push((name.clone(), permits, at_us + ttl_us));
            let call = "hold\"\nname = ";
            (format!("{call}\"{name}\"\npermits = {permits}\nttl = \"{ttl_us}us\""), 0)
        }
    }
}

fn ttl_us(below: &mut impl FnMut(u64) -> u64) -> u64 {
    [0, 500, 2_000, 10_000, 30_000][usize::try_from(below(5)).unwrap()]
}

/// Returns one of the six newest calls, of which something may still be undone.
fn pick<T: Clone>(calls: &[T], below: &mut impl FnMut(u64) -> u64) -> T {
    let back = usize::try_from(below(6)).unwrap() % calls.len();
    calls[calls.len() - 1 - back].clone()
}

/// Returns the policy of the first limit.
fn kind(limit: &str) -> &str {
    limit.split('"').nth(1).unwrap()
}
