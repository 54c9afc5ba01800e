//! `[[step]]` tables: explicit calls, and the expected result of each.

use rategate_core::any_policy::AnyPolicy;
use toml::Spanned;
use toml::de::DeValue;

use super::classes::Classes;
use super::fields::{Field, Fields, Source};
use super::limits::LimitTable;
use super::read::build_all;
use super::{Call, ScenarioError, Step, StepExpect};

pub(super) fn read_steps<'t>(
    source: Source<'t>,
    fields: &mut Fields<'t>,
    mut limits: Vec<LimitTable>,
    classes: &Classes,
) -> Result<Vec<Step>, ScenarioError> {
    let mut names = Names::default();
    let tables = fields.tables("step").into_iter();
    tables
        .map(|value| {
            let mut fields = Fields::new(source, "[[step]]", value)?;
            let at_ns = fields.need("at", "\"100ms\"")?.duration()?;
            let call = read_call(source, &mut fields, &mut limits, &mut names, classes)?;
            let expect = match fields.get("expect") {
                Some(expect) => read_step_expect(Fields::new(source, "expect", expect.value())?)?,
                None => StepExpect::default(),
            };
            fields.finish()?;
            Ok(Step { at_ns, call, expect })
        })
        .collect()
}

/// The names of earlier steps, by the kind of call.
#[derive(Default)]
struct Names<'t> {
    reserved: Vec<&'t str>,
    waits: Vec<&'t str>,
    tried: Vec<&'t str>,
}

impl<'t> Names<'t> {
    /// Reads the name of an earlier call that may have been granted.
    fn granted(&self, fields: &mut Fields<'t>) -> Result<String, ScenarioError> {
        let name = fields.need("name", "\"a\"")?;
        let text = name.text()?;
        let Self { reserved, waits, tried } = self;
        if [reserved, waits, tried].iter().all(|names| !names.contains(&text)) {
            return Err(name.error(format!("no earlier try, reserve or wait is named \"{text}\"")));
        }
        Ok(text.to_owned())
    }
}

fn read_call<'t>(
    source: Source<'t>,
    fields: &mut Fields<'t>,
    limits: &mut [LimitTable],
    names: &mut Names<'t>,
    classes: &Classes,
) -> Result<Call, ScenarioError> {
    const CALLS: &str =
        "try, reserve, cancel, wait, leave, settle, refund, set, peek, refill or release";
    let call = fields.need("call", "\"try\"")?;
    let permits = |fields: &mut Fields<'t>| -> Result<u64, ScenarioError> {
        Ok(fields.get("permits").map(|permits| permits.count()).transpose()?.unwrap_or(1))
    };
    Ok(match call.text()? {
        "try" => {
            let name = fields.get("name").map(|name| name.text()).transpose()?;
            names.tried.extend(name);
            Call::Try { permits: permits(fields)?, name: name.map(str::to_owned) }
        }
        "settle" => {
            let name = names.granted(fields)?;
            Call::Settle { name, actual: fields.need("actual", "1200")?.count()? }
        }
        "refund" => Call::Refund { name: names.granted(fields)?, permits: permits(fields)? },
        "peek" => Call::Peek { permits: permits(fields)? },
        "refill" => {
            if !build_all(limits)?.iter().any(|limit| matches!(limit, AnyPolicy::BackfillPool(_))) {
                return Err(call.error("only a backfill-pool is refilled, and there is none"));
            }
            Call::Refill { permits: permits(fields)? }
        }
        "reserve" => {
            let name = fields.get("name").map(|name| name.text()).transpose()?;
            names.reserved.extend(name);
            let max_wait = fields.get("max_wait").map(|wait| wait.duration()).transpose()?;
            let (permits, name) = (permits(fields)?, name.map(str::to_owned));
            Call::Reserve { permits, name, max_wait_ns: max_wait }
        }
        "wait" => {
            let name = fields.get("name").map(|name| name.text()).transpose()?;
            names.waits.extend(name);
            let max_wait = fields.get("max_wait").map(|wait| wait.duration()).transpose()?;
            let (permits, name) = (permits(fields)?, name.map(str::to_owned));
            let class = classes.class_of(fields, true)?;
            Call::Wait { permits, name, max_wait_ns: max_wait, class }
        }
        "leave" => {
            let name = fields.need("name", "\"a\"")?;
            let text = name.text()?;
            if !names.waits.contains(&text) {
                return Err(name.error(format!("no earlier wait is named \"{text}\"")));
            }
            Call::Leave { name: text.to_owned() }
        }
        "release" => {
            let counts = |limit: &AnyPolicy| {
                matches!(limit, AnyPolicy::Concurrency(_) | AnyPolicy::CommitLog(_))
            };
            if !build_all(limits)?.iter().any(counts) {
                let message = "only concurrency and a commit-log are released, and there is none";
                return Err(call.error(message));
            }
            Call::Release { permits: permits(fields)? }
        }
        "cancel" => {
            let name = fields.need("name", "\"a\"")?;
            let text = name.text()?;
            if !names.reserved.contains(&text) {
                return Err(name.error(format!("no earlier reserve is named \"{text}\"")));
            }
            Call::Cancel { name: text.to_owned() }
        }
        "set" => {
            let limit = fields.need("limit", "{ rate = \"10/s\" }")?;
            change(source, limit.value(), limits)?;
            Call::Set { limits: build_all(limits)? }
        }
        other => return Err(call.error(format!("is \"{other}\"; it is {CALLS}"))),
    })
}

/// Copies the keys of a `set` into the limits that have them.
fn change<'t>(
    source: Source<'t>,
    value: &'t Spanned<DeValue<'t>>,
    limits: &mut [LimitTable],
) -> Result<(), ScenarioError> {
    if let [only] = limits {
        *only = only.clone().changed(Fields::new(source, "limit", value)?)?;
        return Ok(());
    }
    let fields = Fields::new(source, "limit", value)?;
    for key in fields.keys().filter(|key| *key != "policy") {
        if !limits.iter().any(|limit| limit.keys().contains(&key)) {
            return Err(fields.error_at(key, format!("no limit here has the key `{key}`")));
        }
    }
    let mut taken = false;
    for limit in limits {
        let mut fields = Fields::new(source, "limit", value)?;
        if limit.takes(&mut fields)? {
            *limit = limit.clone().changed(fields.ignoring_others())?;
            taken = true;
        }
    }
    if taken { Ok(()) } else { Err(fields.error("changes none of the limits")) }
}

fn read_step_expect(mut fields: Fields<'_>) -> Result<StepExpect, ScenarioError> {
    let outcome = fields.get("outcome").map(|outcome| outcome.parse()).transpose()?;
    let mut duration = |key| fields.get(key).map(|value| value.duration()).transpose();
    let (start_ns, retry_after_ns, wait_ns) =
        (duration("start")?, duration("retry_after")?, duration("wait")?);
    let ended_ns = duration("ended")?;
    let mut count = |key| fields.get(key).map(|value: Field<'_>| value.count()).transpose();
    let (back, owed, remaining) = (count("back")?, count("owed")?, count("remaining")?);
    fields.finish()?;
    Ok(StepExpect { outcome, start_ns, retry_after_ns, wait_ns, ended_ns, back, owed, remaining })
}
