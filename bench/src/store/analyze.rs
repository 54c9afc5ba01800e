//! `rategate analyze` over a large log, on one core.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rategate_bench::engines::Made;
use rategate_bench::report::Row;
use rategate_bench::scratch::Scratch;
use rategate_bench::usage::{CHILDREN, TICK_NS, memory_bytes, process_ticks};

use crate::Lengths;

/// The goal, in seconds for 1 GB.
const GOAL_S: f64 = 20.0;
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(crate) fn all(lengths: Lengths) -> Made<Vec<Row>> {
    let path = format!("analyze, a log of {} MB, one core", lengths.log_mb);
    let (program, writer) = (sibling_program("rategate")?, sibling_program("examples/access_log")?);
    let has_tools = ["setpriv", "taskset"]
        .iter()
        .all(|tool| Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok());
    if !has_tools || !program.is_file() || !writer.is_file() {
        let why =
            "not measured: it needs setpriv, taskset, and the build of `cargo xtask bench redis`";
        return Ok(vec![Row::new(path).note(why)]);
    }
    let scratch = Scratch::new("analyze")?;
    let log = scratch.file("access.log");
    let written = bound(&writer)
        .arg(lengths.log_mb.to_string())
        .stdout(File::create(&log)?)
        .stdin(Stdio::null())
        .status()?;
    if !written.success() {
        return Err("no log was written".into());
    }
    let gigabytes = fs::metadata(&log)?.len() as f64 / 1e9;
    let Taken { wall_s, cpu_s, peak_bytes } = run(&program, &log)?;
    let row = Row::new(path)
        .measured("took", wall_s, "s")
        .measured("of the processor", cpu_s, "s")
        .measured("memory", peak_bytes, "bytes")
        .at_most(GOAL_S, wall_s / gigabytes, "s a GB");
    Ok(vec![row])
}

/// Returns a command for a program that dies with this process.
fn bound(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Returns the path of another program that cargo has built with this one.
fn sibling_program(name: &str) -> Made<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().unwrap_or(Path::new(".")).join(name))
}

struct Taken {
    wall_s: f64,
    cpu_s: f64,
    peak_bytes: f64,
}

fn run(program: &Path, log: &Path) -> Made<Taken> {
    let used_s = used_by_children_s();
    let begun = Instant::now();
    let mut child = bound(Path::new("taskset"))
        .args(["-c", "0"])
        .arg(program)
        .args(["analyze", "1000/min"])
        .arg(log)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let pid = child.id().to_string();
    let mut peak_bytes = 0.0;
    let ended = loop {
        peak_bytes = memory_bytes(&pid, "VmHWM").map_or(peak_bytes, |bytes| bytes as f64);
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        thread::sleep(LOOK_EVERY);
    };
    if !ended.success() {
        return Err("`rategate analyze` failed".into());
    }
    let wall_s = begun.elapsed().as_secs_f64();
    Ok(Taken { wall_s, cpu_s: used_by_children_s() - used_s, peak_bytes })
}

/// Returns the processor time of all children that have ended.
fn used_by_children_s() -> f64 {
    let ticks = process_ticks("self", CHILDREN).unwrap_or(0);
    (ticks * TICK_NS) as f64 / 1e9
}
