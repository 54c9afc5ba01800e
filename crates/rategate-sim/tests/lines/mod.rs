//! Random scenarios of a line, as files.

use std::fmt::Write as _;

use rategate_sim::random::Random;

/// Limits, and their most permits in a window of so many milliseconds.
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

/// A scenario in which a few wait, try, leave, release and change the limit, never to more than it
/// was; so its check holds from beginning to end.
pub(crate) fn text(random: &mut Random) -> String {
    let mut below = |bound: u64| random.bits() % bound;
    let (limit, at_most, window) = LIMITS[usize::try_from(below(5)).unwrap()];
    let mut text =
        format!("{limit}[[check]]\nwindow = \"{window}\"\nat_most = {at_most}\n[queue]\n");
    let (waiters, permits) = (1 + below(8), 4 + below(12));
    let on_full = ["refuse", "evict-newest"][usize::try_from(below(2)).unwrap()];
    writeln!(text, "waiters = {waiters}\npermits = {permits}\non_full = \"{on_full}\"").unwrap();
    let (mut at_us, mut named, mut number) = (0, 0, 5);
    for _ in 0..10 + below(30) {
        at_us += [0, 0, 250, 1_000, 3_000][usize::try_from(below(5)).unwrap()];
        let call = match below(20) {
            0..=9 => {
                named += 1;
                let deadline = match below(3) {
                    0 => format!("\nmax_wait = \"{}ms\"", below(20)),
                    _ => String::new(),
                };
                let permits = 1 + below(5) * below(2);
                format!("wait\"\nname = \"{named}\"\npermits = {permits}{deadline}")
            }
            10..=12 if named > 0 => format!("leave\"\nname = \"{}\"", 1 + below(named)),
            13..=14 => format!("try\"\npermits = {}", below(3)),
            15 => format!("peek\"\npermits = {}", 1 + below(2)),
            16..=18 if limit.contains("concurrency") || limit.contains("commit") => {
                format!("release\"\npermits = {}", 1 + below(5))
            }
            19 => {
                // Always another number: to set what is there already is no change to some engines.
                number = 2 + (number + below(3) + 3) % 4;
                let key = if limit.contains("rate") { "rate" } else { "permits" };
                let value = match key {
                    "rate" => format!("\"{number}/10ms\""),
                    _ => number.to_string(),
                };
                format!("set\"\nlimit = {{ policy = \"{}\", {key} = {value} }}", kind(limit))
            }
            _ => format!("reserve\"\npermits = {}", 1 + below(2)),
        };
        writeln!(text, "[[step]]\nat = \"{at_us}us\"\ncall = \"{call}").unwrap();
    }
    if !text.contains("\"wait\"") {
        writeln!(text, "[[step]]\nat = \"{at_us}us\"\ncall = \"wait\"").unwrap();
    }
    text
}

/// The policy of the first limit.
fn kind(limit: &str) -> &str {
    limit.split('"').nth(1).unwrap()
}
