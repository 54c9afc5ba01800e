//! Processes of this program as nodes, and what they tell.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rategate_bench::engines::Made;

use crate::clock::now_ns;
use crate::job::{Job, Told};

/// What a process is started with to be a node.
pub(crate) const NODE: &str = "--node";

/// A process. It ends with this one: when its stdin is closed.
pub(crate) struct Node {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Node {
    /// Starts one; it may not be ready yet.
    pub(crate) fn start(job: &Job) -> Made<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(NODE).arg(serde_json::to_string(job)?);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().ok_or("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Self { child, stdin, stdout })
    }

    /// Waits until it is ready.
    pub(crate) fn ready(&mut self) -> Made<()> {
        match self.line()?.trim() {
            "ready" => Ok(()),
            other => Err(format!("a node said {other:?}").into()),
        }
    }

    /// Has it work until then.
    pub(crate) fn go(&mut self, until_ns: u64) -> Made<()> {
        writeln!(self.stdin, "{until_ns}")?;
        Ok(self.stdin.flush()?)
    }

    /// Waits until it is over.
    pub(crate) fn told(&mut self) -> Made<Told> {
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// As if the machine had lost its power.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn line(&mut self) -> Made<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// All of them ready, and at work for so long.
pub(crate) fn begin(jobs: &[Job], lasts: Duration) -> Made<Vec<Node>> {
    let mut nodes: Vec<Node> = jobs.iter().map(Node::start).collect::<Made<_>>()?;
    for node in &mut nodes {
        node.ready()?;
    }
    let until_ns = now_ns().saturating_add(lasts.as_nanos() as u64);
    for node in &mut nodes {
        node.go(until_ns)?;
    }
    Ok(nodes)
}

/// What they told at the end.
pub(crate) fn end(nodes: &mut [Node]) -> Made<Vec<Told>> {
    nodes.iter_mut().map(Node::told).collect()
}

/// What each told that did nothing but this job.
pub(crate) fn work(jobs: &[Job], lasts: Duration) -> Made<Vec<Told>> {
    end(&mut begin(jobs, lasts)?)
}
