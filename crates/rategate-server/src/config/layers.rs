//! Settings from the environment and from flags: the environment overrides files, and flags
//! override both.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rategate_tower::key::Network;

use super::draft::{Draft, ListenerDraft, Protocol, SettingSource};
use super::error::Problem;
use super::gather::Gathered;
use super::native::text::{Grammar as _, HostName};
use super::native::{SNAPSHOT_EVERY, Size, add_store_urls, secret_file};
use super::settings::{
    Address, Dialect, LogFormat, LogKeys, OnCorruptSnapshot, Receiver, Sample, Secret, Snapshot,
    Tls,
};

use super::envoy_env::{self, EnvoyEnv};

/// Settings from outside the files. Each of [`keys`] is a variable too: `server.threads` is
/// `RATEGATE_SERVER_THREADS`.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The settings in the order in which they apply.
    raw_settings: Vec<RawSetting>,
    /// The settings from the environment of envoyproxy/ratelimit, if it is one.
    envoy_env: Option<EnvoyEnv>,
}

#[derive(Clone)]
struct RawSetting {
    key: &'static str,
    /// The text, or `None` for bytes that are not UTF-8.
    text: Option<String>,
    /// The name of the variable or flag.
    name: String,
    /// `true` if it applies only where nothing else sets the key.
    is_weak: bool,
}

/// A function that applies the text of a key.
type Setter = fn(&mut Draft, &str) -> Result<(), String>;

const KEYS: [(&str, Setter); 42] = [
    ("server.resp", |draft, text| listeners(draft, Protocol::Resp, text)),
    ("server.http", |draft, text| listeners(draft, Protocol::Http, text)),
    ("server.grpc", |draft, text| listeners(draft, Protocol::Grpc, text)),
    ("server.auth", |draft, text| assign(&mut draft.auth, flag(text).map(Some))),
    ("server.token", |draft, text| {
        let secret = if text.is_empty() {
            Err("it is empty".to_owned())
        } else {
            Ok(Secret::new(text.to_owned()))
        };
        assign(&mut draft.settings.server.token, secret.map(Some))
    }),
    ("server.token.file", |draft, text| {
        assign(&mut draft.settings.server.token, secret_file(Path::new(text)).map(Some))
    }),
    ("server.tls.cert", |draft, text| {
        tls(draft).cert = text.into();
        Ok(())
    }),
    ("server.tls.key", |draft, text| {
        tls(draft).key = text.into();
        Ok(())
    }),
    ("server.tls.client_ca", |draft, text| {
        tls(draft).client_ca = Some(text.into());
        Ok(())
    }),
    ("server.threads", |draft, text| {
        assign(&mut draft.settings.server.threads, count(text).and_then(not_zero).map(Some))
    }),
    ("server.drain", |draft, text| assign(&mut draft.settings.server.drain, Duration::read(text))),
    ("server.insecure", |draft, text| assign(&mut draft.settings.server.insecure, flag(text))),
    ("server.limits.frame", |draft, text| {
        assign(&mut draft.settings.server.limits.frame_bytes, size(text))
    }),
    ("server.limits.header", |draft, text| {
        assign(&mut draft.settings.server.limits.header_bytes, size(text))
    }),
    ("server.limits.body", |draft, text| {
        assign(&mut draft.settings.server.limits.body_bytes, size(text))
    }),
    ("server.limits.streams", |draft, text| {
        let number = text.parse().map(NonZeroU32::get).map_err(|_| NOT_COUNT.to_owned());
        assign(&mut draft.settings.server.limits.streams, number)
    }),
    ("server.limits.connections", |draft, text| {
        assign(&mut draft.settings.server.limits.connections, count(text))
    }),
    ("server.limits.connections_per_address", |draft, text| {
        assign(&mut draft.settings.server.limits.connections_per_address, count(text))
    }),
    ("server.limits.idle", |draft, text| {
        assign(&mut draft.settings.server.limits.idle, Duration::read(text))
    }),
    ("server.limits.header_time", |draft, text| {
        assign(&mut draft.settings.server.limits.header_time, Duration::read(text))
    }),
    ("http.headers", |draft, text| assign(&mut draft.settings.http.headers, dialects(text))),
    ("http.hosts", |draft, text| assign(&mut draft.settings.http.hosts, hosts(text))),
    ("http.trusted_proxies", |draft, text| {
        let networks = text.split(',').map(str::trim).filter(|network| !network.is_empty());
        let networks = networks.map(Network::read).collect();
        assign(&mut draft.settings.http.trusted_proxies, networks)
    }),
    ("grpc.count_denied", |draft, text| assign(&mut draft.settings.grpc.count_denied, flag(text))),
    ("grpc.count_over_only", |draft, text| {
        assign(&mut draft.settings.grpc.count_over_only, flag(text))
    }),
    ("grpc.shadow", |draft, text| assign(&mut draft.settings.grpc.shadow, flag(text))),
    ("grpc.merge_domains", |draft, text| {
        assign(&mut draft.settings.grpc.merge_domains, flag(text))
    }),
    ("grpc.headers", |draft, text| assign(&mut draft.settings.grpc.headers, flag(text))),
    ("store.url", |draft, text| add_store_urls(&mut draft.store, text)),
    ("store.password", |draft, text| match &mut draft.store {
        Some(store) => assign(&mut store.password, Ok(Some(Secret::new(text.to_owned())))),
        None => Err("there is no store for the password; give store.url too".to_owned()),
    }),
    ("store.nodes", |draft, text| match &mut draft.store {
        Some(store) => assign(&mut store.nodes, text.parse().map_err(|_| NOT_COUNT.to_owned())),
        None => Err("there is no store; give store.url too".to_owned()),
    }),
    ("snapshot.path", |draft, text| {
        let snapshot = draft.settings.snapshot.take();
        let fresh = || Snapshot {
            path: text.into(),
            every: SNAPSHOT_EVERY,
            when_torn: OnCorruptSnapshot::default(),
        };
        let snapshot = snapshot.unwrap_or_else(fresh);
        draft.settings.snapshot = Some(Snapshot { path: text.into(), ..snapshot });
        Ok(())
    }),
    ("snapshot.every", |draft, text| match &mut draft.settings.snapshot {
        Some(snapshot) => assign(&mut snapshot.every, Duration::read(text)),
        None => Err("there is no snapshot; give snapshot.path too".to_owned()),
    }),
    ("inline.keys", |draft, text| assign(&mut draft.settings.inline.keys, count(text))),
    ("inline.limits", |draft, text| assign(&mut draft.settings.inline.limits, count(text))),
    ("log.format", |draft, text| {
        let format = match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("it must be text or json".to_owned()),
        };
        assign(&mut draft.settings.log.format, format)
    }),
    ("log.keys", |draft, text| {
        let keys = match text {
            "hashed" => Ok(LogKeys::Hashed),
            "plain" => Ok(LogKeys::Plain),
            "off" => Ok(LogKeys::Off),
            _ => Err("it must be hashed, plain or off".to_owned()),
        };
        assign(&mut draft.settings.log.keys, keys)
    }),
    ("log.filter", |draft, text| assign(&mut draft.settings.log.filter, Ok(text.to_owned()))),
    ("tracing.otlp", |draft, text| {
        assign(&mut draft.settings.tracing.otlp, Option::<Receiver>::read(text))
    }),
    ("tracing.sample", |draft, text| {
        assign(&mut draft.settings.tracing.sample, Sample::read(text))
    }),
    ("tracing.service", |draft, text| {
        assign(&mut draft.settings.tracing.service, Ok(text.to_owned()))
    }),
    ("keys.total", |draft, text| assign(&mut draft.settings.keys.total, count(text))),
];

/// The short name of the token's variable, which clients use too.
const TOKEN: &str = "RATEGATE_TOKEN";
/// The standard variables of OTLP. They apply to all services of a machine, so this service's own
/// settings override them. A build that cannot send spans ignores them.
const COMMON: [(&str, &str); 2] =
    [("tracing.otlp", "OTEL_EXPORTER_OTLP_ENDPOINT"), ("tracing.service", "OTEL_SERVICE_NAME")];
const NOT_COUNT: &str = "it must be a whole number from 1 on";

/// Returns all keys that can be set from outside the files.
pub fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter().map(|(key, _)| key)
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
    /// project's rules.
    pub fn add_envoy_env(&mut self, value: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let envoy_env = envoy_env::read(value)?;
        let raw_settings = envoy_env.raw_settings.iter().map(|(key, text, name)| RawSetting {
            key,
            text: Some(text.clone()),
            name: (*name).to_owned(),
            is_weak: false,
        });
        self.raw_settings.splice(0..0, raw_settings);
        let path = envoy_env.path.clone();
        self.envoy_env = Some(envoy_env);
        Some(path)
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

    /// Applies all settings on top of those of the files.
    pub(crate) fn apply(&self, draft: &mut Draft, all: &mut Gathered) {
        if let Some(envoy_env) = &self.envoy_env {
            // TLS in a file applies to all listeners.
            draft.is_tls_of_grpc = envoy_env.is_tls_of_grpc && draft.settings.server.tls.is_none();
            all.problems.extend(envoy_env.refused.iter().map(Problem::nowhere));
            let idle = envoy_env.idle.iter().map(|idle| Problem::nowhere(idle.as_str()).warning());
            all.warnings.extend(idle);
            apply_store(envoy_env, draft, all);
        }
        let problems = &mut all.problems;
        for RawSetting { key, text, name, is_weak } in &self.raw_settings {
            if *is_weak && draft.setting_sources.contains_key(key) {
                continue;
            }
            let Some((key, set)) = KEYS.into_iter().find(|(known, _)| known == key) else {
                continue;
            };
            let done = match text {
                Some(text) => set(draft, text),
                None => Err("it is not valid UTF-8".to_owned()),
            };
            match done {
                Ok(()) => {
                    draft.setting_sources.insert(key, SettingSource::Outside(name.clone()));
                }
                // The text may be a secret, so the message omits it.
                Err(complaint) => problems.push(Problem::nowhere(format!("{name}: {complaint}"))),
            }
        }
    }
}

/// Replaces the files' store by that of the other project's environment, if a rule has its
/// counters in a store.
fn apply_store(envoy_env: &EnvoyEnv, draft: &mut Draft, all: &mut Gathered) {
    let Some(store) = &envoy_env.store else { return };
    if all.needs_store.is_none() {
        let message = "REDIS_URL: no rule has its counters in a store; they are in this process";
        let help = "write store: exact, and on_unavailable: deny or admit, in a rate_limit \
                    that several servers share";
        all.warnings.push(Problem::nowhere(message).help(help).warning());
        return;
    }
    draft.store = Some(store.over(draft.store.take()));
    draft.setting_sources.insert("store.url", SettingSource::Outside("REDIS_URL".to_owned()));
}

/// Omits the text, which may be a secret.
impl std::fmt::Debug for RawSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.name.fmt(f)
    }
}

fn assign<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    *field = value?;
    Ok(())
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => Err("it must be true or false".to_owned()),
    }
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().map(NonZeroUsize::get).map_err(|_| NOT_COUNT.to_owned())
}

fn not_zero(number: usize) -> Result<NonZeroUsize, String> {
    NonZeroUsize::new(number).ok_or_else(|| NOT_COUNT.to_owned())
}

fn size(text: &str) -> Result<usize, String> {
    Size::read(text).map(|size| size.0)
}

fn listeners(draft: &mut Draft, protocol: Protocol, text: &str) -> Result<(), String> {
    let known = draft.listeners.remove(&protocol).unwrap_or_default();
    let mut all = Vec::new();
    let raw_settings = text.split(',').map(str::trim).filter(|address| !address.is_empty());
    if raw_settings.clone().next().is_none() {
        return Err("it is empty; write \"off\" for no listener".to_owned());
    }
    for address in raw_settings.filter(|address| *address != "off") {
        let address = Address::read(address)?;
        // The file's settings for the same address remain.
        let same = known.iter().find(|one| one.address == address).cloned();
        all.push(same.unwrap_or(ListenerDraft { address, auth: None, tls: None, mode: None }));
    }
    draft.listeners.insert(protocol, all);
    Ok(())
}

fn tls(draft: &mut Draft) -> &mut Tls {
    let none = || Tls { cert: "".into(), key: "".into(), client_ca: None };
    draft.settings.server.tls.get_or_insert_with(none)
}

fn dialects(text: &str) -> Result<Vec<Dialect>, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "off");
    let dialects = names.map(|name| match name {
        "ietf" => Ok(Dialect::Current),
        "ratelimit" => Ok(Dialect::Older),
        "x-ratelimit" => Ok(Dialect::Legacy),
        "x-ratelimit-epoch" => Ok(Dialect::LegacyEpoch),
        _ => Err("it must be off, or a list of ietf, ratelimit, x-ratelimit, x-ratelimit-epoch"
            .to_owned()),
    });
    dialects.collect()
}

fn hosts(text: &str) -> Result<Vec<String>, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| HostName::read(name).map(|host| host.0)).collect()
}
