//! Settings from the environment and from flags: the environment overrides files, and flags
//! override both.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use super::envoy_env::{self, EnvoyEnv};
use super::error::Problem;
use super::gather::Gathered;
use super::node::{Kind, Node};
use super::settings::StoreUrl;
use super::text::Grammar as _;
use crate::net::Address;

/// The keys that can be set from outside the files.
const KEYS: &str = "
    server.resp server.http server.grpc server.auth server.token server.token.file
    server.tls.cert server.tls.key server.tls.client_ca server.threads server.drain
    server.insecure server.limits.frame server.limits.header server.limits.body
    server.limits.streams server.limits.connections server.limits.connections_per_address
    server.limits.idle server.limits.header_time http.headers http.hosts http.trusted_proxies
    grpc.count_denied grpc.counting grpc.shadow grpc.quota grpc.merge_domains grpc.headers \
    grpc.limit_header grpc.remaining_header grpc.reset_header grpc.dynamic_metadata grpc.verbs
    store.url store.password store.nodes snapshot.path snapshot.every inline.keys inline.limits
    log.format log.keys log.filter tracing.otlp tracing.sample tracing.service keys.total
    xds.server xds.node xds.force_start xds.connect_retry xds.backoff xds.max_backoff
    xds.max_message xds.tls.ca xds.tls.cert xds.tls.key xds.tls.name";
/// The short name of the token's variable, which clients use too.
const TOKEN: &str = "RATEGATE_TOKEN";
/// The standard variables of OTLP. They apply to all services of a machine, so this service's own
/// settings override them. A build that cannot send spans ignores them.
const COMMON: [(&str, &str); 2] =
    [("tracing.otlp", "OTEL_EXPORTER_OTLP_ENDPOINT"), ("tracing.service", "OTEL_SERVICE_NAME")];

/// Settings from outside the files. Each of [`keys`] is a variable too: `server.threads` is
/// `RATEGATE_SERVER_THREADS`.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The settings in the order in which they apply.
    raw_settings: Vec<RawSetting>,
    /// The settings from the environment of envoyproxy/ratelimit, if it is one.
    envoy_env: Option<EnvoyEnv>,
}

/// A setting as a variable or a flag gives it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RawSetting {
    pub(crate) key: &'static str,
    /// The text, or `None` for bytes that are not UTF-8.
    pub(crate) text: Option<String>,
    /// The name of the variable or flag.
    pub(crate) name: String,
    /// `true` if it applies only where nothing else sets the key.
    pub(crate) is_weak: bool,
}

/// Returns all keys that can be set from outside the files.
pub fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.split_whitespace()
}

/// Returns the variable of the environment that sets a key.
#[must_use]
pub fn variable(key: &str) -> String {
    format!("RATEGATE_{}", key.replace('.', "_").to_ascii_uppercase())
}

impl Layers {
    /// Reads the settings in this process' environment. Unknown variables are ignored, since
    /// other programs use them.
    #[must_use]
    pub fn of_environment() -> Self {
        Self::of(|name| std::env::var_os(name).map(|value| value.into_string().ok()))
    }

    /// Reads the settings in an environment, by the names of its variables. Empty variables are
    /// ignored, except the token's.
    #[must_use]
    pub fn of_variables(value: impl Fn(&str) -> Option<String>) -> Self {
        Self::of(|name| value(name).map(Some))
    }

    fn of(value: impl Fn(&str) -> Option<Option<String>>) -> Self {
        let short = std::iter::once(("server.token", TOKEN.to_owned(), false));
        let own = keys().map(|key| (key, variable(key), false));
        let common = COMMON.into_iter().filter(|_| cfg!(feature = "otlp"));
        let common = common.map(|(key, name)| (key, name.to_owned(), true));
        let raw_settings = short.chain(own).chain(common).filter_map(|(key, name, is_weak)| {
            Some(RawSetting { key, text: value(&name)?, name, is_weak })
        });
        // An empty token is an error: it was probably meant to close the service.
        let is_given = |raw_settings: &RawSetting| {
            raw_settings.key.starts_with("server.token") || raw_settings.text.as_deref() != Some("")
        };
        Self { raw_settings: raw_settings.filter(is_given).collect(), envoy_env: None }
    }

    /// Adds the settings of envoyproxy/ratelimit's environment, if this is one. They override the
    /// files, and this service's own variables override them. Returns the folder of that
    /// project's rules, unless a control plane sends them.
    pub fn add_envoy_env(&mut self, value: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        self.envoy_env = envoy_env::read(value);
        self.envoy_env.as_ref().and_then(|envoy_env| envoy_env.path.clone())
    }

    /// Adds the setting of a flag, which overrides the environment. `flag` is its name in error
    /// messages.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such key.
    pub fn flag(&mut self, key: &str, flag: &str, text: &str) -> Result<(), String> {
        let key =
            keys().find(|known| *known == key).ok_or_else(|| format!("no setting {key:?}"))?;
        let text = Some(text.to_owned());
        self.raw_settings.push(RawSetting { key, text, name: flag.to_owned(), is_weak: false });
        Ok(())
    }

    /// Puts all settings into the tables of the files.
    pub(crate) fn apply(&self, all: &mut Gathered) {
        let mut envoy_settings = Vec::new();
        if let Some(envoy_env) = &self.envoy_env {
            // TLS in a file applies to all listeners.
            let has_tls = all.root.get("server.tls").is_some();
            all.is_tls_of_grpc = envoy_env.is_tls_of_grpc && !has_tls;
            all.problems.extend(envoy_env.refused.iter().map(Problem::nowhere));
            let idle = |name: &&str| Problem::nowhere(format!("{name}: has no effect here"));
            all.warnings.extend(envoy_env.idle.iter().map(|name| idle(name).warning()));
            let needs_store = all.needs_store.is_some();
            let is_of_store = |setting: &&RawSetting| setting.key.starts_with("store.");
            if !needs_store && envoy_env.raw_settings.iter().any(|setting| is_of_store(&setting)) {
                all.warnings.push(no_rule_needs_it());
            }
            let settings = envoy_env.raw_settings.iter();
            envoy_settings.extend(settings.filter(|one| needs_store || !is_of_store(one)));
        }
        for RawSetting { key, text, name, is_weak } in
            envoy_settings.into_iter().chain(&self.raw_settings)
        {
            let Some(text) = text else {
                let message = format!("{name}: it is not valid UTF-8");
                all.problems.push(Problem::nowhere(message));
                continue;
            };
            if !is_weak || all.root.get(key).is_none() {
                let span = all.sources.add_outside(name);
                put(&mut all.root, key, text, &span);
            }
        }
    }
}

fn no_rule_needs_it() -> Problem {
    let message = "REDIS_URL: no rule has its counters in a store; they are in this process";
    let help = "write store: exact, and on_unavailable: deny or admit, in a rate_limit \
                that several servers share";
    Problem::nowhere(message).help(help).warning()
}

/// Puts the text of a setting into its table.
fn put(root: &mut Node, key: &str, text: &str, span: &Range<usize>) {
    let node = |kind| Node::new(kind, span.clone());
    let outside = |text: &str| node(Kind::Outside(text.to_owned()));
    let value = match key {
        "server.resp" | "server.http" | "server.grpc" if !text.trim().is_empty() => {
            // The file's settings for the same address remain.
            let known: Vec<_> = root.elements(key).collect();
            let texts = text.split(',').map(str::trim).filter(|text| !["", "off"].contains(text));
            let listener = |text: &str| {
                let same = known.iter().find(|node| is_listener_at(node, text));
                same.map_or_else(|| outside(text), |node| Node::clone(node))
            };
            node(Kind::List(texts.map(listener).collect()))
        }
        _ => outside(text),
    };
    match key {
        // A secret has one source.
        "server.token.file" => root.put("server.token", node(Kind::Null)),
        "store.url" => keep_login(root, text, span),
        _ => {}
    }
    root.put(key, value);
}

/// Returns `true` for a file's listener with settings at this address.
fn is_listener_at(node: &Node, text: &str) -> bool {
    let address = node.get("address").map(|node| &node.kind);
    match (address, Address::read(text)) {
        (Some(Kind::Text(known)), Ok(address)) => Address::read(known) == Ok(address),
        _ => false,
    }
}

/// Keeps the login and the database in the address of a file's store where the new address has
/// none. Where it has, they override those of the file.
fn keep_login(root: &mut Node, text: &str, span: &Range<usize>) {
    let login = |text: &str| {
        let first = text.split(',').next().unwrap_or_default().trim();
        let url = StoreUrl::read(first).ok();
        url.map(|url| [url.user, url.password, url.database.map(|number| number.to_string())])
    };
    let known = root.elements("store.url").next().and_then(|node| match &node.kind {
        Kind::Text(text) | Kind::Outside(text) => login(text),
        _ => None,
    });
    let keys = ["store.user", "store.password", "store.database"];
    let values = known.unwrap_or_default().into_iter().zip(login(text).unwrap_or_default());
    for (key, (known, new)) in keys.into_iter().zip(values) {
        let known = known.filter(|_| root.get(key).is_none());
        if let Some(value) = new.or(known) {
            root.put(key, Node::new(Kind::Outside(value), span.clone()));
        }
    }
}

/// Omits the text, which may be a secret.
impl fmt::Debug for RawSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}
