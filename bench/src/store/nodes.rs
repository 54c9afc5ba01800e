//! Processes of this program as nodes, and their results.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rategate_bench::clock::now_ns;
use rategate_bench::engines::Made;

use crate::job::{Job, NodeReport};

/// The flag of a process that is a node.
pub(crate) const NODE: &str = "--node";

/// A node's process. It ends with this one: when its stdin is closed.
pub(crate) struct Node {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Node {
    /// Starts a node, which may not be ready yet.
    pub(crate) fn start(job: &Job) -> Made<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(NODE).arg(serde_json::to_string(job)?);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().ok_or("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Self { child, stdin, stdout })
    }

    /// Waits until the node is ready.
    pub(crate) fn ready(&mut self) -> Made<()> {
        match self.line()?.trim() {
            "ready" => Ok(()),
            other => Err(format!("a node printed {other:?} where `ready` was expected").into()),
        }
    }

    /// Starts the node's work, which lasts until `until_ns`.
    pub(crate) fn go(&mut self, until_ns: u64) -> Made<()> {
        writeln!(self.stdin, "{until_ns}")?;
        Ok(self.stdin.flush()?)
    }

    /// Waits for the end and returns the results.
    pub(crate) fn report(&mut self) -> Made<NodeReport> {
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Kills the process, as if the machine had lost its power.
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

/// Starts all nodes, waits until they are ready, and has them work for `lasts`.
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

/// Waits for the end and returns the results of all nodes.
pub(crate) fn end(nodes: &mut [Node]) -> Made<Vec<NodeReport>> {
    nodes.iter_mut().map(Node::report).collect()
}

/// Runs these jobs and returns the results of each.
pub(crate) fn work(jobs: &[Job], lasts: Duration) -> Made<Vec<NodeReport>> {
    end(&mut begin(jobs, lasts)?)
}
