//! The environment of envoyproxy/ratelimit, for a service that is started in its place: `RUNTIME_ROOT` or `RUNTIME_SUBDIRECTORY` says so.
//!
//! A variable that says what a setting does is that setting, and gives way to the `RATEGATE_` variable of the same setting. One that would
//! change decisions in a way that there is not here is refused. Any other is named in a warning.

use std::path::PathBuf;

/// What such an environment comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Theirs {
    /// The folder of the rules.
    pub(crate) path: PathBuf,
    /// Keys of settings, the text that they are said by, and the variables that say it.
    pub(crate) said: Vec<(&'static str, String, &'static str)>,
    /// What is refused, and what would be right.
    pub(crate) refused: Vec<String>,
    /// Variables that do nothing here.
    pub(crate) idle: Vec<String>,
    /// Whether gRPC alone speaks TLS.
    pub(crate) is_tls_of_grpc: bool,
}

/// Flags that are settings.
const FLAGS: [(&str, &str); 4] = [
    ("SHADOW_MODE", "grpc.shadow"),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "grpc.count_over_only"),
    ("MERGE_DOMAIN_CONFIG", "grpc.merge_domains"),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", "grpc.headers"),
];

/// Values that stand for what there is here; any other is refused, for this reason.
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
        "clients are known by who signed their certificate alone: GRPC_CLIENT_TLS_CACERT",
    ),
];

/// Variables that change no decision of one server: its statistics, its connections to Redis, its logs' sinks.
const IDLE: [&str; 41] = [
    "CACHE_KEY_PREFIX",
    "DEBUG_HOST",
    "DEBUG_PORT",
    "DISABLE_STATS",
    "DOG_STATSD_MOGRIFIERS",
    "EXPIRATION_JITTER_MAX_SECONDS",
    "EXTRA_TAGS",
    "FORCE_START_WITHOUT_INITIAL_CONFIG",
    "GRPC_MAX_CONNECTION_AGE",
    "GRPC_MAX_CONNECTION_AGE_GRACE",
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
    "LOCAL_CACHE_SIZE_IN_BYTES",
    "NEAR_LIMIT_RATIO",
    "PROMETHEUS_ADDR",
    "PROMETHEUS_MAPPER_YAML",
    "PROMETHEUS_PATH",
    "REDIS_AUTH",
    "REDIS_CLUSTER_PIPELINE_PARALLELISM",
    "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
    "REDIS_PIPELINE_LIMIT",
    "REDIS_PIPELINE_WINDOW",
    "REDIS_POOL_ON_EMPTY_BEHAVIOR",
    "REDIS_POOL_SIZE",
    "REDIS_SENTINEL_AUTH",
    "REDIS_SOCKET_TYPE",
    "REDIS_TIMEOUT",
    "REDIS_TLS",
    "REDIS_TLS_CACERT",
    "REDIS_TLS_CLIENT_CERT",
    "REDIS_TLS_CLIENT_KEY",
    "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
    "REDIS_TYPE",
    "REDIS_URL",
    "RUNTIME_IGNOREDOTFILES",
    "RUNTIME_WATCH_ROOT",
    "STATSD_HOST",
    "STATSD_PORT",
    "TRACING_ENABLED",
    "USE_DOG_STATSD",
    "USE_PROMETHEUS",
    "USE_STATSD",
];

/// What an environment says, if it is one of that project.
pub(crate) fn read(value: impl Fn(&str) -> Option<String>) -> Option<Theirs> {
    let value = |name: &str| value(name).filter(|text| !text.is_empty());
    let (root, folder) = (value("RUNTIME_ROOT"), value("RUNTIME_SUBDIRECTORY"));
    if root.is_none() && folder.is_none() {
        return None;
    }
    let mut path = PathBuf::from(root.as_deref().unwrap_or("/srv/runtime_data/current"));
    path.extend(folder);
    path.push(value("RUNTIME_APPDIRECTORY").as_deref().unwrap_or("config"));
    let mut theirs = Theirs { path, ..Theirs::default() };
    theirs.listeners(value);
    theirs.tls(value);
    theirs.log(value);
    for (name, key) in FLAGS {
        match value(name).as_deref().map(flag) {
            None => {}
            Some(Some(is_set)) => theirs.said.push((key, is_set.to_string(), name)),
            Some(None) => theirs.refused.push(format!("{name}: it is true or false")),
        }
    }
    for (name, only, why) in ONLY {
        let Some(text) = value(name) else { continue };
        let is_only = match flag(only) {
            Some(false) if flag(&text).is_some() => flag(&text) == Some(false),
            _ => text == only,
        };
        if !is_only {
            theirs.refused.push(format!("{name}={text}: {why}"));
        }
    }
    let is_said = |name: &&str| value(name).is_some();
    theirs.idle = IDLE.iter().filter(|name| is_said(name)).map(|name| (*name).to_owned()).collect();
    Some(theirs)
}

impl Theirs {
    fn listeners(&mut self, value: impl Fn(&str) -> Option<String>) {
        for (key, host, port, usual) in [
            ("server.http", "HOST", "PORT", "8080"),
            ("server.grpc", "GRPC_HOST", "GRPC_PORT", "8081"),
        ] {
            let (said_host, said_port) = (value(host), value(port));
            let name = if said_host.is_some() { host } else { port };
            if said_host.is_none() && said_port.is_none() {
                continue;
            }
            // That project listens everywhere if nothing is said; here that is to be said.
            let host = said_host.unwrap_or_else(|| "127.0.0.1".to_owned());
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let port = said_port.unwrap_or_else(|| usual.to_owned());
            self.said.push((key, format!("{host}:{port}"), name));
        }
        if let Some(path) = value("GRPC_UDS") {
            self.said.push(("server.grpc", format!("unix:{path}"), "GRPC_UDS"));
        }
    }

    fn tls(&mut self, value: impl Fn(&str) -> Option<String>) {
        let files = [
            ("GRPC_SERVER_TLS_CERT", "server.tls.cert"),
            ("GRPC_SERVER_TLS_KEY", "server.tls.key"),
            ("GRPC_CLIENT_TLS_CACERT", "server.tls.client_ca"),
        ];
        self.is_tls_of_grpc = value("GRPC_SERVER_USE_TLS").as_deref().and_then(flag) == Some(true);
        for (name, key) in files.into_iter().filter(|_| self.is_tls_of_grpc) {
            self.said.extend(value(name).map(|path| (key, path, name)));
        }
    }

    fn log(&mut self, value: impl Fn(&str) -> Option<String>) {
        if let Some(level) = value("LOG_LEVEL") {
            let level = match level.to_ascii_lowercase().as_str() {
                "warning" => "warn".to_owned(),
                "fatal" | "panic" => "error".to_owned(),
                level => level.to_owned(),
            };
            self.said.push(("log.filter", level, "LOG_LEVEL"));
        }
        if let Some(format) = value("LOG_FORMAT") {
            self.said.push(("log.format", format.to_ascii_lowercase(), "LOG_FORMAT"));
        }
    }
}

/// A flag as that project reads it.
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

    fn of(variables: &[(&str, &str)]) -> Option<Theirs> {
        read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn an_environment_is_theirs_if_it_says_where_the_rules_are() {
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
        let said = |variables: &[(&str, &str)]| {
            let said = with(variables).said.into_iter();
            said.map(|(key, text, _)| format!("{key}={text}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(said(&[("PORT", "80")]), "server.http=127.0.0.1:80");
        assert_eq!(said(&[("HOST", "0.0.0.0")]), "server.http=0.0.0.0:8080");
        assert_eq!(said(&[("GRPC_HOST", "::")]), "server.grpc=[::]:8081");
        assert_eq!(said(&[("GRPC_UDS", "/run/x")]), "server.grpc=unix:/run/x");
        assert_eq!(
            said(&[("LOG_LEVEL", "WARNING"), ("LOG_FORMAT", "json")]),
            "log.filter=warn log.format=json"
        );
        assert_eq!(
            said(&[("SHADOW_MODE", "1"), ("MERGE_DOMAIN_CONFIG", "false")]),
            "grpc.shadow=true grpc.merge_domains=false"
        );
        let files = [("GRPC_SERVER_TLS_CERT", "c"), ("GRPC_SERVER_TLS_KEY", "k")];
        assert_eq!(said(&files), "", "TLS is off");
        let tls = with(&[&files[..], &[("GRPC_SERVER_USE_TLS", "true")]].concat());
        assert!(tls.is_tls_of_grpc && tls.said.len() == 2);
        for (name, right, wrong) in [
            ("QUOTA_MODE", "false", "true"),
            ("CONFIG_TYPE", "FILE", "GRPC_XDS_SOTW"),
            ("BACKEND_TYPE", "redis", "memcache"),
            ("LIMIT_RESET_HEADER", "RateLimit-Reset", "X-Reset"),
            ("SHADOW_MODE", "0", "perhaps"),
        ] {
            assert!(with(&[(name, right)]).refused.is_empty(), "{name}");
            assert!(with(&[(name, wrong)]).refused[0].starts_with(name), "{name}");
        }
        assert_eq!(
            with(&[("REDIS_URL", "r:6379"), ("USE_STATSD", "false")]).idle,
            ["REDIS_URL", "USE_STATSD"]
        );
    }
}
