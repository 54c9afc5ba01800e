//! Stories of requests as lines of text, played wherever their rules can count: in this process,
//! in a store, in a real one, and through Redis' protocol.
//!
//! ```text
//! 2> reserve 1 s:800 here:1 => granted granted again; left 200 1; ends 30s
//! ```
//!
//! A line is an operation and, behind the arrow, all of its verdicts, `no` if the request is not
//! allowed, and `again` if it had been answered before. Behind each `;` follows one more word about
//! the answer, with its values. A verdict without a number stands for any number. `!` is an error
//! with this text in it. `2>` names a second server, which shares no more than the store.
//!
//! An item is `rule:permits` or `rule:unit=count@model`. The value of its entry
//! is `x`, unless one follows the name as in `rule.ann`. `@a,b` is a descriptor with these entries,
//! `@a/20` one with a limit of 20 a minute of its own, and `~50` a bucket of the call, which earns
//! one a second. A `?` in front makes it a quota, and a `-` a refund.

mod bounds;
mod charges;
mod in_flight;
mod leases;
mod once;
mod random;
mod reservations;
mod resp;
mod restart;
mod sums;
mod together;

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use rategate::charge::Settled;
use rategate::{Clock as _, Gcra, ManualClock};
use rategate_server::engine::{
    Cost, Decided, Engine, EngineError, EngineSettings, Inline, Item, ItemResult, Lease, LeaseVerb,
    Observer, Override, Request, Reserved, Shared, Stores, Target, UniqueId, Verb, Verdict,
};
use rategate_server::rule::{CounterLocation, Limit, OnUnavailable, Rule, RuleSet, Unit, Usage};
use rategate_testkit::faulty::Fate;
use rategate_testkit::redis::{Brand, Server};
use tokio::runtime::Runtime;

use crate::engine::common::{SECOND, SMALL};
use crate::stores::{MS, PATIENCE, World, real_store, rule_set};

/// The time of a reservation that says none.
const TTL: Duration = Duration::from_secs(30);

/// This process, and the protocols that a client can speak with it.
const THIS_PROCESS: [Place; 3] = [Place::Here, Place::Resp(2), Place::Resp(3)];

/// The place where all rules of a story count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    Store,
    /// In this process, behind a version of Redis' protocol.
    Resp(i64),
}

/// Plays a story whose rules say themselves where they count.
fn play(rules: Vec<Rule>, text: &str) -> Story {
    let mut story = Story::of(rules);
    story.play(text);
    story
}

/// Plays a story of rules that decide the same wherever they count.
fn play_everywhere(rules: &[Rule], text: &str) {
    play_at(&[Place::Here, Place::Store, Place::Resp(2), Place::Resp(3)], rules, text);
}

fn play_at(places: &[Place], rules: &[Rule], text: &str) {
    for &place in places {
        println!("{place:?}");
        let location =
            if place == Place::Store { CounterLocation::StoreExact } else { CounterLocation::Here };
        let mut story = Story::of(rules.iter().map(|rule| Rule { location, ..rule.clone() }));
        if let Place::Resp(version) = place {
            story.resp = Some(resp::Twin::new(&story, version));
        }
        story.play(text);
    }
}

/// Plays a story in which no time passes with the real stores, too. Their buckets earn nothing
/// meanwhile, so the story does not say how long the waits are.
fn play_with_real_stores(rules: &[Rule], text: &str) {
    play(rules.to_vec(), text);
    for brand in Brand::installed() {
        println!("{brand:?}");
        Story::real(brand, rules).play(text);
    }
}

/// What plays a story.
pub(crate) struct Story {
    pub(crate) world: World,
    pub(crate) settings: EngineSettings,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    rules: Vec<Rule>,
    servers: Vec<Engine<ManualClock>>,
    real: Option<(Arc<Shared<rategate_redis::client::RedisStore>>, Server, Runtime)>,
    resp: Option<resp::Twin>,
    /// Where the file of counters is.
    home: tempfile::TempDir,
    /// The text of the rules, where they have one.
    text: String,
}

impl Story {
    /// Each rule has one entry, of its own name.
    fn of(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self::with_entries(rule_set(rules.into_iter().collect()).rules)
    }

    fn with_entries(rules: Vec<Rule>) -> Self {
        let settings = EngineSettings { max_keys: 100, ..SMALL };
        let world = World::new();
        let home = tempfile::tempdir().unwrap();
        Self {
            world,
            settings,
            observer: None,
            rules,
            servers: Vec::new(),
            real: None,
            resp: None,
            home,
            text: String::new(),
        }
    }

    /// Its rules keep apart what no time gives back, as a real store reads a clock of its own.
    fn real(brand: Brand, rules: &[Rule]) -> Self {
        let slow = rules.iter().cloned().map(|mut rule| {
            if let Limit::Policy(rategate::AnyPolicy::Gcra(bucket)) = rule.limit {
                let burst = bucket.burst_size().get();
                rule.limit = Limit::Policy(Gcra::per_day(1).burst(burst).into());
            }
            rule.on_unavailable = OnUnavailable::Deny;
            rule
        });
        let mut story = Self::of(slow);
        let server = Server::start(brand);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        story.real = Some((real_store(&server, PATIENCE), server, runtime));
        story
    }

    /// Starts server `at`, counted from 0, and those before it.
    fn server(&mut self, at: usize) -> &Engine<ManualClock> {
        while self.servers.len() <= at {
            self.servers.push(self.begun());
        }
        &self.servers[at]
    }

    /// Starts one more server.
    fn begun(&self) -> Engine<ManualClock> {
        let (clock, observer) = (self.world.clock.clone(), self.observer.clone());
        let store: Arc<dyn Stores<ManualClock>> = if let Some((store, ..)) = &self.real {
            Arc::<Shared<_>>::clone(store)
        } else {
            let nodes = NonZeroU32::new(2).unwrap();
            Arc::new(Shared::new(Arc::clone(&self.world.store), nodes))
        };
        let engine = Engine::with_store(clock, self.settings, observer, Some(store));
        engine.load(RuleSet { rules: self.rules.clone(), hash: "".into() }).unwrap();
        engine
    }

    /// Replaces the rules of all servers.
    fn load(&mut self, rules: Vec<Rule>) {
        self.load_entries(rule_set(rules).rules);
    }

    fn load_entries(&mut self, rules: Vec<Rule>) {
        self.rules = rules;
        for server in &self.servers {
            server.load(RuleSet { rules: self.rules.clone(), hash: "new".into() }).unwrap();
        }
    }

    fn wait<A>(&self, decided: Decided<A>) -> Result<A, EngineError> {
        match &self.real {
            Some((.., runtime)) => runtime.block_on(decided.answer()),
            None => self.world.wait(decided).0,
        }
    }

    fn play(&mut self, text: &str) {
        for line in text.lines().map(str::trim) {
            if !line.is_empty() && !line.starts_with("//") {
                println!("{line}");
                self.repeat(line);
            }
        }
    }

    /// A line with `2x` in front is sent twice: the same answer comes again.
    fn repeat(&mut self, line: &str) {
        match line.split_once("x ") {
            Some((times, line)) if times.len() == 1 => {
                self.step(line);
                let (verdicts, rest) = line.split_once("; ").unwrap_or((line, ""));
                let again = format!("{verdicts} again; {rest}");
                for _ in 1..times.parse().unwrap() {
                    self.step(again.trim_end_matches("; "));
                }
            }
            _ => self.step(line),
        }
    }

    fn step(&mut self, line: &str) {
        let (server, line) = match line.split_once("> ") {
            Some((number, rest)) if number.len() == 1 => {
                (number.parse::<usize>().unwrap() - 1, rest)
            }
            _ => (0, line),
        };
        let (call, expected) = cut(line, " => ");
        let (verb, rest) = call.split_once(' ').unwrap_or((call, ""));
        let now_ns = self.world.clock.now_ns();
        match verb {
            "pass" => {
                let passed: i64 = rest.split(' ').map(nanoseconds).sum();
                let then_ns = now_ns.checked_add_signed(passed).unwrap();
                self.world.clock.set(Duration::from_nanos(then_ns));
            }
            "tick" => self.server(server).tick(now_ns),
            "edit" => self.edit(rest, expected.unwrap()),
            "save" | "end" | "begin" => self.file(server, verb, rest, expected),
            "store" => self.world.store.script(rest.split(' ').map(fate)),
            "counts" => {
                let counts = format!("{:?}", self.server(server).reservation_counts());
                let counts = counts.replace([',', '}'], " ");
                for pair in rest.split("; ") {
                    let (name, count) = pair.split_once(' ').unwrap();
                    assert!(counts.contains(&format!(" {name}: {count} ")), "{name} of {counts}");
                }
            }
            "left" => {
                let peeked: Vec<_> = rest.split(' ').map(|name| format!("{name}:1")).collect();
                let left = peeked.iter().map(|item| {
                    let seen = self.call(server, "peek", item).unwrap();
                    shown(seen.answer.results[0].remaining)
                });
                assert_eq!(left.collect::<Vec<_>>().join(" "), expected.unwrap());
            }
            "abandon" => {
                let (verb, rest) = rest.split_once(' ').unwrap();
                drop(self.decide(server, verb, rest));
            }
            verb => {
                let answer = self.call(server, verb, rest);
                check(answer, expected.unwrap_or("granted"));
            }
        }
    }

    fn call(&mut self, server: usize, verb: &str, rest: &str) -> Result<Reserved, EngineError> {
        let decided = self.decide(server, verb, rest);
        let answer = self.wait(decided);
        if let Some(resp) = self.resp.as_mut().filter(|_| server == 0) {
            resp.compare(verb, rest, &answer);
        }
        answer
    }

    fn decide(&mut self, server: usize, verb: &str, rest: &str) -> Decided<Reserved> {
        decide(self.server(server), verb, rest)
    }
}

/// Begins an operation.
fn decide(engine: &Engine<ManualClock>, verb: &str, rest: &str) -> Decided<Reserved> {
    let words: Vec<&str> = rest.split(' ').collect();
    // An operation has an id, and a request with one says its verb before it.
    let ahead = match verb {
        "once" => 2,
        "reserve" | "commit" | "cancel" | "lease" | "renew" | "release" => 1,
        _ => 0,
    };
    let (ahead, items) = words.split_at(ahead);
    let parts: Vec<_> = items.iter().map(|word| Part::of(word)).collect();
    let items: Vec<_> = parts.iter().map(Part::item).collect();
    let request = |verb| Request { verb: verb_of(verb), items: &items, counts_denied: false };
    let lease = |verb| {
        let permits = parts[0].permits.unwrap();
        let (name, rule, values) = (id(ahead[0]), parts[0].name, &parts[0].values);
        plain(engine.lease(verb, &Lease { name, rule, values, permits }))
    };
    match verb {
        "once" => engine.once(id(ahead[1]), &request(ahead[0])),
        "reserve" => {
            let (id, ttl) = id_and_ttl(ahead[0]);
            engine.reserve(id, ttl, &items)
        }
        "commit" => engine.commit(id(ahead[0]), &parts.iter().map(Part::cost).collect::<Vec<_>>()),
        "cancel" => {
            engine.cancel(id(ahead[0]), &parts.iter().map(Part::target).collect::<Vec<_>>())
        }
        "lease" => lease(LeaseVerb::Take),
        "renew" => lease(LeaseVerb::Renew),
        "release" => lease(LeaseVerb::Release),
        verb => plain(engine.decide(&request(verb))),
    }
}

/// One item of a line.
struct Part<'t> {
    name: &'t str,
    values: [&'t [u8]; 1],
    entries: Vec<(&'t [u8], &'t [u8])>,
    own: Option<Override>,
    inline: Option<Inline>,
    permits: Option<u64>,
    counts: Vec<(&'t str, u64)>,
    model: Option<&'t str>,
    quota: bool,
    refund: bool,
}

impl<'t> Part<'t> {
    fn of(word: &'t str) -> Self {
        let (quota, refund) = (word.starts_with('?'), word.starts_with('-'));
        let (name, amount) = cut(word.trim_start_matches(['?', '-']), ":");
        let (name, value) = cut(name, ".");
        let (name, own) = cut(name, "/");
        let value = value.unwrap_or("x").as_bytes();
        let keys = name.strip_prefix('@').into_iter().flat_map(|keys| keys.split(','));
        let capacity = name.strip_prefix('~').map(number);
        let is_usage = amount.is_some_and(|amount| amount.contains('='));
        let (usage, model) = cut(amount.filter(|_| is_usage).unwrap_or_default(), "@");
        let counts = usage.split(',').filter_map(|count| count.split_once('='));
        Self {
            name,
            values: [value],
            entries: keys.map(|key| (key.as_bytes(), value)).collect(),
            own: own.map(|own| Override { permits: number(own), unit: Unit::Minute }),
            inline: capacity.map(|capacity| Inline { capacity, count: 1, period_ns: SECOND }),
            permits: amount.filter(|_| !is_usage).map(number),
            counts: counts.map(|(unit, count)| (unit, number(count))).collect(),
            model,
            quota,
            refund,
        }
    }

    fn target(&self) -> Target<'_> {
        match self.inline {
            Some(limit) => Target::Inline { limit, key: b"k" },
            None if self.entries.is_empty() => {
                Target::Rule { name: self.name, values: &self.values }
            }
            None => Target::Descriptor { domain: "d", entries: &self.entries, limit: self.own },
        }
    }

    fn usage(&self) -> Option<Usage<'_>> {
        let is_any = !self.counts.is_empty();
        is_any.then_some(Usage { counts: &self.counts, model: self.model })
    }

    fn item(&self) -> Item<'_> {
        let item = match self.usage() {
            Some(usage) => Item::of_usage(self.target(), usage),
            None => Item::of(self.target(), self.permits.unwrap_or(1)),
        };
        Item { quota: self.quota, refund: self.refund, ..item }
    }

    fn cost(&self) -> Cost<'_> {
        Cost { target: self.target(), permits: self.permits, usage: self.usage() }
    }
}

/// Returns what is before and behind a sign.
fn cut<'t>(text: &'t str, sign: &str) -> (&'t str, Option<&'t str>) {
    text.split_once(sign).map_or((text, None), |(before, behind)| (before, Some(behind)))
}

fn number(word: &str) -> u64 {
    if word == "max" { u64::MAX } else { word.parse().unwrap() }
}

fn id(number: &str) -> UniqueId {
    UniqueId(number.parse::<u128>().unwrap().to_be_bytes())
}

/// Returns the id, and the time behind its slash, which is that of the rules if it is `-`.
fn id_and_ttl(word: &str) -> (UniqueId, Option<Duration>) {
    match word.split_once('/') {
        Some((number, "-")) => (id(number), None),
        Some((number, ttl)) => (id(number), Some(Duration::from_nanos(nanoseconds(ttl) as u64))),
        None => (id(word), Some(TTL)),
    }
}

fn verb_of(word: &str) -> Verb {
    match word {
        "take" => Verb::Take,
        "peek" => Verb::Peek,
        "charge" => Verb::Charge,
        "refund" => Verb::Refund,
        "reset" => Verb::Reset,
        other => panic!("{other}: no such verb"),
    }
}

fn nanoseconds(word: &str) -> i64 {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
    let number: i64 = word[..word.len() - unit.len()].parse().unwrap();
    number
        * match unit {
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "ns" => 1,
            other => panic!("{other}: no such unit"),
        }
}

/// What becomes of one call of the store.
fn fate(word: &str) -> Fate {
    match word {
        "prompt" => Fate::Prompt,
        "gone" => Fate::Unreachable,
        "slow" => Fate::Slow { there_ns: MS, back_ns: 5 * MS },
        "near" => Fate::Slow { there_ns: MS, back_ns: MS },
        "slower" => Fate::Slow { there_ns: MS, back_ns: 12 * MS },
        // The store decides, and the reply comes too late.
        "lost" => Fate::Slow { there_ns: MS, back_ns: 60 * MS },
        other => panic!("{other}: no such fate"),
    }
}

fn plain(decided: Decided) -> Decided<Reserved> {
    let plain = |answer| Reserved { answer, is_repeated: false, ends_after_ns: None };
    match decided {
        Decided::Now(answer) => Decided::Now(answer.map(plain)),
        Decided::Later(answer) => Decided::Later(Box::pin(async move { answer.await.map(plain) })),
    }
}

fn shown(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

fn time(ns: Option<u64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns) if ns.is_multiple_of(SECOND) => format!("{}s", ns / SECOND),
        Some(ns) if ns.is_multiple_of(MS) => format!("{}ms", ns / MS),
        Some(ns) => format!("{ns}ns"),
    }
}

fn verdict(verdict: Verdict) -> String {
    let wait = |retry_after_ns: Option<NonZeroU64>| time(retry_after_ns.map(u64::from));
    match verdict {
        Verdict::Denied { retry_after_ns: None, enforced } => {
            if enforced { "never" } else { "shadow:-" }.to_owned()
        }
        Verdict::Denied { retry_after_ns, enforced } => {
            format!("{}:{}", if enforced { "over" } else { "shadow" }, wait(retry_after_ns))
        }
        Verdict::Charged(permits) => format!("charged:{permits}"),
        Verdict::Refunded(permits) => format!("refunded:{permits}"),
        Verdict::Committed(Settled::Even) => "even".to_owned(),
        Verdict::Committed(Settled::Back { permits }) => format!("back:{permits}"),
        Verdict::Committed(Settled::Owed { permits, forgiven: 0 }) => format!("owed:{permits}"),
        Verdict::Committed(Settled::Owed { permits, forgiven }) => {
            format!("owed:{permits}-{forgiven}")
        }
        Verdict::Cancelled(permits) => format!("cancelled:{permits}"),
        Verdict::Late(permits) => format!("late:{permits}"),
        Verdict::Unavailable { admitted: true, retry_after_ns: None } => "admitted".to_owned(),
        Verdict::Unavailable { retry_after_ns, .. } => {
            format!("unavailable:{}", wait(retry_after_ns))
        }
        plain => plain.word().to_owned(),
    }
}

fn check(answer: Result<Reserved, EngineError>, expected: &str) {
    if let Some(text) = expected.strip_prefix("! ") {
        let error = answer.expect_err("an error");
        assert!(format!("{error} {error:?}").contains(text), "{error} {error:?}");
        return;
    }
    let answer = answer.unwrap();
    let results = &answer.answer.results;
    let parts = || results.iter().flat_map(ItemResult::parts);
    let mut seen: Vec<_> = results.iter().map(|result| verdict(result.verdict)).collect();
    seen.extend((!answer.answer.allowed).then(|| "no".to_owned()));
    seen.extend(answer.is_repeated.then(|| "again".to_owned()));
    let mut clauses = expected.split("; ");
    compare(&seen, clauses.next().unwrap(), &answer);
    let of = |what: &dyn Fn(&ItemResult) -> String| results.iter().map(what).collect::<Vec<_>>();
    let of_parts = |what: &dyn Fn(&ItemResult) -> String| parts().map(what).collect::<Vec<_>>();
    for clause in clauses {
        let (what, values) = clause.split_once(' ').unwrap();
        let seen = match what {
            "held" => of(&|result| shown(result.held())),
            "left" => of(&|result| shown(result.remaining)),
            "debt" => of(&|result| result.debt.to_string()),
            "cost" => of(&|result| shown(result.cost())),
            "limit" => of(&|result| result.limit.to_string()),
            "reset" => of(&|result| time(Some(result.reset_after_ns))),
            "by" => of(&|result| result.rule.as_ref().map_or("-", |rule| &rule.name).to_owned()),
            "parts" => of_parts(&|result| verdict(result.verdict)),
            "parts-held" => of_parts(&|result| shown(result.held())),
            "parts-left" => of_parts(&|result| shown(result.remaining)),
            "parts-cost" => of_parts(&|result| shown(result.cost())),
            "ends" => vec![time(answer.ends_after_ns.map(u64::from))],
            "lasts" => vec![time(answer.answer.held_ns())],
            other => panic!("{other}: nothing of an answer"),
        };
        compare(&seen, values, &answer);
    }
}

/// A word without a number stands for any.
fn compare(seen: &[String], expected: &str, answer: &Reserved) {
    let words: Vec<_> = expected.split(' ').collect();
    let fits = |(seen, word): (&String, &&str)| {
        seen == *word || (seen.split_once(':').is_some_and(|(name, _)| name == *word))
    };
    let all = seen.len() == words.len() && seen.iter().zip(&words).all(fits);
    assert!(all, "{expected}: {}, in {answer:?}", seen.join(" "));
}
