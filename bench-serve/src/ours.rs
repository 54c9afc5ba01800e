//! Our server, as it is measured.

use std::fs;
use std::path::Path;

use rategate_bench::engines::Made;

use crate::Bench;
use crate::contend::TIGHT;
use crate::service::{Service, free_port, scratch};

/// The domain of the rules.
pub(crate) const DOMAIN: &str = "bench";
/// The key of the rule that lets everything pass, and of the one that does not.
pub(crate) const WIDE_RULE: &str = "wide";
pub(crate) const TIGHT_RULE: &str = "tight";

/// `rategate serve`, with all of its protocols.
pub(crate) struct Ours {
    pub(crate) service: Service,
    pub(crate) resp: u16,
    pub(crate) http: u16,
    pub(crate) grpc: u16,
}

impl Ours {
    /// On the core of servers, with room for so many keys. None where only the others are measured.
    pub(crate) fn start(bench: &Bench, keys: u64) -> Made<Option<Self>> {
        Self::with(bench, keys, &rules())
    }

    /// With these rules, in the format of Envoy's service.
    pub(crate) fn with(bench: &Bench, keys: u64, rules: &str) -> Made<Option<Self>> {
        let Some(program) = bench.ours.as_deref() else { return Ok(None) };
        let folder = scratch("rules")?;
        let file = folder.join("bench.yaml");
        fs::write(&file, rules)?;
        let started = start(program, &file, keys, bench.cores.server).map(Some);
        let _ = fs::remove_dir_all(folder);
        started
    }
}

fn start(program: &Path, rules: &Path, keys: u64, core: usize) -> Made<Ours> {
    let [resp, http, grpc] = [free_port()?, free_port()?, free_port()?];
    let words = format!(
        "serve --resp 127.0.0.1:{resp} --http 127.0.0.1:{http} --grpc 127.0.0.1:{grpc} --threads 1 --keys {keys} --config {}",
        rules.display()
    );
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let service = Service::start(program, &words, &[resp, http, grpc], core)?;
    Ok(Ours { service, resp, http, grpc })
}

/// In the format of Envoy's service.
fn rules() -> String {
    format!(
        "domain: {DOMAIN}\ndescriptors:\n\
         \x20 - key: {WIDE_RULE}\n    rate_limit: {{ unit: second, requests_per_unit: 1000000 }}\n\
         \x20 - key: {TIGHT_RULE}\n    rate_limit: {{ unit: day, requests_per_unit: {TIGHT} }}\n"
    )
}
