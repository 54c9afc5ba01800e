//! The environment of envoyproxy/ratelimit, for a service started as its replacement.
//!
//! It is recognized by `RUNTIME_ROOT` or `RUNTIME_SUBDIRECTORY`, or by `CONFIG_TYPE` if a control
//! plane sends the rules.
//!
//! A variable with an equivalent setting sets it, unless the `RATEGATE_` variable of the same
//! setting does. One that would change decisions in an unsupported way is refused. Any other is
//! named in a warning.

use std::path::PathBuf;

use super::layers::RawSetting;

/// The settings of such an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvoyEnv {
    /// The folder of the rules, unless a control plane sends them.
    pub(crate) path: Option<PathBuf>,
    /// The settings, with the variables that set them.
    pub(crate) raw_settings: Vec<RawSetting>,
    /// The variables that are refused, with corrections.
    pub(crate) refused: Vec<String>,
    /// The variables without effect, each with the behaviour here.
    pub(crate) idle: Vec<String>,
    /// `true` if gRPC alone uses TLS.
    pub(crate) is_tls_of_grpc: bool,
}

/// The flags that are settings, with the texts for false and true.
const FLAGS: [(&str, &str, [&str; 2]); 6] = [
    ("SHADOW_MODE", "grpc.shadow", BOOL),
    ("QUOTA_MODE", "grpc.quota", BOOL),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "grpc.counting", ["all", "stop"]),
    ("MERGE_DOMAIN_CONFIG", "grpc.merge_domains", BOOL),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", "grpc.headers", BOOL),
    ("RESPONSE_DYNAMIC_METADATA", "grpc.dynamic_metadata", BOOL),
];
const BOOL: [&str; 2] = ["false", "true"];

/// The variables with the text of a setting, and the conversion from that project's form.
const TEXTS: [(&str, &str, Convert); 13] = [
    ("GRPC_UDS", "server.grpc", |path| format!("unix:{path}")),
    ("GRPC_SERVER_TLS_CERT", "server.tls.cert", str::to_owned),
    ("GRPC_SERVER_TLS_KEY", "server.tls.key", str::to_owned),
    ("GRPC_CLIENT_TLS_CACERT", "server.tls.client_ca", str::to_owned),
    ("REDIS_TIMEOUT", "store.budget", span),
    // Replacing a prefix that is refused could collide with another service's prefix and share
    // its counters.
    ("CACHE_KEY_PREFIX", "store.prefix", str::to_owned),
    ("TRACING_SERVICE_NAME", "tracing.service", str::to_owned),
    ("TRACING_SAMPLING_RATE", "tracing.sample", percentage),
    ("LOG_LEVEL", "log.filter", level),
    ("LOG_FORMAT", "log.format", str::to_ascii_lowercase),
    ("LIMIT_LIMIT_HEADER", "grpc.limit_header", str::to_owned),
    ("LIMIT_REMAINING_HEADER", "grpc.remaining_header", str::to_owned),
    ("LIMIT_RESET_HEADER", "grpc.reset_header", str::to_owned),
];
type Convert = fn(&str) -> String;

/// The value of `CONFIG_TYPE` with which a control plane sends the rules.
const XDS: &str = "GRPC_XDS_SOTW";

/// The variables of the control plane, which are settings if it sends the rules.
const XDS_TEXTS: [(&str, &str, Convert); 10] = [
    ("CONFIG_GRPC_XDS_SERVER_URL", "xds.server", target),
    ("CONFIG_GRPC_XDS_NODE_ID", "xds.node", str::to_owned),
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "xds.connect_retry", span),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "xds.backoff", span),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "xds.max_backoff", span),
    ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "xds.max_message", str::to_owned),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "xds.tls.ca", str::to_owned),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "xds.tls.cert", str::to_owned),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "xds.tls.key", str::to_owned),
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "xds.tls.name", str::to_owned),
];

/// The flags of the control plane, which mean something if it sends the rules.
const XDS_FLAGS: [&str; 3] = [
    "CONFIG_GRPC_XDS_SERVER_USE_TLS",
    "FORCE_START_WITHOUT_INITIAL_CONFIG",
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
];

/// The supported values of variables; any other is refused with this reason.
const ONLY: [(&str, &str, &str); 3] = [
    (
        "BACKEND_TYPE",
        "redis",
        "there is no memcached; counters are in this process, or in Redis by [store]",
    ),
    ("REDIS_PERSECOND", "false", "there is one store for all units"),
    (
        "GRPC_CLIENT_TLS_SAN",
        "",
        "clients are verified only by the CA of their certificate: GRPC_CLIENT_TLS_CACERT",
    ),
];

/// The variables without effect, each line after the behaviour here: statistics, connections to
/// Redis, sinks of logs.
const IDLE: &str = "
    TCP is used: PROTO
    requests to the control plane carry the name of the node alone: \
        CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS CONFIG_GRPC_XDS_NODE_METADATA
    waits for the control plane double, give or take a half: \
        XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_BACKOFF_RANDOM_FACTOR
    there is no debug port; the page and /metrics are at the HTTP port: DEBUG_HOST DEBUG_PORT
    statistics are exposed to Prometheus, at /metrics of the HTTP port: DISABLE_STATS \
        DOG_STATSD_MOGRIFIERS EXTRA_TAGS PROMETHEUS_MAPPER_YAML PROMETHEUS_PATH STATSD_HOST \
        STATSD_PORT STATS_FLUSH_INTERVAL USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_STATSD
    the program named `ratelimit` opens one more HTTP port there, with /metrics and all else that \
        HTTP has, if USE_PROMETHEUS is true; `rategate serve` does not, and /metrics is at the \
        HTTP port of both: PROMETHEUS_ADDR USE_PROMETHEUS
    a call is near the limit if it leaves less than a tenth of it: NEAR_LIMIT_RATIO
    counters end with their window: EXPIRATION_JITTER_MAX_SECONDS
    calls over the limit are decided where their counter is: LOCAL_CACHE_SIZE_IN_BYTES
    connections last until their client or the service ends them: GRPC_MAX_CONNECTION_AGE \
        GRPC_MAX_CONNECTION_AGE_GRACE
    files whose name begins with a dot are never read: RUNTIME_IGNOREDOTFILES
    the folder of the rules is watched, whatever it is a link to: RUNTIME_WATCH_ROOT
    one connection to each server of the store carries all requests: \
        REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_PIPELINE_LIMIT REDIS_PIPELINE_WINDOW \
        REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_SIZE
    on_unavailable of each rule decides without the store: REDIS_HEALTH_CHECK_ACTIVE_CONNECTION
    sentinels receive the user and the password of the store: REDIS_SENTINEL_AUTH
    TLS to the store trusts the certificates of this machine, and shows none of its own: \
        REDIS_TLS_CACERT REDIS_TLS_CLIENT_CERT REDIS_TLS_CLIENT_KEY
    the name in the store's certificate is always checked: REDIS_TLS_SKIP_HOSTNAME_VERIFICATION
    there is one store for all units: REDIS_PERSECOND_AUTH REDIS_PERSECOND_PIPELINE_LIMIT \
        REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_SOCKET_TYPE \
        REDIS_PERSECOND_TLS REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL
    there is no memcached; counters are in this process or in Redis: MEMCACHE_HOST_PORT \
        MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_TLS \
        MEMCACHE_TLS_CACERT MEMCACHE_TLS_CLIENT_CERT MEMCACHE_TLS_CLIENT_KEY \
        MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION
    spans are sent to OTEL_EXPORTER_OTLP_ENDPOINT: TRACING_ENABLED
    spans are sent over HTTP: TRACING_EXPORTER_PROTOCOL
    spans carry the name of the service alone: TRACING_SERVICE_INSTANCE_ID \
        TRACING_SERVICE_NAMESPACE";

/// Reads an environment, if it is one of that project.
pub(crate) fn read(value: impl Fn(&str) -> Option<String>) -> Option<EnvoyEnv> {
    let value = |name: &str| value(name).filter(|text| !text.is_empty());
    let (root, folder) = (value("RUNTIME_ROOT"), value("RUNTIME_SUBDIRECTORY"));
    let kind = value("CONFIG_TYPE").unwrap_or_else(|| "FILE".to_owned());
    let mut envoy_env = EnvoyEnv::default();
    match (&*kind, &root, &folder) {
        (XDS, ..) => envoy_env.xds(value),
        (_, None, None) => return None,
        _ => {
            let mut path = PathBuf::from(root.as_deref().unwrap_or("/srv/runtime_data/current"));
            path.extend(folder);
            path.push(value("RUNTIME_APPDIRECTORY").as_deref().unwrap_or("config"));
            envoy_env.path = Some(path);
            envoy_env.files(&kind, value);
        }
    }
    envoy_env.listeners(value);
    match flag_of("GRPC_SERVER_USE_TLS", value) {
        Ok(is_tls) => envoy_env.is_tls_of_grpc = is_tls == Some(true),
        Err(complaint) => envoy_env.refused.push(complaint),
    }
    if let Err(complaint) = envoy_env.store(value) {
        envoy_env.refused.push(complaint);
    }
    let has_store = envoy_env.raw_settings.iter().any(|setting| setting.key == "store.url");
    for (name, key, convert) in TEXTS {
        let applies = (has_store || !key.starts_with("store."))
            && (envoy_env.is_tls_of_grpc || !key.starts_with("server.tls."));
        envoy_env.set(key, name, value(name).filter(|_| applies).map(|text| convert(&text)));
    }
    for (name, key, [off, on]) in FLAGS {
        match flag_of(name, value) {
            Ok(flag) => envoy_env.set(key, name, flag.map(|flag| if flag { on } else { off })),
            Err(complaint) => envoy_env.refused.push(complaint),
        }
    }
    for (name, only, why) in ONLY {
        let Some(text) = value(name) else { continue };
        let is_only = match flag(only) {
            Some(false) if flag(&text).is_some() => flag(&text) == Some(false),
            _ => text == only,
        };
        if !is_only {
            envoy_env.refused.push(format!("{name}={text}: {why}"));
        }
    }
    for (why, names) in idle() {
        let given = names.filter(|name| value(name).is_some());
        envoy_env.idle.extend(given.map(|name| format!("{name}: {why}")));
    }
    Some(envoy_env)
}

/// Returns the variables without effect, after the behaviour here.
fn idle() -> impl Iterator<Item = (&'static str, std::str::SplitWhitespace<'static>)> {
    let lines = IDLE.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(why, names)| (why.trim(), names.split_whitespace()))
}

impl EnvoyEnv {
    /// Adds the setting of a variable, if it has a text.
    fn set(&mut self, key: &'static str, variable: &str, text: Option<impl Into<String>>) {
        let setting = text.map(|text| RawSetting {
            key,
            text: Some(text.into()),
            name: variable.to_owned(),
            is_weak: false,
        });
        self.raw_settings.extend(setting);
    }

    /// Reads the variables of a control plane that sends the rules.
    fn xds(&mut self, value: impl Fn(&str) -> Option<String>) {
        let [is_tls, is_forced, is_waiting] = XDS_FLAGS.map(|name| {
            flag_of(name, &value).unwrap_or_else(|complaint| {
                self.refused.push(complaint);
                None
            })
        });
        let usual = "localhost:18000".to_owned();
        for (name, key, convert) in XDS_TEXTS {
            let text = value(name).or_else(|| (key == "xds.server").then(|| usual.clone()));
            let applies = is_tls == Some(true) || !key.starts_with("xds.tls.");
            self.set(key, name, text.filter(|_| applies).map(|text| convert(&text)));
        }
        if is_tls == Some(true) && value("CONFIG_GRPC_XDS_SERVER_TLS_CACERT").is_none() {
            let complaint = "CONFIG_GRPC_XDS_SERVER_USE_TLS: it needs the authority of the control \
                             plane's certificate, CONFIG_GRPC_XDS_SERVER_TLS_CACERT";
            self.refused.push(complaint.to_owned());
        }
        let is_forced = is_forced.map(|is_forced| is_forced && is_waiting != Some(true));
        let [_, name, _] = XDS_FLAGS;
        self.set("xds.force_start", name, is_forced.map(|is_forced| is_forced.to_string()));
    }

    /// Names the variables of a control plane as without effect, where rules are read from files.
    fn files(&mut self, kind: &str, value: impl Fn(&str) -> Option<String>) {
        if kind != "FILE" {
            let complaint = format!(
                "CONFIG_TYPE={kind}: rules are read from files by FILE, and \
                                     come from a control plane by {XDS}"
            );
            self.refused.push(complaint);
        }
        for name in XDS_TEXTS.map(|(name, ..)| name).into_iter().chain(XDS_FLAGS) {
            if value(name).is_some() {
                self.idle.push(format!("{name}: the service starts with the rules in the files"));
            }
        }
    }

    fn listeners(&mut self, value: impl Fn(&str) -> Option<String>) {
        for (key, host, port, usual) in [
            ("server.http", "HOST", "PORT", "8080"),
            ("server.grpc", "GRPC_HOST", "GRPC_PORT", "8081"),
        ] {
            let (given_host, given_port) = (value(host), value(port));
            let name = if given_host.is_some() { host } else { port };
            if given_host.is_none() && given_port.is_none() {
                continue;
            }
            // That project listens on all addresses by default; here that must be explicit.
            let host = given_host.unwrap_or_else(|| "127.0.0.1".to_owned());
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let port = given_port.unwrap_or_else(|| usual.to_owned());
            self.set(key, name, Some(format!("{host}:{port}")));
        }
    }

    /// Reads the variables for Redis. Errors omit texts that may hold a password.
    fn store(&mut self, value: impl Fn(&str) -> Option<String>) -> Result<(), String> {
        let Some(url) = value("REDIS_URL") else { return Ok(()) };
        let is_unix = value("REDIS_SOCKET_TYPE").map(|kind| kind == "unix");
        let is_tls = flag_of("REDIS_TLS", &value)? == Some(true);
        let kind = value("REDIS_TYPE").unwrap_or_default().to_ascii_lowercase();
        let (kind, name, servers) = match (kind.as_str(), url.split_once(',')) {
            ("" | "single", _) => ("server", None, &*url),
            ("cluster", _) => ("cluster", None, &*url),
            ("sentinel", Some((name, servers))) => ("sentinel", Some(name.trim()), servers),
            ("sentinel", None) => {
                return Err("REDIS_URL: with REDIS_TYPE=SENTINEL it is a name and the sentinels, \
                            as in \"mymaster,host:26379\""
                    .to_owned());
            }
            _ => return Err("REDIS_TYPE: it is SINGLE, SENTINEL or CLUSTER".to_owned()),
        };
        self.set("store.kind", "REDIS_TYPE", Some(kind));
        self.set("store.name", "REDIS_URL", name);
        let servers = servers.split(',').map(|server| address(server.trim(), is_unix, is_tls));
        self.set("store.url", "REDIS_URL", Some(servers.collect::<Vec<_>>().join(",")));
        let auth = value("REDIS_AUTH").unwrap_or_default();
        let (user, password) = auth.split_once(':').unwrap_or(("", &auth));
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        self.set("store.user", "REDIS_AUTH", given(user));
        self.set("store.password", "REDIS_AUTH", given(password));
        Ok(())
    }
}

/// Converts a duration from Go's form with one unit: `10s`, `500ms`, `1m`.
fn span(text: &str) -> String {
    match text.strip_suffix('m') {
        Some(number) => format!("{number}min"),
        None => text.to_owned(),
    }
}

/// Converts the target of a channel of gRPC, which may have the scheme of a name.
fn target(text: &str) -> String {
    text.strip_prefix("dns:///").unwrap_or(text).to_owned()
}

/// Converts a fraction of one to a percentage.
fn percentage(text: &str) -> String {
    let share = text.parse::<f64>().map(|share| format!("{:.4}%", share * 100.0));
    share.unwrap_or_else(|_| text.to_owned())
}

fn level(text: &str) -> String {
    match &*text.to_ascii_lowercase() {
        "warning" => "warn".to_owned(),
        "fatal" | "panic" => "error".to_owned(),
        level => level.to_owned(),
    }
}

/// Reads a flag, if it is set. Anything but true or false is refused: read as false, it could
/// send a password unencrypted.
fn flag_of(name: &str, value: impl Fn(&str) -> Option<String>) -> Result<Option<bool>, String> {
    let read = |text: String| {
        flag(&text).map(Some).ok_or_else(|| format!("{name}: expected true or false, got {text:?}"))
    };
    value(name).map_or(Ok(None), read)
}

/// Parses a flag as that project does.
fn flag(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Converts an address from that project's form.
fn address(text: &str, is_unix: Option<bool>, is_tls: bool) -> String {
    match text.split_once("://") {
        Some(("redis", rest)) if is_tls => format!("rediss://{rest}"),
        Some(_) => text.to_owned(),
        None if is_unix.unwrap_or_else(|| text.starts_with('/')) => format!("unix:{text}"),
        None if is_tls => format!("rediss://{text}"),
        None => format!("redis://{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every variable of that project is in the guide, and has a use, a reason for its refusal,
    /// or a sentence.
    #[test]
    fn the_guide_names_every_variable() {
        let guide = "../../docs/guides/moving-from-envoyproxy-ratelimit.md";
        let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(guide);
        let guide = std::fs::read_to_string(guide).unwrap();
        let (_, table) = guide.split_once("| variable | here |").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let named: Vec<&str> = table
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|name| name.split('=').next().unwrap().trim_end_matches("_…"))
            .collect();
        let is_named = |name: &str| {
            let is_it = |known: &&str| {
                *known == name
                    || name.strip_prefix(*known).is_some_and(|rest| rest.starts_with('_'))
            };
            named.iter().any(is_it)
        };
        let idle = idle().flat_map(|(_, names)| names);
        let only = ONLY.iter().map(|(name, ..)| *name);
        let flags = FLAGS.iter().map(|(name, ..)| *name);
        let texts = TEXTS.iter().map(|(name, ..)| *name);
        // What they mean together is tested with the store that they make.
        let store = ["REDIS_URL", "REDIS_SOCKET_TYPE", "REDIS_TYPE", "REDIS_TLS"];
        let with = |name: &str, kind: &str| {
            let with = read(|variable: &str| match variable {
                "RUNTIME_ROOT" => Some("/data".to_owned()),
                "CONFIG_TYPE" => Some(kind.to_owned()),
                "GRPC_SERVER_USE_TLS" | "CONFIG_GRPC_XDS_SERVER_USE_TLS" => Some("true".to_owned()),
                "REDIS_URL" => Some("h:1".to_owned()),
                _ => (variable == name).then(|| "1".to_owned()),
            });
            with.unwrap()
        };
        let has_effect = |name: &str, kind: &str| with(name, kind) != with("", kind);
        let xds_texts = XDS_TEXTS.iter().map(|(name, ..)| *name);
        let named_alone = idle.chain(only).chain(flags).chain(texts).chain(["REDIS_AUTH"]);
        for name in named_alone {
            assert!(is_named(name), "{name}");
            assert!(has_effect(name, "FILE"), "{name} is passed over");
        }
        for name in xds_texts.chain(XDS_FLAGS) {
            assert!(is_named(name), "{name}");
            // It is set in each of these environments.
            let is_set = name == "CONFIG_GRPC_XDS_SERVER_USE_TLS";
            assert!(is_set || has_effect(name, "FILE"), "{name} is passed over beside files");
            // It has an effect beside another flag alone.
            let is_second = name == "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED";
            assert!(is_set || is_second || has_effect(name, XDS), "{name} is passed over");
        }
        for name in store.into_iter().chain(["CONFIG_TYPE"]) {
            assert!(is_named(name), "{name}");
        }
    }
}
