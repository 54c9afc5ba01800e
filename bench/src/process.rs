//! Processor time and memory of processes, by what Linux says in `/proc`; servers as processes of
//! their own, which end with this one.

use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, id};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::Made;

/// The length of a tick, in nanoseconds. Linux reports times in hundredths of a second, whatever
/// it counts in.
const TICK_NS: u64 = 10_000_000;

/// The fields of a process's own time in its `stat`, counted from the end of its name, and those
/// with the time of children that it has waited for.
const OWN: Range<usize> = 11..13;
const WITH_CHILDREN: Range<usize> = 11..15;

/// The longest time until a server listens.
const STARTED_WITHIN: Duration = Duration::from_secs(15);

/// Returns the processor time of this process so far.
pub fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

/// Returns the processor time of a process by fields of its `stat`, in nanoseconds.
fn cpu_ns(process: &str, fields: Range<usize>) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // A name may contain spaces and brackets.
    let (_, after) = stat.rsplit_once(')')?;
    let ticks = after.split_ascii_whitespace().skip(fields.start).take(fields.len());
    let ticks: Option<u64> = ticks.map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks? * TICK_NS)
}

/// Returns the resident bytes of a process, or of `self`.
pub fn resident(process: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    kilobytes.map_or(f64::NAN, |kilobytes: f64| kilobytes * 1_024.0)
}

/// The work of the machine since a moment.
#[derive(Debug)]
pub struct Busy {
    begun: [u64; 3],
}

impl Busy {
    /// Begins.
    pub fn begin() -> Self {
        Self { begun: Self::read() }
    }

    /// Returns the share of all processors that was taken neither by this process nor by its
    /// children that have ended. It includes what the host took.
    pub fn of_others(&self) -> f64 {
        let now = Self::read();
        let [all, busy, own] = [0, 1, 2].map(|at| now[at].saturating_sub(self.begun[at]));
        busy.saturating_sub(own) as f64 / all.max(1) as f64
    }

    /// Reads all time, the busy part of it, and that of this process and its children.
    fn read() -> [u64; 3] {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields = stat.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
        // The time of guests is included in that of users. The fourth and fifth are idle.
        let ticks: Vec<u64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
        let [all, idle] = [ticks.iter().sum(), ticks.iter().skip(3).take(2).sum::<u64>()];
        let own = cpu_ns("self", WITH_CHILDREN).unwrap_or(0);
        [all * TICK_NS, all.saturating_sub(idle) * TICK_NS, own]
    }
}

/// The cores of the server and of the load. Interrupts come to the first, which is the load's.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    /// The server's.
    pub server: usize,
    /// The load's, with this thread.
    pub load: usize,
}

impl Cores {
    /// Takes the first and the last core, and keeps this thread on the first.
    pub fn split() -> Made<Self> {
        let set = sched_getaffinity(None)?;
        let mut ours = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
        let load = ours.next().ok_or("no core")?;
        let server =
            ours.next_back().ok_or("only one core: the server and the load need one each")?;
        let mut set = CpuSet::new();
        set.set(load);
        sched_setaffinity(None, &set)?;
        Ok(Self { server, load })
    }
}

/// A server.
#[derive(Debug)]
pub struct Service {
    child: Child,
    folder: PathBuf,
}

impl Service {
    /// Starts it, on a core if one is given, and waits until it listens on these ports. It dies with the thread that
    /// started it. Arguments may name files that are written before: their names and contents.
    pub fn start(
        program: &Path,
        arguments: &[&str],
        files: &[(&str, &str)],
        ports: &[u16],
        core: impl Into<Option<usize>>,
    ) -> Made<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let first = ports.first().copied().unwrap_or_default();
        let folder = env::temp_dir().join(format!("rategate-bench-{}-{name}-{first}", id()));
        fs::create_dir_all(&folder)?;
        for (file, content) in files {
            fs::write(folder.join(file), content)?;
        }
        let log = fs::File::create(folder.join("log"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(core) = core.into() {
            command.args(["taskset", "--cpu-list", &core.to_string()]);
        }
        command.arg(program).args(arguments).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut service = Self { child: command.spawn()?, folder };
        service.listens(ports).map_err(|error| format!("{name}: {error}"))?;
        Ok(service)
    }

    fn listens(&mut self, ports: &[u16]) -> Made<()> {
        let until = Instant::now() + STARTED_WITHIN;
        for &port in ports {
            while let Err(error) = TcpStream::connect(("127.0.0.1", port)) {
                if self.child.try_wait()?.is_some() || Instant::now() > until {
                    let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                    return Err(format!("does not listen on {port}: {error}; {log}").into());
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Returns its processor time so far, in all its threads.
    pub fn cpu_ns(&self) -> u64 {
        cpu_ns(&self.child.id().to_string(), OWN).unwrap_or(0)
    }

    /// Returns its resident memory.
    pub fn resident(&self) -> f64 {
        resident(&self.child.id().to_string())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns a port without a listener. Another process may take it before it is used.
pub fn free_port() -> Made<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Starts a Redis server, on a core if one is given. Returns it and its port.
pub fn redis(core: impl Into<Option<usize>>, more: &[&str]) -> Made<(Service, u16)> {
    let port = free_port()?;
    let text = port.to_string();
    let mut words = vec!["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"];
    words.extend(["--port", &text]);
    words.extend(more);
    let service = Service::start(Path::new("redis-server"), &words, &[], &[port], core)?;
    Ok((service, port))
}
