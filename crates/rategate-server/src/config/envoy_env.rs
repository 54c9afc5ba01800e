//! The environment of envoyproxy/ratelimit, for a service started as its replacement.
//!
//! It is recognized by `RUNTIME_ROOT` or `RUNTIME_SUBDIRECTORY`.
//!
//! A variable with an equivalent setting sets it, unless the `RATEGATE_` variable of the same
//! setting does. One that would change decisions in an unsupported way is refused. Any other is
//! named in a warning.

use std::path::PathBuf;

use super::envoy_env_store::{self, EnvoyEnvStore};

/// The settings of such an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvoyEnv {
    /// The folder of the rules.
    pub(crate) path: PathBuf,
    /// The keys of settings, their texts, and the variables that set them.
    pub(crate) raw_settings: Vec<(&'static str, String, &'static str)>,
    /// The variables that are refused, with corrections.
    pub(crate) refused: Vec<String>,
    /// The variables without effect, each with the behaviour here.
    pub(crate) idle: Vec<String>,
    /// The store, if the environment names one.
    pub(crate) store: Option<EnvoyEnvStore>,
    /// `true` if gRPC alone uses TLS.
    pub(crate) is_tls_of_grpc: bool,
}

/// The flags that are settings.
const FLAGS: [(&str, &str); 4] = [
    ("SHADOW_MODE", "grpc.shadow"),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "grpc.count_over_only"),
    ("MERGE_DOMAIN_CONFIG", "grpc.merge_domains"),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", "grpc.headers"),
];

/// The supported values of variables; any other is refused with this reason.
const ONLY: [(&str, &str, &str); 9] = [
    ("CONFIG_TYPE", "FILE", "rules are read from files; there is no xDS client"),
    (
        "BACKEND_TYPE",
        "redis",
        "there is no memcached; counters are in this process, or in Redis by [store]",
    ),
    (
        "QUOTA_MODE",
        "false",
        "there is no global quota mode; write quota_mode: true in each descriptor",
    ),
    ("RESPONSE_DYNAMIC_METADATA", "false", "answers carry no dynamic metadata"),
    ("REDIS_PERSECOND", "false", "there is one store for all units"),
    (
        "LIMIT_LIMIT_HEADER",
        "RateLimit-Limit",
        "header fields have the names RateLimit-Limit, -Remaining and -Reset",
    ),
    (
        "LIMIT_REMAINING_HEADER",
        "RateLimit-Remaining",
        "header fields have the names RateLimit-Limit, -Remaining and -Reset",
    ),
    (
        "LIMIT_RESET_HEADER",
        "RateLimit-Reset",
        "header fields have the names RateLimit-Limit, -Remaining and -Reset",
    ),
    (
        "GRPC_CLIENT_TLS_SAN",
        "",
        "clients are verified only by the CA of their certificate: GRPC_CLIENT_TLS_CACERT",
    ),
];

const STATSD: &str = "statistics are exposed to Prometheus, at /metrics of the HTTP port";
const XDS: &str = "there is no xDS client; rules are read from files";
const PER_SECOND: &str = "there is one store for all units";
const MEMCACHED: &str = "there is no memcached; counters are in this process or in Redis";
const POOL: &str = "one connection to each server of the store carries all requests";
const STORE_TLS: &str =
    "TLS to the store trusts the certificates of this machine, and shows none of its own";

/// The variables without effect, with the behaviour here: statistics, connections to Redis, sinks
/// of logs.
const IDLE: [(&str, &str); 71] = [
    ("PROTO", "TCP is used"),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", XDS),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", XDS),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", XDS),
    ("CONFIG_GRPC_XDS_NODE_ID", XDS),
    ("CONFIG_GRPC_XDS_NODE_METADATA", XDS),
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", XDS),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", XDS),
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", XDS),
    ("CONFIG_GRPC_XDS_SERVER_URL", XDS),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", XDS),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", XDS),
    ("XDS_CLIENT_BACKOFF_JITTER", XDS),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", XDS),
    ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", XDS),
    ("DEBUG_HOST", "there is no debug port; the page and /metrics are at the HTTP port"),
    ("DEBUG_PORT", "there is no debug port; the page and /metrics are at the HTTP port"),
    ("DISABLE_STATS", STATSD),
    ("DOG_STATSD_MOGRIFIERS", STATSD),
    ("EXTRA_TAGS", STATSD),
    ("PROMETHEUS_ADDR", STATSD),
    ("PROMETHEUS_MAPPER_YAML", STATSD),
    ("PROMETHEUS_PATH", STATSD),
    ("STATSD_HOST", STATSD),
    ("STATSD_PORT", STATSD),
    ("STATS_FLUSH_INTERVAL", STATSD),
    ("USE_DOG_STATSD", STATSD),
    ("USE_DOG_STATSD_MOGRIFIERS", STATSD),
    ("USE_PROMETHEUS", STATSD),
    ("USE_STATSD", STATSD),
    ("NEAR_LIMIT_RATIO", "a call is near the limit if it leaves less than a tenth of it"),
    ("EXPIRATION_JITTER_MAX_SECONDS", "counters end with their window"),
    ("LOCAL_CACHE_SIZE_IN_BYTES", "calls over the limit are decided where their counter is"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "the service starts with the rules in the files"),
    ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "the service is ready once its rules are loaded"),
    ("GRPC_MAX_CONNECTION_AGE", "connections last until their client or the service ends them"),
    (
        "GRPC_MAX_CONNECTION_AGE_GRACE",
        "connections last until their client or the service ends them",
    ),
    ("RUNTIME_IGNOREDOTFILES", "files whose name begins with a dot are never read"),
    ("RUNTIME_WATCH_ROOT", "the folder of the rules is watched, whatever it is a link to"),
    ("REDIS_CLUSTER_PIPELINE_PARALLELISM", POOL),
    (
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        "on_unavailable of each rule decides without the store",
    ),
    ("REDIS_PIPELINE_LIMIT", POOL),
    ("REDIS_PIPELINE_WINDOW", POOL),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", POOL),
    ("REDIS_POOL_SIZE", POOL),
    ("REDIS_SENTINEL_AUTH", "sentinels receive the user and the password of the store"),
    ("REDIS_TLS_CACERT", STORE_TLS),
    ("REDIS_TLS_CLIENT_CERT", STORE_TLS),
    ("REDIS_TLS_CLIENT_KEY", STORE_TLS),
    (
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        "the name in the store's certificate is always checked",
    ),
    ("REDIS_PERSECOND_AUTH", PER_SECOND),
    ("REDIS_PERSECOND_PIPELINE_LIMIT", PER_SECOND),
    ("REDIS_PERSECOND_PIPELINE_WINDOW", PER_SECOND),
    ("REDIS_PERSECOND_POOL_SIZE", PER_SECOND),
    ("REDIS_PERSECOND_SOCKET_TYPE", PER_SECOND),
    ("REDIS_PERSECOND_TLS", PER_SECOND),
    ("REDIS_PERSECOND_TYPE", PER_SECOND),
    ("REDIS_PERSECOND_URL", PER_SECOND),
    ("MEMCACHE_HOST_PORT", MEMCACHED),
    ("MEMCACHE_MAX_IDLE_CONNS", MEMCACHED),
    ("MEMCACHE_SRV", MEMCACHED),
    ("MEMCACHE_SRV_REFRESH", MEMCACHED),
    ("MEMCACHE_TLS", MEMCACHED),
    ("TRACING_ENABLED", "spans are sent to OTEL_EXPORTER_OTLP_ENDPOINT"),
    ("TRACING_EXPORTER_PROTOCOL", "spans are sent over HTTP"),
    ("TRACING_SERVICE_INSTANCE_ID", "spans carry the name of the service alone"),
    ("TRACING_SERVICE_NAMESPACE", "spans carry the name of the service alone"),
    ("MEMCACHE_TLS_CACERT", MEMCACHED),
    ("MEMCACHE_TLS_CLIENT_CERT", MEMCACHED),
    ("MEMCACHE_TLS_CLIENT_KEY", MEMCACHED),
    ("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", MEMCACHED),
];

/// Reads an environment, if it is one of that project.
pub(crate) fn read(value: impl Fn(&str) -> Option<String>) -> Option<EnvoyEnv> {
    let value = |name: &str| value(name).filter(|text| !text.is_empty());
    let (root, folder) = (value("RUNTIME_ROOT"), value("RUNTIME_SUBDIRECTORY"));
    if root.is_none() && folder.is_none() {
        return None;
    }
    let mut path = PathBuf::from(root.as_deref().unwrap_or("/srv/runtime_data/current"));
    path.extend(folder);
    path.push(value("RUNTIME_APPDIRECTORY").as_deref().unwrap_or("config"));
    let mut envoy_env = EnvoyEnv { path, ..EnvoyEnv::default() };
    envoy_env.listeners(value);
    envoy_env.tls(value);
    envoy_env.log(value);
    for (name, key) in FLAGS {
        match flag_of(name, value) {
            Ok(is_set) => {
                envoy_env.raw_settings.extend(is_set.map(|is_set| (key, is_set.to_string(), name)));
            }
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
    match envoy_env_store::read(value) {
        Ok(store) => envoy_env.store = store,
        Err(complaint) => envoy_env.refused.push(complaint),
    }
    envoy_env.spans(value);
    let is_given = |(name, _): &&(&str, &str)| value(name).is_some();
    envoy_env.idle.extend(IDLE.iter().filter(is_given).map(|(name, why)| format!("{name}: {why}")));
    Some(envoy_env)
}

impl EnvoyEnv {
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
            self.raw_settings.push((key, format!("{host}:{port}"), name));
        }
        if let Some(path) = value("GRPC_UDS") {
            self.raw_settings.push(("server.grpc", format!("unix:{path}"), "GRPC_UDS"));
        }
    }

    fn tls(&mut self, value: impl Fn(&str) -> Option<String>) {
        let files = [
            ("GRPC_SERVER_TLS_CERT", "server.tls.cert"),
            ("GRPC_SERVER_TLS_KEY", "server.tls.key"),
            ("GRPC_CLIENT_TLS_CACERT", "server.tls.client_ca"),
        ];
        match flag_of("GRPC_SERVER_USE_TLS", &value) {
            Ok(is_tls) => self.is_tls_of_grpc = is_tls == Some(true),
            Err(complaint) => self.refused.push(complaint),
        }
        for (name, key) in files.into_iter().filter(|_| self.is_tls_of_grpc) {
            self.raw_settings.extend(value(name).map(|path| (key, path, name)));
        }
    }

    fn spans(&mut self, value: impl Fn(&str) -> Option<String>) {
        if let Some(name) = value("TRACING_SERVICE_NAME") {
            self.raw_settings.push(("tracing.service", name, "TRACING_SERVICE_NAME"));
        }
        if let Some(rate) = value("TRACING_SAMPLING_RATE") {
            // A fraction of one there, a percentage here.
            let share = rate.parse::<f64>().map(|rate| format!("{:.4}%", rate * 100.0));
            self.raw_settings.push((
                "tracing.sample",
                share.unwrap_or(rate),
                "TRACING_SAMPLING_RATE",
            ));
        }
    }

    fn log(&mut self, value: impl Fn(&str) -> Option<String>) {
        if let Some(level) = value("LOG_LEVEL") {
            let level = match level.to_ascii_lowercase().as_str() {
                "warning" => "warn".to_owned(),
                "fatal" | "panic" => "error".to_owned(),
                level => level.to_owned(),
            };
            self.raw_settings.push(("log.filter", level, "LOG_LEVEL"));
        }
        if let Some(format) = value("LOG_FORMAT") {
            self.raw_settings.push(("log.format", format.to_ascii_lowercase(), "LOG_FORMAT"));
        }
    }
}

/// Reads a flag, if it is set. Anything but true or false is refused: read as false, it could
/// send a password unencrypted.
pub(super) fn flag_of(
    name: &str,
    value: impl Fn(&str) -> Option<String>,
) -> Result<Option<bool>, String> {
    let read = |text: String| {
        flag(&text)
            .map(Some)
            .ok_or_else(|| format!("{name}: it is true or false, and not {text:?}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<EnvoyEnv> {
        read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn an_environment_counts_if_it_names_the_folder_of_rules() {
        assert_eq!(of(&[("PORT", "80"), ("SHADOW_MODE", "true"), ("HOST", "x")]), None);
        let path = |variables: &[(&str, &str)]| of(variables).unwrap().path;
        assert_eq!(path(&[("RUNTIME_ROOT", "/data")]), PathBuf::from("/data/config"));
        let all = [("RUNTIME_ROOT", "/data"), ("RUNTIME_SUBDIRECTORY", "ratelimit")];
        assert_eq!(path(&all), PathBuf::from("/data/ratelimit/config"));
        let usual = [("RUNTIME_SUBDIRECTORY", "r"), ("RUNTIME_APPDIRECTORY", "a")];
        assert_eq!(path(&usual), PathBuf::from("/srv/runtime_data/current/r/a"));
    }

    #[test]
    fn variables_are_settings_or_are_named() {
        let with = |variables: &[(&str, &str)]| {
            of(&[&[("RUNTIME_ROOT", "/data")], variables].concat()).unwrap()
        };
        let raw_settings = |variables: &[(&str, &str)]| {
            let raw_settings = with(variables).raw_settings.into_iter();
            raw_settings.map(|(key, text, _)| format!("{key}={text}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(raw_settings(&[("PORT", "80")]), "server.http=127.0.0.1:80");
        assert_eq!(raw_settings(&[("HOST", "0.0.0.0")]), "server.http=0.0.0.0:8080");
        assert_eq!(raw_settings(&[("GRPC_HOST", "::")]), "server.grpc=[::]:8081");
        assert_eq!(raw_settings(&[("GRPC_UDS", "/run/x")]), "server.grpc=unix:/run/x");
        assert_eq!(
            raw_settings(&[("LOG_LEVEL", "WARNING"), ("LOG_FORMAT", "json")]),
            "log.filter=warn log.format=json"
        );
        assert_eq!(
            raw_settings(&[("SHADOW_MODE", "1"), ("MERGE_DOMAIN_CONFIG", "false")]),
            "grpc.shadow=true grpc.merge_domains=false"
        );
        let files = [("GRPC_SERVER_TLS_CERT", "c"), ("GRPC_SERVER_TLS_KEY", "k")];
        assert_eq!(raw_settings(&files), "", "TLS is off");
        let tls = with(&[&files[..], &[("GRPC_SERVER_USE_TLS", "true")]].concat());
        assert!(tls.is_tls_of_grpc && tls.raw_settings.len() == 2);
        for (name, right, invalid) in [
            ("QUOTA_MODE", "false", "true"),
            ("CONFIG_TYPE", "FILE", "GRPC_XDS_SOTW"),
            ("BACKEND_TYPE", "redis", "memcache"),
            ("LIMIT_RESET_HEADER", "RateLimit-Reset", "X-Reset"),
            ("SHADOW_MODE", "0", "perhaps"),
            ("GRPC_SERVER_USE_TLS", "F", "yes"),
        ] {
            assert!(with(&[(name, right)]).refused.is_empty(), "{name}");
            assert!(with(&[(name, invalid)]).refused[0].starts_with(name), "{name}");
        }
        let idle = with(&[("REDIS_POOL_SIZE", "9"), ("USE_STATSD", "false")]).idle;
        assert!(idle[0].starts_with("USE_STATSD: ") && idle[1].starts_with("REDIS_POOL_SIZE: "));
        assert_eq!(
            raw_settings(&[("TRACING_SERVICE_NAME", "limits"), ("TRACING_SAMPLING_RATE", "0.05")]),
            "tracing.service=limits tracing.sample=5.0000%"
        );
    }

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
        let idle = IDLE.iter().map(|(name, _)| *name);
        let only = ONLY.iter().map(|(name, ..)| *name);
        let flags = FLAGS.iter().map(|(name, _)| *name);
        for name in idle.chain(only).chain(flags).chain(envoy_env_store::VARIABLES) {
            assert!(is_named(name), "{name}");
            let with = with_one(name);
            let effects = with.raw_settings.len() + with.idle.len() + with.refused.len();
            let needs_more = envoy_env_store::VARIABLES.contains(&name) && name != "REDIS_URL";
            assert!(effects > 0 || with.store.is_some() || needs_more, "{name} is passed over");
        }
    }

    fn with_one(name: &str) -> EnvoyEnv {
        of(&[("RUNTIME_ROOT", "/data"), (name, "1")]).unwrap()
    }
}
