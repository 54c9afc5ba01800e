//! A server as a separate process, pinned to one core, which ends with this one.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rategate_bench::engines::Made;
use rategate_bench::scratch::Scratch;
use rategate_bench::usage::{OWN, TICK_NS, memory_bytes, process_ticks};

/// The longest time until a server listens.
const STARTED_WITHIN: Duration = Duration::from_secs(15);

/// A process that listens.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    /// The folder of its files and its log.
    folder: Scratch,
}

impl Service {
    /// Starts it on a core, and waits until it listens on all these ports. It dies with the
    /// thread that started it.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        ports: &[u16],
        core: usize,
    ) -> Made<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = Scratch::new(&name)?;
        let log = fs::File::create(folder.file("log"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "--cpu-list", &core.to_string()]);
        command.arg(program).args(arguments).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn()?;
        let mut service = Self { child, folder };
        service.listens(ports).map_err(|error| format!("{name}: {error}"))?;
        Ok(service)
    }

    fn listens(&mut self, ports: &[u16]) -> Made<()> {
        let until = Instant::now() + STARTED_WITHIN;
        for &port in ports {
            while let Err(error) = TcpStream::connect(("127.0.0.1", port)) {
                let ended = self.child.try_wait()?;
                if ended.is_some() || Instant::now() > until {
                    let log = self.log();
                    return Err(
                        format!("does not listen on {port}: {error}; {}", log.trim()).into()
                    );
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the processor time of all its threads, as the system counts it.
    pub(crate) fn cpu_ns(&self) -> Made<u64> {
        cpu_ns(&self.pid().to_string())
    }

    /// Returns its resident memory.
    pub(crate) fn resident_bytes(&self) -> Made<u64> {
        let resident = memory_bytes(&self.pid().to_string(), "VmRSS");
        Ok(resident.ok_or("no VmRSS in /proc/PID/status")?)
    }

    pub(crate) fn signal(&self, signal: &str) -> Made<()> {
        let status = Command::new("kill").args([signal, &self.pid().to_string()]).status()?;
        if status.success() { Ok(()) } else { Err("`kill` failed".into()) }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Returns what it has written to stdout and stderr.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.file("log")).unwrap_or_default()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the processor time of the process of this id, or of `self`.
pub(crate) fn cpu_ns(process: &str) -> Made<u64> {
    let ticks = process_ticks(process, OWN).ok_or("no times in /proc/PID/stat")?;
    Ok(ticks * TICK_NS)
}

/// Returns a port without a listener. Another process may take it before it is used.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
