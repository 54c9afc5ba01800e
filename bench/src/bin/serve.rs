//! `rategate serve` on one core beside other servers, each asked from another core.

use std::env;
use std::process::Command;
use std::time::Duration;

use rategate_bench::Made;
use rategate_bench::process::{Cores, Service, free_port, redis};
use rategate_bench::report::{Arguments, Report};
use rategate_bench::wires::{
    Contender, DOMAIN, KEYS, Load, Ours, closed_loops, contend, program, redis_benchmark, rule, wrk,
};
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::Entry;
use rategate_server::messages::rls::rate_limit_response::Code;
use rategate_server::messages::rls::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use rategate_server::messages::rls::{RateLimitRequest, RateLimitResponse};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The word with which this program serves as an echo, before a port.
const ECHO: &str = "echo";
const RATE_LIMITS: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const THROTTLES: &str = "/throttlecrab.RateLimiter/Throttle";
/// The rule that grants everything.
const WIDE: &str = "wide";
/// A limit that grants everything, as burst, count and period.
const LIMIT: [&str; 3] = ["1000", "100000", "1"];

/// A token bucket in Lua, as written for Redis by hand: one key, the time of the store, replies
/// like redis-cell's.
const SCRIPT: &str = "\
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local capacity, interval = tonumber(ARGV[1]), tonumber(ARGV[3]) * 1000000 / tonumber(ARGV[2])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local next = tat + interval
local early = next - capacity * interval
if early > now then
  return {1, capacity, 0, math.ceil((early - now) / 1000000), math.ceil((tat - now) / 1000000)}
end
redis.call('SET', KEYS[1], string.format('%d', next), 'PX', math.ceil((next - now) / 1000))
return {0, capacity, math.floor((now - early) / interval), -1, math.ceil((next - now) / 1000000)}";

fn main() -> Made<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    if let [word, port] = words.as_slice()
        && word == ECHO
    {
        return echo(port.parse()?);
    }
    let arguments = Arguments::read()?;
    let header = ["path", "who", "decisions", "CPU", "p50", "p99", "ours to it: decisions, CPU"];
    let mut report = Report::new(&arguments, "serve", &header);
    let servers = Servers::start(Cores::split()?)?;
    for (connections, at_once) in [(64, 16), (64, 1)] {
        let path = format!("RESP, {connections} connections, {at_once} at once");
        contended(&mut report, &path, &arguments, servers.resp(connections, at_once)?)?;
    }
    contended(&mut report, "HTTP, 64 connections", &arguments, servers.http(64))?;
    for (connections, at_once) in [(16, 16), (16, 1), (64, 1)] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let path = format!("gRPC, {connections} connections, {at_once} at once");
        let contenders = servers.grpc(&runtime, connections, at_once)?;
        contended(&mut report, &path, &arguments, contenders)?;
    }
    leased(&mut report, &arguments, &servers)?;
    memory(&mut report, servers)?;
    report.end()
}

/// Measures contenders, and adds a row for each, with the ratios of the first to it.
fn contended(
    report: &mut Report,
    path: &str,
    arguments: &Arguments,
    mut contenders: Vec<Contender<'_>>,
) -> Made<()> {
    let figures = contend(arguments.quick, &mut contenders)?;
    for (index, figure) in figures.iter().enumerate() {
        let [decisions, cpu, p50, p99] = figure.cells();
        let beside = match figures.first().filter(|_| index > 0) {
            Some(first) => {
                let [decisions, cpu] = first.over(figure);
                format!("{decisions:.2}, {cpu:.2}")
            }
            None => "–".to_owned(),
        };
        report.row(&[path, &figure.who, &decisions, &cpu, &p50, &p99, &beside]);
    }
    Ok(())
}

/// All servers, on the same core.
struct Servers {
    cores: Cores,
    ours: Ours,
    /// Another build of ours, where `EARLIER` has its path: what a change costs.
    earlier: Option<Ours>,
    redis: (Service, u16),
    has_cell: bool,
    /// throttlecrab with its ports for RESP, HTTP and gRPC, where it is installed.
    throttlecrab: Option<(Service, [u16; 3])>,
    echo: (Service, u16),
}

impl Servers {
    fn start(cores: Cores) -> Made<Self> {
        let rules = rule(WIDE, "");
        let ours = Ours::start(cores, 4 * KEYS, "", &rules)?;
        let earlier = env::var_os("EARLIER")
            .map(|program| Ours::start_program(program.as_ref(), cores, 4 * KEYS, "", &rules));
        let earlier = earlier.transpose()?;
        let cell = program("REDIS_CELL", "rivals/libredis_cell.so").ok();
        let cell_path = cell.as_ref().map(|path| path.display().to_string());
        let module = cell_path.as_deref().map_or(vec![], |path| vec!["--loadmodule", path]);
        let redis = redis(cores.server, &module)?;
        let throttlecrab = throttlecrab(cores)?;
        let port = free_port()?;
        let words = [ECHO, &port.to_string()];
        let echo = Service::start(&env::current_exe()?, &words, &[], &[port], cores.server)?;
        let has_cell = cell.is_some();
        Ok(Self { cores, ours, earlier, redis, has_cell, throttlecrab, echo: (echo, port) })
    }

    fn resp(&self, connections: usize, at_once: usize) -> Made<Vec<Contender<'_>>> {
        let (redis, redis_port) = (&self.redis.0, self.redis.1);
        let digest = Command::new("redis-cli")
            .args(["-p", &redis_port.to_string(), "script", "load", SCRIPT])
            .output()?;
        let digest = String::from_utf8(digest.stdout)?;
        let of = |who: &str, service, port, words: &[&str]| {
            contender(who, service, redis_benchmark(port, connections, at_once, words))
        };
        let [burst, count, period] = LIMIT;
        let ours = &self.ours;
        let cell = ["CL.THROTTLE", "c:__rand_int__", burst, count, period];
        let check = ["RATEGATE.CHECK", WIDE, "1", "__rand_int__"];
        let script = ["EVALSHA", digest.trim(), "1", "s:__rand_int__", burst, count, period];
        let mut all = vec![
            of("ours, CL.THROTTLE", &ours.service, ours.resp, &cell),
            of("ours, a rule", &ours.service, ours.resp, &check),
            of("redis, INCR", redis, redis_port, &["INCR", "i:__rand_int__"]),
            of("redis, a script", redis, redis_port, &script),
        ];
        if let Some(earlier) = &self.earlier {
            all.push(of("ours, earlier, CL.THROTTLE", &earlier.service, earlier.resp, &cell));
            all.push(of("ours, earlier, a rule", &earlier.service, earlier.resp, &check));
        }
        if self.has_cell {
            all.push(of("redis-cell, CL.THROTTLE", redis, redis_port, &cell));
        }
        if let Some((service, [port, ..])) = &self.throttlecrab {
            let words = ["THROTTLE", "t:__rand_int__", burst, count, period];
            all.push(of("throttlecrab, THROTTLE", service, *port, &words));
        }
        Ok(all)
    }

    fn http(&self, connections: usize) -> Vec<Contender<'_>> {
        let check = r#"{"limit":"100000/s","burst":1000,"key":"h:%d"}"#;
        let ours = wrk(self.ours.http, connections, "/v1/check", check);
        let mut all = vec![contender("ours, POST /v1/check", &self.ours.service, ours)];
        if let Some(earlier) = &self.earlier {
            let load = wrk(earlier.http, connections, "/v1/check", check);
            all.push(contender("ours, earlier", &earlier.service, load));
        }
        if let Some((service, [_, port, _])) = &self.throttlecrab {
            let body = r#"{"key":"h:%d","max_burst":1000,"count_per_period":100000,"period":1,"quantity":1}"#;
            let load = wrk(*port, connections, "/throttle", body);
            all.push(contender("throttlecrab, POST /throttle", service, load));
        }
        all
    }

    fn grpc<'a>(
        &'a self,
        runtime: &'a tokio::runtime::Runtime,
        connections: usize,
        at_once: usize,
    ) -> Made<Vec<Contender<'a>>> {
        let size = (connections, at_once);
        let ours = &self.ours;
        let envoy = |port| calls(runtime, port, size, RATE_LIMITS, |key| descriptor(WIDE, key));
        let mut all = vec![
            contender("ours", &ours.service, envoy(ours.grpc)?),
            contender("tonic, an echo", &self.echo.0, envoy(self.echo.1)?),
        ];
        if let Some(earlier) = &self.earlier {
            all.push(contender("ours, earlier", &earlier.service, envoy(earlier.grpc)?));
        }
        if let Some((service, [_, _, port])) = &self.throttlecrab {
            let load = calls(runtime, *port, size, THROTTLES, |key| Throttle {
                key: format!("g:{key}"),
                max_burst: 1_000,
                count_per_period: 100_000,
                period: 1,
                quantity: 1,
            })?;
            all.push(contender("throttlecrab", service, load));
        }
        Ok(all)
    }
}

fn contender<'a>(who: &str, service: &'a Service, load: Load<'a>) -> Contender<'a> {
    Contender { who: who.to_owned(), service, store: None, load }
}

/// Starts throttlecrab's server with capacity for the keys from the start, where it is installed.
fn throttlecrab(cores: Cores) -> Made<Option<(Service, [u16; 3])>> {
    let Ok(program) = program("THROTTLECRAB", "rivals/bin/throttlecrab-server") else {
        return Ok(None);
    };
    let ports = [free_port()?, free_port()?, free_port()?];
    let [resp, http, grpc] = ports;
    let words = format!(
        "--redis --redis-port {resp} --http --http-port {http} --grpc --grpc-port {grpc} \
         --redis-host 127.0.0.1 --http-host 127.0.0.1 --grpc-host 127.0.0.1 \
         --store-capacity {} --log-level error",
        4 * KEYS
    );
    let words: Vec<&str> = words.split_whitespace().collect();
    Ok(Some((Service::start(&program, &words, &[], &ports, cores.server)?, ports)))
}

/// Measures a rule of busy callers whose permits are leased from Redis, on the same core.
fn leased(report: &mut Report, arguments: &Arguments, servers: &Servers) -> Made<()> {
    let (store, port) = (&servers.redis.0, servers.redis.1);
    let rules = rule("leased", "store = \"leased\"\nlease = \"1s\"\nburst = 2000000");
    let head = format!("[store]\nurl = \"redis://127.0.0.1:{port}\"");
    let ours = Ours::start(servers.cores, 4 * KEYS, &head, &rules)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let load =
        calls(&runtime, ours.grpc, (16, 16), RATE_LIMITS, |key| descriptor("leased", key % 1_000))?;
    let contender =
        Contender { who: "ours".to_owned(), service: &ours.service, store: Some(store), load };
    let path = "leased from Redis for 1s, gRPC, 16 connections, 16 at once, 1000 keys";
    contended(report, path, arguments, vec![contender])
}

/// Measures what servers have in memory when a million keys are in use for an hour.
fn memory(report: &mut Report, servers: Servers) -> Made<()> {
    let cores = servers.cores;
    drop(servers);
    let full = |service: &Service, (port, at_once): (u16, &str), words: &[&str]| -> Made<String> {
        // Random keys: with eight requests for each, three in ten thousand are never named.
        let keys = 1_000_000;
        let mut command = Command::new("redis-benchmark");
        command.args(["--csv", "-P", at_once, "-c", "64", "-p", &port.to_string()]);
        command.args(["-r", &keys.to_string(), "-n", &(8 * keys).to_string()]).args(words);
        if !command.output()?.status.success() {
            return Err("redis-benchmark failed".into());
        }
        Ok(format!("{:.1} MB", service.resident() / 1e6))
    };
    let limit = ["__rand_int__", "10", "1", "3600"];
    let mut row = |who: &str, shown: Made<String>| -> Made<()> {
        report.row(&["memory with 1 M keys in use", who, &shown?, "–", "–", "–", "–"]);
        Ok(())
    };
    let ours = Ours::start(cores, 1_000_000, "", "")?;
    row("ours", full(&ours.service, (ours.resp, "16"), &[&["CL.THROTTLE"], &limit[..]].concat()))?;
    let (redis, port) = redis(cores.server, &[])?;
    row("redis, INCR", full(&redis, (port, "16"), &["INCR", "__rand_int__"]))?;
    if let Some((service, [port, ..])) = throttlecrab(cores)? {
        // It answers several commands of one read late, so that a million keys would take 20 min.
        let words = [&["THROTTLE"], &limit[..]].concat();
        row("throttlecrab", full(&service, (port, "1"), &words))?;
    }
    Ok(())
}

/// A call of throttlecrab's service, and its answer.
#[derive(Clone, PartialEq, prost::Message)]
struct Throttle {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

/// An answer that is not looked at.
#[derive(Clone, PartialEq, prost::Message)]
struct Answer {}

/// Returns a call of Envoy's service: one descriptor of one entry.
fn descriptor(rule: &str, key: u32) -> RateLimitRequest {
    let entry = Entry { key: rule.to_owned().into(), value: format!("g:{key}").into() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    RateLimitRequest { domain: DOMAIN.to_owned(), descriptors: vec![descriptor], hits_addend: 1 }
}

/// Returns a load by tonic's client.
fn calls<'a, M: prost::Message + Send + Sync + 'static>(
    runtime: &'a tokio::runtime::Runtime,
    port: u16,
    (connections, at_once): (usize, usize),
    path: &'static str,
    message: impl Fn(u32) -> M + 'a,
) -> Made<Load<'a>> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?;
    let channels: Vec<Channel> = runtime.block_on(async {
        let mut channels = Vec::new();
        for _ in 0..connections {
            channels.push(endpoint.connect().await?);
        }
        Made::Ok(channels)
    })?;
    Ok(Box::new(move |lasts: Duration| {
        let call = |lane: usize, key: u32| {
            let mut client = tonic::client::Grpc::new(channels[lane % connections].clone());
            let request = Request::new(message(key));
            async move {
                client.ready().await?;
                let codec = ProstCodec::<M, Answer>::default();
                client.unary(request, PathAndQuery::from_static(path), codec).await?;
                Ok(())
            }
        };
        runtime.block_on(closed_loops(connections * at_once, lasts, 1, call))
    }))
}

/// A service of tonic that grants everything: what no such service can do without.
struct Echo;

#[tonic::async_trait]
impl RateLimitService for Echo {
    async fn should_rate_limit(
        &self,
        _request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let overall_code = Code::Ok.into();
        Ok(Response::new(RateLimitResponse { overall_code, ..RateLimitResponse::default() }))
    }
}

fn echo(port: u16) -> Made<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = Server::builder().add_service(RateLimitServiceServer::new(Echo));
    Ok(runtime.block_on(server.serve(([127, 0, 0, 1], port).into()))?)
}
