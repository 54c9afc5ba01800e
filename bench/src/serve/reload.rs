//! A reload of ten thousand rules while callers wait: the slowest call, and the errors.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use rategate_bench::engines::Made;
use rategate_bench::report::Row;

use crate::cores::max_pause_ns;
use crate::grpc::{RATE_LIMITS, request_message};
use crate::load::h2::Grpc;
use crate::load::key_sequence::KeySequence;
use crate::load::tally::LoadTally;
use crate::load::template::KEY;
use crate::load::{ConnectionGroup, Load as _};
use crate::ours::{DOMAIN, Ours, Setting, rule};
use crate::{Bench, Found};

const RULES: u32 = 10_000;
const CONNECTIONS: usize = 16;
const KEYS: u64 = 10_000;
/// The rule from which a caller learns which rules are in force.
const RELOADED_RULE: &str = "told";
/// The time before the file is first replaced.
const BEFORE: Duration = Duration::from_millis(500);
/// The number of reloads.
const RELOADS: usize = 4;
const LASTS: Duration = Duration::from_secs(6);
const GOAL_NS: f64 = 5e6;

pub(crate) fn all(bench: &Bench) -> Made<Found> {
    let setting = Setting { keys: 1_000_000, rules: rules("never", 100), more: String::new() };
    let Some(ours) = Ours::start(bench, &setting)? else { return Ok(Found::default()) };
    let one = Grpc::new(RATE_LIMITS, &request_message(RELOADED_RULE, KEY), 1);
    let mut connection_group = ConnectionGroup::connect(ours.grpc, vec![one; CONNECTIONS])?;
    let pause_ns = max_pause_ns(bench.cores.server, LASTS)?;
    let mut run = |lasts| connection_group.run(&mut KeySequence::uniform(KEYS, 11), lasts);
    run(BEFORE)?;
    let (mut quiet, mut busy) = (Vec::new(), Vec::new());
    for (tally, per_s) in [("unlimited", 200), ("never", 100)].into_iter().cycle().take(RELOADS) {
        quiet.push(run(LASTS)?);
        let next = rules(tally, per_s);
        busy.push(thread::scope(|scope| {
            let rewrite = scope.spawn(|| {
                thread::sleep(BEFORE);
                ours.rewrite(&next).map_err(|error| error.to_string())
            });
            let busy = run(LASTS)?;
            rewrite.join().map_err(|_| "the writer failed")??;
            Made::Ok(busy)
        })?);
    }
    for (quiet, busy) in quiet.iter().zip(&busy) {
        let is_mixed = |tally: &LoadTally| tally.allowed > 0 && tally.denied > 0;
        if is_mixed(quiet) || !is_mixed(busy) {
            let (quiet, busy) = ((quiet.allowed, quiet.denied), (busy.allowed, busy.denied));
            return Err(
                format!("the new rules were not seen to come: {quiet:?}, then {busy:?}").into()
            );
        }
    }
    Ok(Found { speeds: Vec::new(), rows: vec![row(&quiet, &busy, pause_ns)] })
}

/// Returns the row. All times include the machine's own pauses: the calmest of several runs shows
/// what a reload adds.
fn row(quiet: &[LoadTally], busy: &[LoadTally], pause_ns: u64) -> Row {
    let slowest = |tally: &[LoadTally]| {
        tally.iter().map(|tally| tally.took_ns.max()).max().unwrap_or(0) as f64
    };
    let calmest = |tally: &[LoadTally]| {
        tally.iter().map(|tally| tally.took_ns.max()).min().unwrap_or(0) as f64
    };
    let at = |tally: &[LoadTally]| {
        let of_one = |tally: &LoadTally| tally.took_ns.value_at_quantile(0.999);
        tally.iter().map(of_one).min().unwrap_or(0) as f64
    };
    let failed = busy.iter().map(|tally| tally.failed).sum::<u64>() as f64;
    Row::new(format!(
        "{RELOADS} reloads of {RULES} rules, gRPC, {CONNECTIONS} connections, 1 at once, \
         {LASTS:?} each"
    ))
    .measured("slowest", slowest(busy), "ns")
    .measured("slowest of the calmest", calmest(busy), "ns")
    .measured("p99.9 of the calmest", at(busy), "ns")
    .measured("errors", failed, "")
    .compared("slowest without", slowest(quiet), "ns")
    .compared("... of the calmest", calmest(quiet), "ns")
    .compared("p99.9 of the calmest without", at(quiet), "ns")
    .compared("a bare loop's longest pause", pause_ns as f64, "ns")
    .at_most(GOAL_NS, slowest(busy), "ns")
    .of("slowest")
    .at_most(0.0, failed, "errors")
}

/// Returns the rules, each of which differs after a reload.
fn rules(tally: &str, per_s: u32) -> String {
    let mut all = rule(RELOADED_RULE, tally, "");
    for number in 0..RULES {
        // Writing to a text cannot fail.
        let _ = write!(
            all,
            "[[rule]]\nname = \"rule-{number}\"\ndomain = \"{DOMAIN}\"\n\
             match = [{{ key = \"service\", value = \"s{number}\" }}, {{ key = \"user\" }}]\n\
             limit = \"{per_s}/s\"\n"
        );
    }
    all
}
