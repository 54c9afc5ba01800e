//! A process as a node: it keeps one limit together with others, for as long as its parent lives.

mod calls;
mod schedule;
mod tasks;

use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rategate::distributed::{DecidedBy, Distributed, Leases, Mode};
use rategate::{Gcra, Rate};
use rategate_bench::engines::Made;
use rategate_bench::program::end_with_parent;
use rategate_redis::client::{Config, RedisStore, Server};

use crate::PREFIX;
use crate::job::{Grants, Job, Load, NodeMode, NodeReport};

pub(crate) type Limiter = Distributed<RedisStore>;

/// The longest time that a store may be quarantined before the first call.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The limit and the keys of a node.
struct Node {
    limiter: Limiter,
    keys: Vec<Vec<u8>>,
    until_ns: u64,
    grants: Grants,
}

/// Runs the job that is given as JSON, from when stdin says until when.
pub(crate) fn run(job: &str) -> Made<()> {
    let job: Job = serde_json::from_str(job)?;
    let store = Arc::new(RedisStore::open(config(&job))?);
    let limiter = limiter(&store, &job)?;
    warm(&limiter)?;
    let grants = Grants::create(job.grants.as_deref())?;
    println!("ready");
    io::stdout().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let until_ns = line.trim().parse()?;
    end_with_parent();
    let keys = (0..job.keys.max(1)).map(|key| format!("k{key}").into_bytes()).collect();
    let node = Node { limiter, keys, until_ns, grants };
    let mut report = match job.load {
        Load::Tasks { tasks, pause_us } => tasks::run(node, tasks, Duration::from_micros(pause_us)),
        Load::Hammer => calls::hammer(node),
        Load::UntilDenied => calls::call_until_denied(node),
        Load::Schedule { per_s } => schedule::run(&node, per_s),
    }?;
    let stats = store.stats();
    report.together_hundredths = stats.requests.saturating_mul(100) / stats.calls.max(1);
    println!("{}", serde_json::to_string(&report)?);
    Ok(io::stdout().flush()?)
}

fn config(job: &Job) -> Config {
    let servers: Vec<Server> =
        job.ports.iter().map(|&port| Server::tcp("127.0.0.1", port)).collect();
    let config = match servers.as_slice() {
        [one] => Config::server(one.clone()),
        _ => Config::primary_of(servers),
    };
    config.prefix(PREFIX)
}

fn limiter(store: &Arc<RedisStore>, job: &Job) -> Made<Limiter> {
    let mode = match job.mode {
        NodeMode::Exact => Mode::Exact,
        NodeMode::Leased { length_ms, most, is_guarded } => {
            let ttl = Duration::from_millis(length_ms);
            Mode::Leased(Leases { ttl, max_permits: most, guard: is_guarded, ..Leases::default() })
        }
    };
    let bucket = Gcra::new(Rate::per_second(job.per_s), job.burst)?;
    let builder = Distributed::builder(Arc::clone(store)).limit("bench", bucket).mode(mode);
    let builder = if job.is_quarantined { builder.with_quarantine() } else { builder };
    Ok(builder.build()?)
}

/// Waits until the store has replied, on a key that is not counted.
fn warm(limiter: &Limiter) -> Made<()> {
    let begun = Instant::now();
    loop {
        let decision = limiter.try_acquire(b"warm", 1).wait()?;
        if decision.by() != DecidedBy::Fallback {
            return Ok(());
        }
        if begun.elapsed() > READY_WITHIN {
            return Err("the store is unavailable".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

impl Node {
    fn key(&self, number: u64) -> &[u8] {
        let index = usize::try_from(number).unwrap_or(0) % self.keys.len().max(1);
        self.keys.get(index).map_or(b"k0", Vec::as_slice)
    }
}

/// The counts of all loads.
#[derive(Default)]
struct Count {
    decisions: u64,
    granted: u64,
    faults: u64,
}

impl Count {
    fn report(self, lasted_ns: u64) -> NodeReport {
        let Self { decisions, granted, faults } = self;
        NodeReport { decisions, granted, faults, lasted_ns, ..NodeReport::default() }
    }
}
