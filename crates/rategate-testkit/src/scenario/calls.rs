//! `[[step]]` tables: explicit calls, and the expected result of each.

use rategate_core::adaptive::Outcome as Ending;
use rategate_core::any_policy::AnyPolicy;

use super::classes::Classes;
use super::fields::{Field, Fields};
use super::limits::LimitTable;
use super::read::build_all;
use super::{Call, ScenarioError, Step, StepExpect};

const ENDINGS: [(&str, Ending); 3] =
    [("served", Ending::Served), ("dropped", Ending::Dropped), ("ignored", Ending::Ignored)];

pub(super) fn read_steps(
    fields: &mut Fields<'_>,
    mut limits: Vec<LimitTable>,
    classes: &Classes,
) -> Result<Vec<Step>, ScenarioError> {
    let mut names = Names::default();
    fields.tables("step", "[[step]]", |mut fields| {
        let at_ns = fields.need("at", "\"100ms\"")?.duration()?;
        let call = read_call(&mut fields, &mut limits, &mut names, classes)?;
        let expect = fields.read("expect", |expect| read_step_expect(expect.table("expect")?))?;
        fields.finish()?;
        Ok(Step { at_ns, call, expect: expect.unwrap_or_default() })
    })
}

/// The names of earlier steps, by the kind of call.
#[derive(Default)]
struct Names<'t> {
    reserved: Vec<&'t str>,
    waits: Vec<&'t str>,
    tried: Vec<&'t str>,
    held: Vec<&'t str>,
}

/// Reads the name of an earlier call, which is among `names`; `what` is their kind.
fn earlier(
    fields: &mut Fields<'_>,
    what: &str,
    names: &[&[&str]],
) -> Result<String, ScenarioError> {
    let name = fields.need("name", "\"a\"")?;
    let text = name.text()?;
    if names.iter().all(|names| !names.contains(&text)) {
        return Err(name.error(format_args!("no earlier {what} is named \"{text}\"")));
    }
    Ok(text.to_owned())
}

fn read_call<'t>(
    fields: &mut Fields<'t>,
    limits: &mut [LimitTable],
    names: &mut Names<'t>,
    classes: &Classes,
) -> Result<Call, ScenarioError> {
    const CALLS: &str = "try, reserve, cancel, wait, leave, settle, refund, charge, hold, commit, \
                         set, peek, refill or release";
    let call = fields.need("call", "\"try\"")?;
    let permits = |fields: &mut Fields<'t>| -> Result<u64, ScenarioError> {
        Ok(fields.read("permits", Field::count)?.unwrap_or(1))
    };
    let granted = |fields: &mut Fields<'t>, names: &Names<'t>| {
        let Names { reserved, waits, tried, .. } = names;
        earlier(fields, "try, reserve or wait", &[reserved, waits, tried])
    };
    Ok(match call.text()? {
        "try" => {
            let name = fields.read("name", Field::text)?;
            names.tried.extend(name);
            Call::Try { permits: permits(fields)?, name: name.map(str::to_owned) }
        }
        "settle" => {
            let name = granted(fields, names)?;
            Call::Settle { name, actual: fields.need("actual", "1200")?.count()? }
        }
        "refund" => Call::Refund { name: granted(fields, names)?, permits: permits(fields)? },
        "charge" => Call::Charge { permits: permits(fields)? },
        "peek" => Call::Peek { permits: permits(fields)? },
        "refill" => {
            if !build_all(limits)?.iter().any(|limit| matches!(limit, AnyPolicy::BackfillPool(_))) {
                return Err(call.error("only a backfill-pool is refilled, and there is none"));
            }
            Call::Refill { permits: permits(fields)? }
        }
        "reserve" => {
            let name = fields.read("name", Field::text)?;
            names.held.retain(|held| Some(*held) != name);
            names.reserved.extend(name);
            let max_wait_ns = fields.read("max_wait", Field::duration)?;
            Call::Reserve { permits: permits(fields)?, name: name.map(str::to_owned), max_wait_ns }
        }
        "wait" => {
            let name = fields.read("name", Field::text)?;
            names.waits.extend(name);
            let max_wait_ns = fields.read("max_wait", Field::duration)?;
            let (permits, name) = (permits(fields)?, name.map(str::to_owned));
            Call::Wait { permits, name, max_wait_ns, class: classes.class_of(fields, true)? }
        }
        "leave" => Call::Leave { name: earlier(fields, "wait", &[&names.waits])? },
        "release" if fields.has("outcome") => {
            let name = granted(fields, names)?;
            Call::End { name, ending: fields.need("outcome", "\"served\"")?.one_of(&ENDINGS)? }
        }
        "release" => {
            let counts = |limit: &AnyPolicy| {
                use AnyPolicy::{AdaptiveConcurrency, CommitLog, Concurrency};
                matches!(limit, Concurrency(_) | AdaptiveConcurrency(_) | CommitLog(_))
            };
            if !build_all(limits)?.iter().any(counts) {
                let message = "only concurrency, adaptive and a commit-log are released, and there \
                               is none; an outcome can be reported to any limit";
                return Err(call.error(message));
            }
            Call::Release { permits: permits(fields)? }
        }
        "hold" => {
            let name = fields.read("name", Field::text)?;
            names.reserved.retain(|reserved| Some(*reserved) != name);
            names.held.extend(name);
            let ttl_ns = fields.need("ttl", "\"60s\"")?.duration()?;
            Call::Hold { permits: permits(fields)?, ttl_ns, name: name.map(str::to_owned) }
        }
        "commit" => {
            let name = earlier(fields, "hold", &[&names.held])?;
            Call::Commit { name, actual: fields.need("actual", "1200")?.count()? }
        }
        "cancel" => {
            let name = earlier(fields, "reserve or hold", &[&names.reserved, &names.held])?;
            let is_hold = names.held.contains(&name.as_str());
            if is_hold { Call::CancelHold { name } } else { Call::Cancel { name } }
        }
        "set" => {
            change(&fields.need("limit", "{ rate = \"10/s\" }")?, limits)?;
            Call::Set { limits: build_all(limits)? }
        }
        other => return Err(call.error(format!("is \"{other}\"; it is {CALLS}"))),
    })
}

/// Copies the keys of a `set` into the limits that have them.
fn change(set: &Field<'_>, limits: &mut [LimitTable]) -> Result<(), ScenarioError> {
    let fields = set.table("limit")?;
    if let [only] = limits {
        *only = only.clone().changed(fields)?;
        return Ok(());
    }
    for key in fields.keys().filter(|key| *key != "policy") {
        if !limits.iter().any(|limit| limit.keys().contains(&key)) {
            return Err(fields.error_at(key, format!("no limit here has the key `{key}`")));
        }
    }
    let mut taken = false;
    for limit in limits {
        let mut fields = set.table("limit")?;
        if limit.takes(&mut fields)? {
            *limit = limit.clone().changed(fields.ignoring_others())?;
            taken = true;
        }
    }
    if taken { Ok(()) } else { Err(fields.error("changes none of the limits")) }
}

fn read_step_expect(mut fields: Fields<'_>) -> Result<StepExpect, ScenarioError> {
    let expect = StepExpect {
        outcome: fields.read("outcome", Field::parse)?,
        start_ns: fields.read("start", Field::duration)?,
        retry_after_ns: fields.read("retry_after", Field::duration)?,
        wait_ns: fields.read("wait", Field::duration)?,
        ended_ns: fields.read("ended", Field::duration)?,
        back: fields.read("back", Field::count)?,
        owed: fields.read("owed", Field::count)?,
        debt: fields.read("debt", Field::count)?,
        forgiven: fields.read("forgiven", Field::count)?,
        remaining: fields.read("remaining", Field::count)?,
    };
    fields.finish()?;
    Ok(expect)
}
