//! Servers that are asked over connections, in turns: their decisions, processor time and answers.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use futures_util::future::join_all;
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::process::{Cores, Service, free_port};
use crate::report::{rate, span};
use crate::{Made, median};

/// The number of keys of a load.
pub const KEYS: u32 = 100_000;
/// The domain of the rules.
pub const DOMAIN: &str = "bench";

/// The answers of a run.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// The number of decisions.
    pub answers: u64,
    /// Their rate.
    pub per_s: f64,
    /// The times of answers: of half, and of 99 %.
    pub took_ns: [f64; 2],
}

/// A load that runs for about as long as it is told.
pub type Load<'a> = Box<dyn FnMut(Duration) -> Made<Tally> + 'a>;

/// A server with a load.
pub struct Contender<'a> {
    /// Its name.
    pub who: String,
    /// The process that decides.
    pub service: &'a Service,
    /// Another one that works for it on the same core.
    pub store: Option<&'a Service>,
    /// The calls.
    pub load: Load<'a>,
}

/// The figures of a contender.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Its name.
    pub who: String,
    rounds: Vec<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    tally: Tally,
    /// The processor time of server and store for each decision.
    cpu_ns: f64,
    /// The used part of their core.
    used: f64,
}

/// Runs each load in each round.
pub fn contend(quick: bool, contenders: &mut [Contender<'_>]) -> Made<Vec<Figures>> {
    let (rounds, lasts) = if quick { (2, 500) } else { (7, 2_000) };
    let lasts = Duration::from_millis(lasts);
    let mut all: Vec<Figures> = contenders
        .iter()
        .map(|contender| Figures { who: contender.who.clone(), rounds: Vec::new() })
        .collect();
    for number in 0..=rounds {
        for (contender, figures) in contenders.iter_mut().zip(&mut all) {
            let (service, store) = (contender.service, contender.store);
            let cpu = || service.cpu_ns() + store.map_or(0, Service::cpu_ns);
            let (begun_ns, begun) = (cpu(), Instant::now());
            let tally = (contender.load)(lasts);
            let tally = tally.map_err(|error| format!("{}: {error}", contender.who))?;
            let cpu_ns = cpu().saturating_sub(begun_ns) as f64;
            let used = cpu_ns / begun.elapsed().as_nanos() as f64;
            // The first fills tables and settles connections.
            if number > 0 {
                let cpu_ns = cpu_ns / tally.answers.max(1) as f64;
                figures.rounds.push(Round { tally, cpu_ns, used });
            }
        }
    }
    Ok(all)
}

impl Figures {
    /// Returns the decisions a second as a multiple of another's, and the processor time.
    pub fn over(&self, other: &Self) -> [f64; 2] {
        let ratio = |of: fn(&Round) -> f64| {
            let both = self.rounds.iter().zip(&other.rounds);
            median(both.map(|(ours, theirs)| of(ours) / of(theirs)).collect())
        };
        [ratio(|round| round.tally.per_s), ratio(|round| round.cpu_ns)]
    }

    /// Returns the cells of its row: decisions, processor time, and the times of answers.
    pub fn cells(&self) -> [String; 4] {
        let of = |of: fn(&Round) -> f64| median(self.rounds.iter().map(of).collect());
        let cpu =
            format!("{}, {:.0} %", span(of(|round| round.cpu_ns)), of(|round| round.used) * 100.0);
        let [p50, p99] = [of(|round| round.tally.took_ns[0]), of(|round| round.tally.took_ns[1])];
        [rate(of(|round| round.tally.per_s)), cpu, span(p50), span(p99)]
    }
}

/// Calls in closed loops: each lane calls again when it was answered, and a call that fails ends
/// the run. A call may make several decisions.
pub async fn closed_loops<F>(
    lanes: usize,
    lasts: Duration,
    decisions: u64,
    call: impl Fn(usize, u32) -> F,
) -> Made<Tally>
where
    F: Future<Output = Made<()>>,
{
    let took_ns = RefCell::new(Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?);
    let begun = Instant::now();
    let lane = async |lane: usize| -> Made<()> {
        let mut random = SmallRng::seed_from_u64(lane as u64);
        while begun.elapsed() < lasts {
            let called = Instant::now();
            call(lane, random.random_range(..KEYS)).await?;
            took_ns.borrow_mut().saturating_record(called.elapsed().as_nanos() as u64);
        }
        Ok(())
    };
    for done in join_all((0..lanes).map(lane)).await {
        done?;
    }
    let took_ns = took_ns.into_inner();
    let answers = took_ns.len() * decisions;
    let at = |quantile| took_ns.value_at_quantile(quantile) as f64;
    let per_s = answers as f64 / begun.elapsed().as_secs_f64();
    Ok(Tally { answers, per_s, took_ns: [at(0.5), at(0.99)] })
}

/// Returns the load of a command by `redis-benchmark`, with `__rand_int__` for the key.
pub fn redis_benchmark<'a>(
    port: u16,
    connections: usize,
    at_once: usize,
    words: &[&str],
) -> Load<'a> {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let mut per_s = 10_000.0;
    Box::new(move |lasts| {
        let requests = (per_s * lasts.as_secs_f64()) as u64 + 1_000;
        // It asks a server that has died for ever.
        let mut command = Command::new("timeout");
        command.args([
            "60",
            "redis-benchmark",
            "-e",
            "--csv",
            "-p",
            &port.to_string(),
            "-r",
            &KEYS.to_string(),
        ]);
        command.args(["-c", &connections.to_string(), "-P", &at_once.to_string()]);
        command.args(["-n", &requests.to_string()]).args(&words);
        let output = command.output().map_err(|error| format!("redis-benchmark: {error}"))?;
        let text = String::from_utf8(output.stdout)?;
        // A row of the rate, and of the average, least, half, 95 %, 99 % and longest times, behind
        // the command, which has no comma.
        let row = text.lines().last().unwrap_or_default();
        let fields: Vec<f64> =
            row.split(',').filter_map(|field| field.trim_matches('"').parse().ok()).collect();
        let [found_per_s, _, _, p50_ms, _, p99_ms, _] = fields[..] else {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("redis-benchmark {words:?}: {text}{errors}").into());
        };
        if text.contains("Error from server") {
            return Err(text.into());
        }
        per_s = found_per_s;
        Ok(Tally { answers: requests, per_s, took_ns: [p50_ms * 1e6, p99_ms * 1e6] })
    })
}

/// Returns the load of a POST by `wrk`, with `%d` for the key in the body.
pub fn wrk<'a>(port: u16, connections: usize, path: &str, body: &str) -> Load<'a> {
    let script = format!(
        "local headers = {{ ['Content-Type'] = 'application/json' }}\n\
         function request()\n\
         return wrk.format('POST', '{path}', headers, string.format('{body}', math.random(0, {KEYS} - 1)))\n\
         end\n\
         function done(summary, latency)\n\
         io.write('\\n', summary.requests, ' ', summary.errors.status, ' ', summary.duration, ' ', \
         latency:percentile(50), ' ', latency:percentile(99), '\\n')\n\
         end\n"
    );
    let file = env::temp_dir().join(format!("rategate-bench-{}-{port}.lua", std::process::id()));
    Box::new(move |lasts| {
        fs::write(&file, &script)?;
        let mut command = Command::new("wrk");
        // It takes whole seconds.
        let seconds = lasts.as_secs().max(1).to_string();
        command.args(["-t1", "-c", &connections.to_string(), "-d", &seconds, "-s"]).arg(&file);
        command.arg(format!("http://127.0.0.1:{port}/"));
        let output = command.output().map_err(|error| format!("wrk: {error}"))?;
        fs::remove_file(&file)?;
        let text = String::from_utf8(output.stdout)?;
        let row = text.lines().last().unwrap_or_default();
        let fields: Vec<f64> =
            row.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        // Times are in microseconds.
        let [answers, errors, lasted_us, p50_us, p99_us] = fields[..] else {
            return Err(format!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)).into());
        };
        if errors > 0.0 || answers == 0.0 {
            return Err(format!("wrk: {errors} of {answers} answers were errors").into());
        }
        let took_ns = [p50_us * 1e3, p99_us * 1e3];
        Ok(Tally { answers: answers as u64, per_s: answers * 1e6 / lasted_us, took_ns })
    })
}

/// The server `rategate serve`, with all of its protocols.
pub struct Ours {
    /// The process.
    pub service: Service,
    /// Its ports.
    pub resp: u16,
    /// Its port of HTTP.
    pub http: u16,
    /// Its port of gRPC.
    pub grpc: u16,
}

/// Returns a rule for each value of the key of its name.
pub fn rule(name: &str, more: &str) -> String {
    format!(
        "[[rule]]\nname = \"{name}\"\ndomain = \"{DOMAIN}\"\n\
         match = [{{ key = \"{name}\" }}]\nlimit = \"1000000/s\"\n{more}\n"
    )
}

impl Ours {
    /// Starts it with one thread on the server's core. `head` continues the table of keys.
    pub fn start(cores: Cores, keys: u32, head: &str, rules: &str) -> Made<Self> {
        let program = program("RATEGATE", "release/rategate")?;
        Self::start_program(&program, cores, keys, head, rules)
    }

    /// Starts it from this program.
    pub fn start_program(
        program: &Path,
        cores: Cores,
        keys: u32,
        head: &str,
        rules: &str,
    ) -> Made<Self> {
        let [resp, http, grpc] = [free_port()?, free_port()?, free_port()?];
        let file = format!(
            "[server]\nresp = \"127.0.0.1:{resp}\"\nhttp = \"127.0.0.1:{http}\"\n\
             grpc = \"127.0.0.1:{grpc}\"\nthreads = 1\n[log]\nfilter = \"warn\"\n\
             [inline]\nkeys = {keys}\n[keys]\ntotal = {keys}\n{head}\n{rules}"
        );
        let service = Service::start(
            program,
            &["serve", "--config", "rategate.toml"],
            &[("rategate.toml", &file)],
            &[resp, http, grpc],
            cores.server,
        )?;
        Ok(Self { service, resp, http, grpc })
    }
}

/// Returns the path of a program that `cargo xtask bench` has built, by the name of a variable.
pub fn program(variable: &str, built: &str) -> Made<PathBuf> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target").join(built);
    let path = env::var_os(variable).map_or_else(built, PathBuf::from);
    if path.is_file() { Ok(path) } else { Err(format!("no {}", path.display()).into()) }
}
