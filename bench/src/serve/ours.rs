//! Our server, as it is measured.

use std::fs;
use std::path::Path;

use rategate_bench::engines::Made;
use rategate_bench::scratch::Scratch;

use crate::Bench;
use crate::contend::TIGHT;
use crate::service::{Service, free_port};

/// The domain of the rules.
pub(crate) const DOMAIN: &str = "bench";
/// The key of the rule that grants everything; the next is for the rule with a tight limit.
pub(crate) const WIDE_RULE: &str = "wide";
pub(crate) const TIGHT_RULE: &str = "tight";

/// The server `rategate serve`, with all of its protocols.
pub(crate) struct Ours {
    pub(crate) service: Service,
    pub(crate) resp: u16,
    pub(crate) http: u16,
    pub(crate) grpc: u16,
    /// The folder of its configuration.
    folder: Scratch,
    head: String,
}

/// The configuration that a server is started with.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The capacity for keys, of rules and of limits that come with calls.
    pub(crate) keys: u64,
    pub(crate) rules: String,
    /// Further tables of the configuration, such as a store.
    pub(crate) more: String,
}

impl Setting {
    /// Returns the setting with the rules that all paths use.
    pub(crate) fn new(keys: u64) -> Self {
        let rules = rule(WIDE_RULE, "1000000/s", "") + &rule(TIGHT_RULE, &format!("{TIGHT}/d"), "");
        Self { keys, rules, more: String::new() }
    }
}

/// Returns a rule for each value of the key of its name.
pub(crate) fn rule(name: &str, limit: &str, more: &str) -> String {
    format!(
        "[[rule]]\nname = \"{name}\"\ndomain = \"{DOMAIN}\"\n\
         match = [{{ key = \"{name}\" }}]\nlimit = \"{limit}\"\n{more}\n"
    )
}

impl Ours {
    /// Starts it on the server's core. Returns `None` if only the others are measured.
    pub(crate) fn start(bench: &Bench, setting: &Setting) -> Made<Option<Self>> {
        let Some(program) = bench.ours.as_deref() else { return Ok(None) };
        Self::launch(program, bench.cores.server, setting).map(Some)
    }

    fn launch(program: &Path, core: usize, setting: &Setting) -> Made<Self> {
        let [resp, http, grpc] = [free_port()?, free_port()?, free_port()?];
        let keys = setting.keys;
        let head = format!(
            "[server]\nresp = \"127.0.0.1:{resp}\"\nhttp = \"127.0.0.1:{http}\"\n\
             grpc = \"127.0.0.1:{grpc}\"\nthreads = 1\n\
             [server.limits]\nconnections = 20000\nconnections_per_address = 20000\n\
             [log]\nfilter = \"warn\"\n[inline]\nkeys = {keys}\n[keys]\ntotal = {keys}\n{}\n",
            setting.more
        );
        let folder = Scratch::new("rules")?;
        let file = folder.file("rategate.toml");
        fs::write(&file, format!("{head}{}", setting.rules))?;
        let words = ["serve".to_owned(), "--config".to_owned(), file.display().to_string()];
        let service = Service::start(program, &words, &[resp, http, grpc], core)?;
        Ok(Self { service, resp, http, grpc, folder, head })
    }

    /// Replaces the rules. The server notices by itself.
    pub(crate) fn rewrite(&self, rules: &str) -> Made<()> {
        let (next, file) = (self.folder.file("next"), self.folder.file("rategate.toml"));
        fs::write(&next, format!("{}{rules}", self.head))?;
        Ok(fs::rename(next, file)?)
    }
}
