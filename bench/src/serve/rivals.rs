//! The other servers, as they are measured.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use rategate_bench::engines::Made;

use crate::Bench;
use crate::load::resp::command;
use crate::service::{Service, free_port};

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

/// A Redis server, and what is loaded into it.
pub(crate) struct Redis {
    pub(crate) service: Service,
    pub(crate) port: u16,
    /// The digest by which the script is called.
    pub(crate) script: String,
    pub(crate) has_cell: bool,
}

impl Redis {
    /// Starts it on the server's core, with redis-cell where it is installed.
    pub(crate) fn start(bench: &Bench) -> Made<Self> {
        let program = on_path("redis-server").ok_or("no redis-server on the path")?;
        let port = free_port()?;
        let mut words: Vec<String> =
            ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port"]
                .map(str::to_owned)
                .to_vec();
        words.push(port.to_string());
        let cell = bench
            .rivals
            .as_deref()
            .map(|folder| folder.join("libredis_cell.so"))
            .filter(|path| path.is_file());
        if let Some(cell) = &cell {
            words.extend(["--loadmodule".to_owned(), cell.display().to_string()]);
        }
        let service = Service::start(&program, &words, &[port], bench.cores.server)?;
        let script = digest(port)?;
        Ok(Self { service, port, script, has_cell: cell.is_some() })
    }
}

/// The server of throttlecrab, with all of its protocols.
pub(crate) struct Throttlecrab {
    pub(crate) service: Service,
    pub(crate) resp: u16,
    pub(crate) http: u16,
    pub(crate) grpc: u16,
}

impl Throttlecrab {
    /// Starts it on the server's core, with capacity for `keys` keys from the start. Returns
    /// `None` where it is not installed.
    pub(crate) fn start(bench: &Bench, keys: u64) -> Made<Option<Self>> {
        let Some(program) =
            bench.rivals.as_deref().map(|folder| folder.join("bin").join("throttlecrab-server"))
        else {
            return Ok(None);
        };
        if !program.is_file() {
            return Ok(None);
        }
        let [resp, http, grpc] = [free_port()?, free_port()?, free_port()?];
        let words = format!(
            "--redis --redis-port {resp} --http --http-port {http} --grpc --grpc-port {grpc} \
             --redis-host 127.0.0.1 --http-host 127.0.0.1 --grpc-host 127.0.0.1 \
             --store-capacity {keys} --log-level error"
        );
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let service = Service::start(&program, &words, &[resp, http, grpc], bench.cores.server)?;
        Ok(Some(Self { service, resp, http, grpc }))
    }
}

/// Returns the digest by which Redis calls the script, once it is loaded.
fn digest(port: u16) -> Made<String> {
    const DIGITS: usize = 40;
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(&command(&["SCRIPT", "LOAD", SCRIPT]))?;
    let mut reply = [0; 5 + DIGITS + 2];
    stream.read_exact(&mut reply)?;
    Ok(String::from_utf8(reply[5..5 + DIGITS].to_vec())?)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path: &PathBuf| Path::is_file(path))
}
