//! A reader of scenario files, table by table.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate_core::debt::Debt;
use rategate_core::error::RateError;
use rategate_core::line::{MAX_WAITERS, QueueBounds, WhenFull};
use rategate_core::rate::Rate;
use rategate_core::shape::{Load, Operations};
use serde::Deserialize;

use super::calls::Reader;
use super::classes::Classes;
use super::limits::{LimitTable, build_all};
use super::table::{Ns, Signed, Table, Text, later};
use super::{
    Arrivals, Call, CallMode, Caller, Check, Class, Expect, MAX_CALLS, MAX_NAMED_CLASSES,
    MAX_THREADS, Scenario, ScenarioError, Times, one,
};

/// The keys of a file. Those of no type are read one by one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: Option<String>,
    #[serde(rename = "limit", default, deserialize_with = "later")]
    _limit: (),
    #[serde(rename = "clock", default, deserialize_with = "later")]
    _clock: (),
    #[serde(default)]
    debt: DebtWord,
    most_debt: Option<Ns>,
    #[serde(rename = "queue", default, deserialize_with = "later")]
    _queue: (),
    #[serde(rename = "caller", default, deserialize_with = "later")]
    _caller: (),
    #[serde(rename = "arrivals", default, deserialize_with = "later")]
    _arrivals: (),
    #[serde(rename = "step", default, deserialize_with = "later")]
    _step: (),
    #[serde(rename = "check", default, deserialize_with = "later")]
    _check: (),
    #[serde(default)]
    expect: Expect,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ClockTable {
    start: Ns,
    #[serde(rename = "sleep_error", deserialize_with = "later")]
    _sleep_error: (),
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DebtWord {
    #[default]
    Forget,
    Carry,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct QueueTable {
    waiters: Option<u32>,
    permits: Option<NonZeroU64>,
    on_full: WhenFullWord,
    #[serde(rename = "classes", deserialize_with = "later")]
    _classes: (),
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WhenFullWord {
    #[default]
    Refuse,
    EvictNewest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrivalsTable {
    shape: Option<String>,
    #[serde(rename = "rate", default, deserialize_with = "later")]
    _rate: (),
    count: Option<u64>,
    seed: Option<u64>,
    #[serde(default = "one")]
    permits: u64,
    #[serde(default)]
    call: CallMode,
}

pub(super) fn scenario(text: &str) -> Result<Scenario, ScenarioError> {
    let table = Table::parse(text)?;
    let limit_tables = table.tables("limit")?.into_iter().map(LimitTable::new);
    let limit_tables = limit_tables.collect::<Result<Vec<_>, _>>()?;
    if limit_tables.is_empty() {
        return Err(table.error("no [limit]; a scenario needs at least one"));
    }
    let limits = build_all(&limit_tables)?;
    let file: File = table.read(&[])?;
    let (mut clock, mut sleep_errors) = (ClockTable::default(), Vec::new());
    for table in table.tables("clock")? {
        sleep_errors = table.all("sleep_error")?;
        clock = table.read(&[])?;
    }
    let (mut bounds, mut classes) = (QueueBounds::default(), Classes::default());
    for queue in table.tables("queue")? {
        (bounds, classes) = read_queue(&queue)?;
    }
    let callers = read_each(&table, "caller", |table| read_caller(table, &classes))?;
    let arrivals = read_each(&table, "arrivals", |table| read_arrivals(table, &classes))?;
    let steps = Reader::new(limit_tables, &classes).read(table.tables("step")?)?;
    let waits = callers.iter().any(|caller| caller.call == CallMode::Wait)
        || arrivals.iter().any(|arrivals| arrivals.call == CallMode::Wait)
        || steps.iter().any(|step| matches!(step.call, Call::Wait { .. }));
    if table.has("queue") && !waits {
        let message = "bounds waiters, but no call waits; add call = \"wait\"";
        return Err(table.error_at("queue", message));
    }
    let debt = match file.debt {
        DebtWord::Forget => Debt::FORGOTTEN,
        DebtWord::Carry => Debt::CARRIED,
    };
    let scenario = Scenario {
        title: file.title,
        limits,
        clock_start_ns: clock.start.0,
        sleep_error_ns: sleep_errors.into_iter().map(|Signed(ns)| ns).collect(),
        queue: bounds,
        classes: classes.0,
        callers,
        arrivals,
        steps,
        debt: file.most_debt.map_or(debt, |Ns(ns)| debt.at_most(Duration::from_nanos(ns))),
        checks: read_each(&table, "check", read_check)?,
        expect: file.expect,
    };
    bound(&scenario)?;
    Ok(scenario)
}

fn read_each<'t, T>(
    file: &Table<'t>,
    key: &str,
    read: impl FnMut(&Table<'t>) -> Result<T, ScenarioError>,
) -> Result<Vec<T>, ScenarioError> {
    file.tables(key)?.iter().map(read).collect()
}

/// Checks that the file leads to a run of bounded size.
fn bound(scenario: &Scenario) -> Result<(), ScenarioError> {
    let refused = |message| Err(ScenarioError { line: None, message });
    let threads = scenario.callers.iter().map(|caller| caller.threads);
    if threads.fold(0, u64::saturating_add) > MAX_THREADS {
        return refused(format!("over {MAX_THREADS} threads in all"));
    }
    let looped =
        scenario.callers.iter().map(|caller| caller.threads.saturating_mul(caller.operations));
    let calls = looped
        .chain(scenario.arrivals.iter().map(|arrivals| arrivals.count))
        .fold(scenario.steps.len() as u64, u64::saturating_add);
    if calls > MAX_CALLS {
        return refused(format!("over {MAX_CALLS} operations, arrivals and steps in all"));
    }
    Ok(())
}

fn read_queue(queue: &Table<'_>) -> Result<(QueueBounds, Classes), ScenarioError> {
    let read: QueueTable = queue.read(&[])?;
    let mut bounds = QueueBounds::default();
    if let Some(waiters) = read.waiters {
        if !(1..=MAX_WAITERS).contains(&waiters) {
            let message = format!("must be at least 1, at most {MAX_WAITERS}");
            return Err(queue.error_at("waiters", message));
        }
        bounds = QueueBounds::new(waiters);
    }
    if let Some(permits) = read.permits {
        bounds = bounds.with_permits(permits.get());
    }
    let mut classes = Vec::new();
    for table in queue.tables("classes")? {
        for name in table.names() {
            if classes.len() == MAX_NAMED_CLASSES {
                let message = format!("exceeds {MAX_NAMED_CLASSES} classes");
                return Err(table.error_at(&name, message));
            }
            classes.push(Class { weight: table.need(&name)?, name });
        }
    }
    let bounds = bounds.when_full(match read.on_full {
        WhenFullWord::Refuse => WhenFull::Refuse,
        WhenFullWord::EvictNewest => WhenFull::EvictNewest,
    });
    Ok((bounds, Classes(classes)))
}

fn read_caller(table: &Table<'_>, classes: &Classes) -> Result<Caller, ScenarioError> {
    let caller: Caller = table.read(&["class"])?;
    if caller.call == CallMode::Try {
        return Err(table.error_at("call", "must be \"reserve\" or \"wait\""));
    }
    let mut latency: Vec<Ns> = table.all("latency")?;
    if latency.is_empty() {
        latency.push(Ns(0));
    }
    Ok(Caller { latency, class: classes.of(table, caller.call)?, ..caller })
}

fn read_arrivals(table: &Table<'_>, classes: &Classes) -> Result<Arrivals, ScenarioError> {
    let read: ArrivalsTable = table.read(&["class"])?;
    let (times, count) = match read.shape.as_deref() {
        Some(shape) if shape.contains(':') => read_load(table, &read)?,
        Some("poisson") => read_rate(table, &read, true)?,
        Some("constant") | None => read_rate(table, &read, false)?,
        Some(shape) => {
            let right = "\"constant\" or \"poisson\" with a rate, or a load, as in \
                         \"ramp:0/s>100/s@10s\"";
            return Err(table.error_at("shape", format!("is \"{shape}\"; it is {right}")));
        }
    };
    let class = classes.of(table, read.call)?;
    Ok(Arrivals { times, count, permits: read.permits, call: read.call, class })
}

fn read_rate(
    table: &Table<'_>,
    read: &ArrivalsTable,
    is_poisson: bool,
) -> Result<(Times, u64), ScenarioError> {
    let Text(rate): Text<Rate> = table.need("rate")?;
    let Some(rate) = rate.fraction() else {
        let message = format!("must be finite for arrivals; {}", RateError::Malformed);
        return Err(table.error_at("rate", message));
    };
    if read.seed.is_some() && !is_poisson {
        return Err(table.error_at("seed", "is for poisson arrivals only"));
    }
    let poisson_seed = is_poisson.then_some(read.seed.unwrap_or(0));
    Ok((Times::Rate { rate, poisson_seed }, table.need("count")?))
}

fn read_load(table: &Table<'_>, read: &ArrivalsTable) -> Result<(Times, u64), ScenarioError> {
    if let Some(key) = ["rate", "seed"].into_iter().find(|key| table.has(key)) {
        let message = "is given by the shape too; leave out one of the two";
        return Err(table.error_at(key, message));
    }
    let Text(load): Text<Load> = table.need("shape")?;
    let operations = load.into_operations();
    let count = match read.count {
        Some(count) => count,
        None if operations.due(MAX_CALLS).is_some() => {
            let message = format!("has over {MAX_CALLS} calls; give it a length or a `count`");
            return Err(table.error_at("shape", message));
        }
        None => count_of(&operations),
    };
    Ok((Times::Load(operations), count))
}

/// Returns the number of operations, which is at most `MAX_CALLS`.
fn count_of(operations: &Operations) -> u64 {
    let (mut known, mut beyond) = (0, 1);
    // Doubled first, since Poisson processes add up all that is before an operation.
    while beyond < MAX_CALLS && operations.due(beyond).is_some() {
        (known, beyond) = (beyond, (beyond * 2).min(MAX_CALLS));
    }
    while known < beyond {
        let middle = known.midpoint(beyond);
        if operations.due(middle).is_some() {
            known = middle + 1;
        } else {
            beyond = middle;
        }
    }
    known
}

fn read_check(table: &Table<'_>) -> Result<Check, ScenarioError> {
    let check: Check = table.read(&[])?;
    if check.window == Ns(0) {
        return Err(table.error_at("window", "of no length holds nothing; it must be at least 1ns"));
    }
    Ok(check)
}
