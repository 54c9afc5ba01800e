//! Files that describe a server, its callers, and goals.
//!
//! ```toml
//! title = "half as much again as the server can do"
//!
//! [limit]
//! controller = "knee"
//! first = 20
//! ceiling = 1000
//!
//! [server]
//! workers = 10
//! service = { mean = "10ms" }
//!
//! [[client]]
//! rate = "1500/s"
//!
//! # Calls of a low priority, which may fill 60 % of the first client's limit.
//! [[client]]
//! rate = "300/s"
//! limit_of = 1
//! share = 60
//!
//! # Or a load of any shape: `shape = "poisson(ramp:0/s>3000/s@1min),seed=7"`.
//!
//! [[measure]]
//! from = "10s"
//! to = "60s"
//! goodput = 98
//! p99 = "60ms"
//!
//! # Of the first client's calls alone.
//! [[measure]]
//! client = 1
//! from = "10s"
//! to = "60s"
//! goodput = 65
//! ```

use rategate_core::adaptive::{Aimd, Bounds, Knee};
use rategate_core::rate::Rate;
use rategate_core::shape::Load;
use rategate_core::share::Share;
use rategate_core::span;
use serde::Deserialize;
use serde::de::Deserializer;

use super::Percent;
use super::{Client, Measure, Numbers, Pause, Run, Server, Service, Setup, Steps};
use crate::scenario::table::{Table, Text, later, number};
use crate::scenario::{Ns, ScenarioError};

/// The maximum length of a run.
const MAX_NS: u64 = 3_600_000_000_000;
/// The maximum number of callers.
const MAX_CLIENTS: usize = 1_000;
/// The maximum number of calls in a thousand seconds, of one caller and of all together.
const MAX_PER_1000_S: u64 = 100_000_000;

/// A file about a server under load.
#[derive(Clone, Debug)]
pub struct ServerFile {
    /// The title.
    pub title: Option<String>,
    /// The controller of each caller.
    pub controller: ControllerKind,
    /// The bounds of its limit.
    pub bounds: Bounds,
    /// The server, its callers and what is measured.
    pub setup: Setup,
    /// The goals of each measure.
    pub goals: Vec<Goal>,
}

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerKind {
    /// [`Knee`].
    Knee,
    /// [`Aimd`].
    Aimd,
}

/// The goals of a measure. One that is `None` is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goal {
    /// The minimum goodput, in thousandths.
    pub goodput_per_mille: Option<u64>,
    /// The maximum of the latency of 99 of 100 calls.
    pub p99_ns: Option<u64>,
    /// The minimum of Jain's index, in thousandths.
    pub jain_per_mille: Option<u64>,
    /// The maximum of refused calls, in thousandths of those that were sent.
    pub refused_per_mille: Option<u64>,
    /// The maximum of calls that are not sent, in thousandths of those that were made.
    pub shed_per_mille: Option<u64>,
}

impl ServerFile {
    /// Returns `true` if a text has a table of a server, as no other scenario has.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        Table::parse(text).is_ok_and(|table| table.has("server"))
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The first [`ScenarioError`] in the order of reading.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let table = Table::parse(text)?;
        let file: File = table.read(&[])?;
        let LimitTable { controller, floor, first, ceiling } = file.limit;
        let (floor, first) = (floor.unwrap_or(1), first.unwrap_or(20));
        let ceiling = ceiling.unwrap_or(1_000);
        let bounds = Bounds::try_new(floor, first, ceiling).map_err(|error| {
            let message = format!("has floor {floor}, first {first}, ceiling {ceiling}: {error}");
            table.error_at("limit", message)
        })?;
        let server = read_server(&table.need_table("server")?)?;
        let mut clients: Vec<Client> = Vec::new();
        for client in table.tables("client")? {
            clients.push(read_client(&client, &clients)?);
        }
        if clients.is_empty() || clients.len() > MAX_CLIENTS {
            return Err(table.error(format!("needs from 1 to {MAX_CLIENTS} [[client]]s")));
        }
        let measures = table.tables("measure")?.into_iter();
        let measures = measures.map(|measure| read_measure(&measure, clients.len()));
        let (measures, goals): (Vec<Measure>, Vec<Goal>) =
            measures.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        if measures.is_empty() {
            return Err(table.error("needs a [[measure]]"));
        }
        // Of each caller the largest of its rates.
        let end_ns = measures.iter().map(|measure| measure.to_ns).fold(0, u64::max);
        let rates = clients.iter().map(|client| client.max_per_1000_s(end_ns));
        if rates.fold(0, u64::saturating_add) > MAX_PER_1000_S {
            return Err(table.error_at("client", "is above 100000/s together"));
        }
        let setup = Setup { server, clients, measures, seed: file.seed.unwrap_or(1) };
        Ok(Self { title: file.title, controller, bounds, setup, goals })
    }

    /// Runs the setup with the controller of the file.
    #[must_use]
    pub fn run(&self) -> Run {
        let (setup, bounds, seed) = (&self.setup, self.bounds, self.setup.seed);
        let seed = |client: u64| seed.wrapping_mul(1_000).wrapping_add(client);
        match self.controller {
            ControllerKind::Knee => setup.run(|client| Knee::new(bounds, seed(client))),
            ControllerKind::Aimd => setup.run(|_| Aimd::new(bounds)),
        }
    }
}

impl Goal {
    /// Returns each way in which it is missed.
    #[must_use]
    pub fn missed_by(&self, got: &Numbers) -> Vec<String> {
        let percent = |per_mille: u64| Percent(per_mille).to_string();
        let time = |ns: u64| span::Text(ns).to_string();
        let low = |name: &str, goal: Option<u64>, got: u64| {
            let goal = goal.filter(|&goal| got < goal)?;
            Some(format!("{name} is {}, below {}", percent(got), percent(goal)))
        };
        let high = |name: &str, goal: Option<u64>, got: u64, text: &dyn Fn(u64) -> String| {
            let goal = goal.filter(|&goal| got > goal)?;
            Some(format!("{name} is {}, above {}", text(got), text(goal)))
        };
        let all = [
            low("goodput", self.goodput_per_mille, got.goodput_per_mille),
            high("p99", self.p99_ns, got.p99_ns, &time),
            low("Jain's index", self.jain_per_mille, got.jain_per_mille),
            high("refused", self.refused_per_mille, got.refused_per_mille, &percent),
            high("shed", self.shed_per_mille, got.shed_per_mille, &percent),
        ];
        all.into_iter().flatten().collect()
    }
}

/// The keys of a file. Those of no type are read one by one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: Option<String>,
    seed: Option<u64>,
    limit: LimitTable,
    #[serde(rename = "server", deserialize_with = "later")]
    _server: (),
    #[serde(rename = "client", default, deserialize_with = "later")]
    _client: (),
    #[serde(rename = "measure", default, deserialize_with = "later")]
    _measure: (),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitTable {
    controller: ControllerKind,
    floor: Option<u32>,
    first: Option<u32>,
    ceiling: Option<u32>,
}

/// The keys of a server that cannot change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerTable {
    queue: Option<u64>,
    pause: Option<PauseTable>,
    deadline: Option<Ns>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct PauseTable {
    every: Ns,
    r#for: Ns,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceTable {
    mean: Option<Ns>,
    from: Option<Ns>,
    to: Option<Ns>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExceptTable {
    percent: u64,
    mean: Ns,
}

/// The keys of a client besides its rate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTable {
    shape: Option<Text<Load>>,
    share: Option<u64>,
    limit_of: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasureTable {
    from: Ns,
    to: Ns,
    client: Option<usize>,
    goodput: Option<PerMille<100>>,
    p99: Option<Ns>,
    jain: Option<PerMille<1>>,
    refused: Option<PerMille<100>>,
    shed: Option<PerMille<100>>,
}

/// A value from an instant on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as in { from = \"20s\", is = 10 }")]
struct Change<T> {
    from: Ns,
    is: T,
}

/// A number with up to three decimals, in thousandths.
struct Thousandths(u64);

impl<'de> Deserialize<'de> for Thousandths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, |number| thousandths(number).map(Self))
    }
}

fn thousandths(number: f64) -> Result<u64, &'static str> {
    let text = number.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let read = format!("{whole}{part:0<3}").parse().ok().filter(|_| part.len() <= 3);
    read.ok_or("it must be a number with up to 3 decimals")
}

/// Thousandths of a `WHOLE`, which is 1, or 100 for percent.
struct PerMille<const WHOLE: u64>(u64);

impl<'de, const WHOLE: u64> Deserialize<'de> for PerMille<WHOLE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, |number| {
            let of_whole = thousandths(number).ok().filter(|of_whole| of_whole % WHOLE == 0);
            let per_mille = of_whole.map(|of_whole| of_whole / WHOLE);
            per_mille
                .filter(|&per_mille| per_mille <= 1_000)
                .map(Self)
                .ok_or_else(|| format!("it must be at most {WHOLE}, in thousandths of that"))
        })
    }
}

fn read_server(table: &Table<'_>) -> Result<Server, ScenarioError> {
    let workers = steps(table, "workers", Ok)?;
    let workers = workers.ok_or_else(|| table.error("needs the key `workers`"))?;
    let service = read_service(&table.need_table("service")?)?;
    let mut server = Server { workers, ..Server::new(1, service) };
    let slowness = steps(table, "slowness", |Thousandths(slowness)| Ok(slowness))?;
    let network_ns = steps(table, "network", |Ns(ns)| Ok(ns))?;
    server.slowness = slowness.unwrap_or(server.slowness);
    server.network_ns = network_ns.unwrap_or(server.network_ns);
    let read: ServerTable = table.read(&["workers", "service", "slowness", "network"])?;
    if let Some(queue) = read.queue {
        server.queue = usize::try_from(queue).unwrap_or(usize::MAX);
    }
    if let Some(PauseTable { every: Ns(every_ns), r#for: Ns(for_ns) }) = read.pause {
        if !(1..every_ns).contains(&for_ns) {
            let message = "needs a `for` of more than 0 and less than `every`";
            return Err(table.error_at("pause", message));
        }
        server.pause = Some(Pause { every_ns, for_ns });
    }
    server.deadline_ns = read.deadline.map_or(server.deadline_ns, |Ns(ns)| ns);
    Ok(server)
}

fn read_service(table: &Table<'_>) -> Result<Service, ScenarioError> {
    let read: ServiceTable = table.read(&["except"])?;
    let except: Vec<ExceptTable> = table.all("except")?;
    if except.iter().map(|except| except.percent).fold(0, u64::saturating_add) > 100 {
        return Err(table.error_at("except", "must be at most 100 percent together"));
    }
    let service = match (read.mean, read.from, read.to) {
        (Some(Ns(mean_ns)), None, None) => Service::exponential(mean_ns),
        (None, Some(Ns(from_ns)), Some(Ns(to_ns))) if from_ns <= to_ns => {
            Service::uniform(from_ns, to_ns)
        }
        _ => {
            let message = "needs `mean` alone, or `from` and `to` with the lesser one first";
            return Err(table.error(message));
        }
    };
    let add = |service: Service, except: ExceptTable| service.except(except.percent, except.mean.0);
    Ok(except.into_iter().fold(service, add))
}

/// Reads a client, behind others.
fn read_client(table: &Table<'_>, others: &[Client]) -> Result<Client, ScenarioError> {
    let rate = steps(table, "rate", |Text(rate)| {
        let is_bounded = rate != Rate::UNLIMITED
            && Client::constant(rate).max_per_1000_s(MAX_NS) <= MAX_PER_1000_S;
        if is_bounded { Ok(rate) } else { Err("is above 100000/s") }
    })?;
    let read: ClientTable = table.read(&["rate"])?;
    let client = match (read.shape, rate) {
        (Some(Text(load)), None) => {
            Client::of(load).map_err(|error| table.error_at("shape", error))?
        }
        (None, Some(rate)) => Client::changing(rate),
        (Some(_), Some(_)) => {
            return Err(
                table.error_at("rate", "is given by the shape too; leave out one of the two")
            );
        }
        (None, None) => return Err(table.error("needs the key `rate`, or `shape`")),
    };
    let percent = read.share.map_or(100, |share| u8::try_from(share).unwrap_or(u8::MAX));
    let share = Share::try_percent(percent);
    let client = client.in_share(share.map_err(|error| table.error_at("share", error))?);
    let Some(of) = index(table, "limit_of", read.limit_of, others.len())? else {
        return Ok(client);
    };
    if others[of].limit_of.is_some() {
        return Err(table.error_at("limit_of", "names a client that has no limit of its own"));
    }
    Ok(client.under_limit_of(of))
}

/// Returns the index of a client, whose number counts from 1.
fn index(
    table: &Table<'_>,
    key: &str,
    number: Option<usize>,
    clients: usize,
) -> Result<Option<usize>, ScenarioError> {
    let index = number.map(|number| number.wrapping_sub(1));
    if index.is_some_and(|index| index >= clients) {
        let message = format!("is the number of a client, from 1, of which there are {clients}");
        return Err(table.error_at(key, message));
    }
    Ok(index)
}

fn read_measure(table: &Table<'_>, clients: usize) -> Result<(Measure, Goal), ScenarioError> {
    let read: MeasureTable = table.read(&[])?;
    let (Ns(from_ns), Ns(to_ns)) = (read.from, read.to);
    if to_ns <= from_ns || to_ns > MAX_NS {
        return Err(table.error_at("to", "must be after `from`, and at most \"1h\""));
    }
    let goal = Goal {
        goodput_per_mille: read.goodput.map(|PerMille(per_mille)| per_mille),
        p99_ns: read.p99.map(|Ns(ns)| ns),
        jain_per_mille: read.jain.map(|PerMille(per_mille)| per_mille),
        refused_per_mille: read.refused.map(|PerMille(per_mille)| per_mille),
        shed_per_mille: read.shed.map(|PerMille(per_mille)| per_mille),
    };
    let client = index(table, "client", read.client, clients)?;
    Ok((Measure { from_ns, to_ns, client }, goal))
}

/// Reads one value, or the values from some instants on: `[{ from = "0s", is = 20 }, …]`.
fn steps<'t, T: Deserialize<'t>, U: Copy>(
    table: &Table<'t>,
    key: &str,
    check: impl Fn(T) -> Result<U, &'static str>,
) -> Result<Option<Steps<U>>, ScenarioError> {
    let check = |value| check(value).map_err(|why| table.error_at(key, why));
    if !table.has_tables(key) {
        return table.get(key)?.map(|value| check(value).map(Steps::constant)).transpose();
    }
    let mut steps: Option<(Steps<U>, u64)> = None;
    for Change { from: Ns(from_ns), is } in table.all::<Change<T>>(key)? {
        let value = check(is)?;
        steps = Some(match steps {
            None if from_ns == 0 => (Steps::constant(value), 0),
            Some((steps, last_ns)) if from_ns > last_ns => (steps.then(from_ns, value), from_ns),
            _ => {
                let message = "must be from \"0s\" at first, and then in the order of time";
                return Err(table.error_at(key, message));
            }
        });
    }
    steps.map(|(steps, _)| Some(steps)).ok_or_else(|| table.error_at(key, "is empty"))
}
