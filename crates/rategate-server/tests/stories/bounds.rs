//! Reservations under rules that bound what one holds, and for how long.

use std::sync::Arc;
use std::time::Duration;

use rategate::FixedWindow;
use rategate::policy::Anchor;
use rategate_server::rule::{
    Counts, Dimension, Enforcement, HoldBounds, Limit, Prices, Rule, Weight, Weights,
};

use super::{Story, THIS_PROCESS, play, play_at, play_everywhere, play_with_real_stores};
use crate::engine::common::{SECOND, bucket, counting, per_minute};
use crate::stores::stored;

fn of(name: &str, burst: u64) -> Rule {
    bucket(name, &["who"], burst)
}

fn bounded(rule: Rule, ttl_s: u64, max_ttl_s: u64, max_held: Option<u16>) -> Rule {
    let [ttl, max_ttl] = [ttl_s, max_ttl_s].map(Duration::from_secs);
    Rule { hold_bounds: HoldBounds { ttl, max_ttl, max_held }, ..rule }
}

/// A rule of which one reservation holds a share, in hundredths of a percent.
fn shared(rule: Rule, share: u16) -> Rule {
    bounded(rule, 60, 600, Some(share))
}

fn shadow(rule: Rule) -> Rule {
    Rule { enforcement: Enforcement::Shadow, ..rule }
}

fn weighing(unit: &str, weight: u64) -> Counts {
    let weights = Weights::new([(unit.into(), Weight::new(weight, 1).unwrap())]).unwrap();
    Counts::Usage(weights.into())
}

#[test]
fn the_time_is_bounded_by_the_strictest_rule() {
    let t = bounded(of("t", 100), 5, 20, None);
    let u = bounded(of("u", 100), 7, 10, None);
    play_everywhere(
        &[t, u.clone(), of("v", 100)],
        "
        reserve 1/- v:1 => granted; ends 60s
        reserve 2/- t:1 u:1 => granted granted; ends 5s
        reserve 3/- v:1 u:1 => granted granted; ends 7s
        reserve 4/20s t:1 v:1 => granted granted; ends 20s
        reserve 5/21s v:1 t:1 => ! rule `t` is 21s; it is longer than 0, and 20s at most
        reserve 5/11s t:1 u:1 => ! rule `u` is 11s; it is longer than 0, and 10s at most
        reserve 5/0s u:1 => ! rule `u` is 0ns; it is longer than 0, and 10s at most
        reserve 5/601s v:1 => ! rule `v` is 601s; it is longer than 0, and 600s at most
        left u => 98
        ",
    );
    // A descriptor and a limit of the call come under the bounds of their rule.
    play(
        vec![u],
        "
        reserve 6/11s @u:1 => ! rule `u` is 11s; it is longer than 0, and 10s at most
        reserve 6/11s @u/5:1 => ! rule `u` is 11s; it is longer than 0, and 10s at most
        ",
    );
}

/// The memory of an id is as long as its reservation could last.
#[test]
fn an_id_of_a_long_reservation_is_remembered_as_long() {
    play_at(
        &THIS_PROCESS,
        &[bounded(of("t", 100), 60, 86_400, None)],
        "
        reserve 1/86400s t:10
        pass 86400s
        tick
        pass 86400s -1ns
        tick
        commit 1 t:3 => late:3
        ",
    );
}

#[test]
fn one_reservation_holds_a_share_of_the_limit_and_the_rest_is_charged() {
    let share = shared(of("t", 1_000), 2_500);
    play_everywhere(
        std::slice::from_ref(&share),
        "
        // An estimate beyond the capacity passes too.
        2x reserve 1 t:5000 => granted; held 250
        2x reserve 2 t:5000 => granted; held 250
        2x reserve 3 t:5000 => granted; held 250
        2x reserve 4 t:5000 => granted; held 250
        left t => 0
        reserve 5 t:1 => over no; held -
        commit 1 t:300 => owed:50
        commit 2 t:250 => even
        commit 3 t:100 => back:150
        // 50 of 150 pay what was owed.
        left t => 100
        ",
    );
    let text = "
        reserve 1 t:5000 => granted; held 250
        // An estimate is what was sent, not what is cut.
        reserve 1 t:4999 => ! OtherItems
        pass 30s
        tick
        commit 1 t => late:250
        ";
    play(vec![share], text);
    // The share may change while the reservation lasts.
    let mut story = play(vec![shared(stored("s", 1_000), 2_500)], "reserve 1 s:5000 => granted");
    story.load(vec![shared(stored("s", 1_000), 5_000)]);
    story.play("reserve 1 s:5000 => granted again; held 250\ncommit 1 s:300 => owed:50");
}

/// The rules `t/rpm` of calls, `t/tpm` of permits, and `org`, that a call of `t` takes from too.
fn several(org: Rule) -> Story {
    let limit = |name: &str, rule: Rule| Rule {
        name: format!("t/{name}").into(),
        dimension: Some(Dimension { of: "t".into(), name: name.into() }),
        also: vec!["org".into()],
        ..rule
    };
    let rpm = Rule { counts: Counts::Requests, ..per_minute("t", &["t"], 10) };
    let tpm = per_minute("t", &["t"], 1_000);
    Story::with_entries(vec![limit("rpm", rpm), limit("tpm", tpm), org])
}

#[test]
fn an_item_is_held_in_all_of_its_rules_or_in_none() {
    several(per_minute("org", &["t"], 300)).play(
        "
        reserve 1 t:800 => never no
        2x reserve 1 t:300 => granted; held 300; parts-held 1 300 300
        reserve 2 t:1 => over no
        commit 1 t:100 => even; parts even back:200 back:200
        reserve 3 t:200 => granted; held 200
        ",
    );
    // A share of one rule is no bound of another.
    let org = shared(per_minute("org", &["t"], 300), 1_000);
    several(org).play("reserve 1 t:800 => granted; held 800; parts-held 1 800 30");
    // In a store, what one of its rules has held is withdrawn.
    let user = Rule { also: vec!["org".into()], ..stored("user", 1_000) };
    Story::with_entries(vec![user, stored("org", 300)]).play(
        "
        reserve 1 user:800 => never no
        peek user:1 => granted; parts-left 1000 300
        2x reserve 1 user:300 => granted; held 300; parts-held 300 300
        reserve 2 user:1 => over no
        commit 1 user:100 => back:200
        ",
    );
}

#[test]
fn windows_that_count_every_hit_and_limits_of_the_call_hold_a_share() {
    let y = shared(counting(per_minute("y", &["who"], 10), 10), 5_000);
    play(
        vec![y, counting(per_minute("z", &["who"], 10), 10)],
        "
        reserve 1 y:8 => granted; held 5
        reserve 2 z:10 => granted; held 10
        // 20, of which 10 are held.
        reserve 3 @z/20:11 => over no
        reserve 3 @z/20:10 => granted; held 10
        ",
    );
}

#[test]
fn what_is_not_enforced_holds_what_fits_and_says_so() {
    let unlimited = Rule { limit: Limit::Unlimited, ..of("n", 1) };
    play(
        vec![shadow(of("s", 10)), unlimited, of("c", 100)],
        "
        2x reserve 1 s:10 n:50 c:50 => granted unlimited granted; held 10 - 50
        left s c => 0 50
        2x reserve 2 s:9 => shadow; held 0
        commit 1 s:40 n c => owed:30 even even
        ",
    );
    play(vec![shadow(stored("w", 100))], "reserve 3 w:500 => shadow; held 0");
}

/// A commit is judged by all rules of the item, also by those that hold nothing.
#[test]
fn a_commit_is_judged_by_the_rules_of_the_reservation() {
    let third = Weight::new(3, 1).unwrap();
    let prices = Weights::new([("output".into(), third)]).unwrap();
    let prices = Prices::new([(Arc::from("m"), prices)].into()).unwrap();
    let money = Rule { counts: Counts::Money(prices.into()), ..per_minute("m", &["t"], 1_000) };
    let free =
        Rule { limit: Limit::Unlimited, counts: Counts::Requests, ..per_minute("free", &["t"], 1) };
    Story::with_entries(vec![money, free]).play(
        "
        reserve 1 @t:output=100@m => granted; held 300; parts-cost 300 -
        commit 1 @t:5 => ! Cost { item: 0, rule: \"m\", why: NoUsage }
        commit 1 @t:output=90@m => back:30; parts back:30 even
        ",
    );
}

#[test]
fn the_cost_of_a_usage_is_the_same_in_a_store() {
    for rule in [stored("s", 1_000), of("s", 1_000)] {
        let counts = weighing("output", 6);
        play(
            vec![Rule { counts, ..rule }],
            "
            reserve 1 s:output=100 => granted; cost 600; held 600
            2x commit 1 s:output=160 => owed:360; cost 960
            commit 2 s:output=5 => unknown no; cost -
            commit 2 s:out=5 => ! Cost {
            ",
        );
    }
}

/// A late commit charges the limits in which something had been held, and no others.
#[test]
fn a_late_commit_charges_what_had_been_held() {
    let hour = |rule: Rule| {
        let hour = Duration::from_nanos(3_600 * SECOND);
        Rule { limit: Limit::Policy(FixedWindow::new(100, hour, Anchor::Epoch).into()), ..rule }
    };
    let calls = Rule { counts: Counts::Requests, ..hour(per_minute("r", &["t"], 100)) };
    let shadow = shadow(per_minute("s", &["t"], 10));
    let rules = vec![hour(per_minute("a", &["t"], 100)), shadow, calls];
    for tick in ["", "tick"] {
        // 50 do not fit in the shadow of 10.
        let text = "
            reserve 1 @t:50 => shadow; parts-held 50 0 1
            pass 30s
            TICK
            2x commit 1 @t:7 => late:7; parts-left 93 10 99; parts late:7 late:0 late:1
            ";
        Story::with_entries(rules.clone()).play(&text.replace("TICK", tick));
    }
}

fn stored_and_here() -> [Rule; 3] {
    [stored("s", 1_000), stored("t", 50), of("here", 20)]
}

#[test]
fn a_denial_of_a_store_withdraws_what_is_held() {
    play_with_real_stores(
        &stored_and_here(),
        "
        2x reserve 1 s:1000 t:50 here:20 => granted granted granted; held 1000 50 20
        reserve 2 s:600 => over no; held -
        commit 1 s:400 t:50 here:0 => back:600 even back:20
        reserve 2 s:600 => granted; held 600
        // Any server finds it again, and another number is another request.
        2> reserve 2 s:600 => granted again; held 600
        2> reserve 2 s:601 => ! OtherItems
        2> reserve 2 s:5000 => never no
        // What is refused changes nothing.
        left s => 0
        2> commit 2 s:600 => even
        // An item of a denied reservation holds nothing.
        reserve 3 t:1 here:1 s:1 => over granted over no; held - - -
        left s t here => 0 0 20
        ",
    );
    play_with_real_stores(
        &stored_and_here(),
        "
        reserve 1 s:1000 t:51 here:20 => granted never granted no; held - - -
        left s t here => 1000 50 20
        reserve 1 s:1000 t:50 here:21 => granted granted never no; held - - -
        left s t here => 1000 50 20
        // The id is unused: it may be of anything.
        reserve 1 t:3
        ",
    );
}

/// A rule in this process that one in the store replaces is not held beside its fellows.
#[test]
fn a_rule_here_that_is_replaced_holds_nothing() {
    let strict = Rule { replaces: vec!["wide".into()], ..bucket("strict", &["a"], 100) };
    let strict = Rule { location: stored("s", 1).location, ..strict };
    let rules = vec![strict, bucket("wide", &["b"], 10), bucket("other", &["b"], 1_000)];
    Story::with_entries(rules).play(
        "
        reserve 1 @a:50 @b:50 => granted replaced
        left strict wide other => 50 10 950
        commit 1 @a:20 @b:20 => back:30 back:30
        left strict wide other => 80 10 980
        ",
    );
}
