//! Rules in the format of envoyproxy/ratelimit count as that project does, for every sequence of
//! calls: see [`oracle`](crate::rls::oracle). Here is what the random ones seldom meet.

use std::time::Duration;

use rategate::Clock as _;
use rategate_server::protocol::rls::Options;

use crate::rls::told::Told;

const SECOND: u64 = 1_000_000_000;

fn plain(descriptors: &str) -> Told {
    Told::with(descriptors, &Options::default())
}

fn limit(key: &str, unit: &str, permits: u32, more: &str) -> String {
    format!("{{key: {key}, rate_limit: {{unit: {unit}, requests_per_unit: {permits}, {more}}}}}")
}

/// A token limit behind a gateway that charges afterwards: usage counts, however large it is. Hits of
/// 2^63 and more break the counter of that project. Here they are over the limit until the window
/// ends.
#[test]
fn a_charge_over_the_limit_is_counted() {
    plain(&limit("a", "day", 1000, "")).play(
        "
        a=x:900 => ok 100
        a=x:400 => over !0
        a=x:0 => over !0
        pass 86400
        a=x:999 => ok 1
        a=x:0 => ok 1
        a=x:1 => ok 0
        a=x:0 => ok 0
        a=x:1 => over !0
        pass 86400
        a=x:9223372036854775808 => over !0
        a=x:18446744073709551615 => over !0
        a=x:18446744073709551615 => over !0
        a=x:1 => over !0
        a=x:0 => over !0
        pass 86400
        a=x:1 => ok 999
        ",
    );
}

/// Quotas next to hard limits, as in the model: a quota that is over and the only one denies,
/// whatever is left of a hard limit.
#[test]
fn quotas_stand_beside_limits_as_there() {
    let quota = |key: &str, permits| {
        limit(key, "day", permits, "").replace("rate_limit", "quota_mode: true, rate_limit")
    };
    let unlimited = "{key: u, quota_mode: true, rate_limit: {unlimited: true}}";
    let hard = limit("h", "day", 100, "");
    plain(&format!("{}, {}, {unlimited}, {hard}", quota("q", 1), quota("r", 2))).play(
        "
        q=x h=x => ok 0 99
        // The only quota is over; then one of two, and none has more.
        q=x h=x => over !0 98
        q=x r=x => ok !0 1
        q=x r=x => ok !0 0
        q=x r=x => over !0 !0
        // What is unlimited is no quota.
        q=x u=x => over !0 max
        ",
    );
}

/// A caller's own limit and the rule of the same descriptor and unit share a count. Limits from 2^27
/// on are counted in their own windows.
#[test]
fn limits_of_one_unit_share_the_count_of_a_descriptor() {
    plain(&limit("a", "hour", 10, "")).play(
        "
        a=x:2 => ok 8
        a=x:2@5/hour => ok 1
        a=x:2@100/hour => ok 94
        a=x:2 => ok 2
        // Another unit is another count.
        a=x:2@5/day => ok 3
        a=y:2 => ok 8
        a=y:2@134217727/hour => ok 134217723
        a=y:2@134217728/hour => ok 134217726
        a=y:2@134217728/hour => ok 134217724
        a=y:2 => ok 4
        ",
    );
}

/// A value that equals a rule's pattern comes under the first pattern that matches.
#[test]
fn a_value_that_is_a_pattern_comes_under_the_first_that_fits() {
    let (narrow, wide) = (
        limit("path, value: \"/a/*\"", "hour", 5, ""),
        limit("path, value: \"/*\"", "hour", 9, ""),
    );
    plain(&format!("{narrow}, {wide}")).play("path=/a/* => ok 4\npath=/* => ok 8");
    plain(&format!("{wide}, {narrow}")).play("path=/a/* => ok 8");
}

/// A file without descriptors creates no domain: everything passes, a caller's own limit too.
#[test]
fn a_file_without_descriptors_knows_no_domain() {
    plain("").play("a=x:5 => ok -\na=x:5@0/hour => ok -\na=x:5@1/hour => ok -");
}

/// Twice the limit passes around a border of windows, unless the rule has another algorithm.
#[test]
fn around_a_border_twice_the_limit_passes_unless_another_algorithm_is_set() {
    for (algorithm, before, behind) in
        [("", 10, 10), ("algorithm: gcra, burst: 5", 5, 0), ("algorithm: sliding-log", 10, 0)]
    {
        let told = plain(&limit("a", "hour", 10, algorithm));
        let hour_ns = 3_600 * SECOND;
        let border_ns = told.engines[0].1.now_ns() / hour_ns * hour_ns + hour_ns;
        for (at_ns, passes) in [(border_ns - 1, before), (border_ns, behind)] {
            told.engines.iter().for_each(|(_, clock)| clock.set(Duration::from_nanos(at_ns)));
            let passed = (0..30).filter(|_| told.passes("a=x")).count();
            assert_eq!(passed, passes, "{algorithm}");
        }
    }
}

/// Rules of another kind in the same call are all or nothing: windows that count every hit still
/// count, and the others take nothing.
#[test]
fn other_limits_beside_counted_ones_take_all_or_nothing() {
    let other = limit("b", "hour", 9, "algorithm: fixed-window");
    plain(&format!("{}, {other}", limit("a", "hour", 1, ""))).play(
        "
        a=x b=x => ok 0 8
        a=x b=x => over !0 8
        a=x b=x => over !0 8
        ",
    );
}

/// A global shadow: the descriptors report that they are over, and the call passes.
#[test]
fn a_global_shadow_lets_every_call_pass() {
    let options = Options { shadow: true, ..Options::default() };
    Told::with(&limit("a", "hour", 0, ""), &options).play("a=x => ok !0");
    plain(&limit("a", "hour", 0, "")).play("a=x => over !0");
}

/// A reload with another number keeps the count, as counters in Redis do; another unit is another
/// window.
#[test]
fn a_change_of_the_number_keeps_what_was_counted() {
    let told = plain(&limit("a", "day", 1000, ""));
    told.play("a=x:900 => ok 100");
    told.load(&limit("a", "day", 950, ""));
    told.play("a=x:0 => ok 50");
    told.load(&limit("a", "day", 100, ""));
    told.play("a=x:0 => over !0");
    told.load(&limit("a", "day", 2000, ""));
    told.play("a=x:0 => ok 1100");
    told.load(&limit("a", "month", 2000, ""));
    told.play("a=x:0 => ok 2000");
}
