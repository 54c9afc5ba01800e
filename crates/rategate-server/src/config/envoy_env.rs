//! The environment of envoyproxy/ratelimit, for a service started as its replacement.
//!
//! It is recognized by `RUNTIME_ROOT` or `RUNTIME_SUBDIRECTORY`, or by `CONFIG_TYPE` if a control
//! plane sends the rules.
//!
//! The variables that Envoy Gateway and Istio's sample set are settings, unless the `RATEGATE_`
//! variable of the same setting is there. Any other variable of that project is named in a warning,
//! except one that would admit clients whom it keeps out: that is refused.

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
    /// The variables without effect.
    pub(crate) idle: Vec<&'static str>,
    /// `true` if gRPC alone uses TLS.
    pub(crate) is_tls_of_grpc: bool,
}

/// The variables with the text of a setting, and the conversion from that project's form. Those of
/// `server.tls` apply if gRPC uses TLS.
const TEXTS: [(&str, &str, Convert); 6] = [
    ("GRPC_SERVER_TLS_CERT", "server.tls.cert", str::to_owned),
    ("GRPC_SERVER_TLS_KEY", "server.tls.key", str::to_owned),
    ("GRPC_CLIENT_TLS_CACERT", "server.tls.client_ca", str::to_owned),
    ("TRACING_SERVICE_NAME", "tracing.service", str::to_owned),
    ("TRACING_SAMPLING_RATE", "tracing.sample", percentage),
    ("LOG_LEVEL", "log.filter", level),
];
type Convert = fn(&str) -> String;

/// The value of `CONFIG_TYPE` with which a control plane sends the rules.
const XDS: &str = "GRPC_XDS_SOTW";

/// The variables of the control plane, which are settings if it sends the rules. Those of `xds.tls`
/// apply if it uses TLS.
const XDS_TEXTS: [(&str, &str, Convert); 5] = [
    ("CONFIG_GRPC_XDS_SERVER_URL", "xds.server", target),
    ("CONFIG_GRPC_XDS_NODE_ID", "xds.node", str::to_owned),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "xds.tls.ca", str::to_owned),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "xds.tls.cert", str::to_owned),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "xds.tls.key", str::to_owned),
];

/// The flags of the control plane, which mean something if it sends the rules.
const XDS_FLAGS: [&str; 2] =
    ["CONFIG_GRPC_XDS_SERVER_USE_TLS", "FORCE_START_WITHOUT_INITIAL_CONFIG"];

/// The variables without effect.
const IDLE: &str = "
    BACKEND_TYPE CACHE_KEY_PREFIX CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS
    CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL
    CONFIG_GRPC_XDS_SERVER_TLS_SAN DEBUG_HOST DEBUG_PORT DISABLE_STATS DOG_STATSD_MOGRIFIERS
    EXPIRATION_JITTER_MAX_SECONDS EXTRA_TAGS GRPC_MAX_CONNECTION_AGE
    GRPC_MAX_CONNECTION_AGE_GRACE GRPC_UDS HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED
    LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER LIMIT_RESPONSE_HEADERS_ENABLED
    LOCAL_CACHE_SIZE_IN_BYTES LOG_FORMAT MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV
    MEMCACHE_SRV_REFRESH MEMCACHE_TLS MEMCACHE_TLS_CACERT MEMCACHE_TLS_CLIENT_CERT
    MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION MERGE_DOMAIN_CONFIG
    NEAR_LIMIT_RATIO PROMETHEUS_ADDR PROMETHEUS_MAPPER_YAML PROMETHEUS_PATH PROTO QUOTA_MODE
    REDIS_AUTH REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_HEALTH_CHECK_ACTIVE_CONNECTION
    REDIS_PERSECOND REDIS_PERSECOND_AUTH REDIS_PERSECOND_PIPELINE_LIMIT
    REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_SOCKET_TYPE
    REDIS_PERSECOND_TLS REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL REDIS_PIPELINE_LIMIT
    REDIS_PIPELINE_WINDOW REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_SIZE REDIS_SENTINEL_AUTH
    REDIS_TIMEOUT REDIS_TLS_CACERT REDIS_TLS_CLIENT_CERT REDIS_TLS_CLIENT_KEY
    REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_TYPE RESPONSE_DYNAMIC_METADATA
    RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_WATCH_ROOT SHADOW_MODE STATSD_HOST
    STATSD_PORT STATS_FLUSH_INTERVAL STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT TRACING_ENABLED
    TRACING_EXPORTER_PROTOCOL TRACING_SERVICE_INSTANCE_ID TRACING_SERVICE_NAMESPACE
    USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_PROMETHEUS USE_STATSD
    XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_BACKOFF_MAX_INTERVAL
    XDS_CLIENT_BACKOFF_RANDOM_FACTOR XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";

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
            path.push("config");
            envoy_env.path = Some(path);
            envoy_env.files(&kind, value);
        }
    }
    envoy_env.listeners(value);
    envoy_env.is_tls_of_grpc = envoy_env.flag("GRPC_SERVER_USE_TLS", value) == Some(true);
    envoy_env.store(value);
    for (name, key, convert) in TEXTS {
        let applies = envoy_env.is_tls_of_grpc || !key.starts_with("server.tls.");
        envoy_env.set(key, name, value(name).filter(|_| applies).map(|text| convert(&text)));
    }
    if value("GRPC_CLIENT_TLS_SAN").is_some() {
        let refused = "GRPC_CLIENT_TLS_SAN: clients are verified only by the CA of their \
                       certificate, GRPC_CLIENT_TLS_CACERT; leave it out";
        envoy_env.refused.push(refused.to_owned());
    }
    envoy_env.idle.extend(IDLE.split_whitespace().filter(|name| value(name).is_some()));
    Some(envoy_env)
}

impl EnvoyEnv {
    /// Adds the setting of a variable, if it has a text.
    fn set(&mut self, key: &'static str, variable: &str, text: Option<String>) {
        let setting = text.map(|text| RawSetting {
            key,
            text: Some(text),
            name: variable.to_owned(),
            is_weak: false,
        });
        self.raw_settings.extend(setting);
    }

    /// Reads a flag as that project does, if it is set. Anything but true or false is refused: read
    /// as false, it could send a password unencrypted.
    fn flag(&mut self, name: &str, value: impl Fn(&str) -> Option<String>) -> Option<bool> {
        match &*value(name)? {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            text => {
                self.refused.push(format!("{name}: expected true or false, got {text:?}"));
                None
            }
        }
    }

    /// Reads the variables of a control plane that sends the rules.
    fn xds(&mut self, value: impl Fn(&str) -> Option<String>) {
        let [is_tls, is_forced] = XDS_FLAGS.map(|name| self.flag(name, &value));
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
        let [_, name] = XDS_FLAGS;
        self.set("xds.force_start", name, is_forced.map(|is_forced| is_forced.to_string()));
    }

    /// Names the variables of a control plane as without effect, where rules are read from files.
    fn files(&mut self, kind: &str, value: impl Fn(&str) -> Option<String>) {
        if kind != "FILE" {
            let complaint = format!(
                "CONFIG_TYPE={kind}: rules are read from files by FILE, and come from a control \
                 plane by {XDS}"
            );
            self.refused.push(complaint);
        }
        let of_xds = XDS_TEXTS.map(|(name, ..)| name).into_iter().chain(XDS_FLAGS);
        self.idle.extend(of_xds.filter(|name| value(name).is_some()));
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

    /// Reads the variables for Redis.
    fn store(&mut self, value: impl Fn(&str) -> Option<String>) {
        let Some(urls) = value("REDIS_URL") else { return };
        let is_unix = value("REDIS_SOCKET_TYPE").map(|kind| kind == "unix");
        let is_tls = self.flag("REDIS_TLS", &value) == Some(true);
        let servers = urls.split(',').map(|server| store_url(server.trim(), is_unix, is_tls));
        self.set("store.url", "REDIS_URL", Some(servers.collect::<Vec<_>>().join(",")));
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

/// Converts the address of a store from that project's form.
fn store_url(text: &str, is_unix: Option<bool>, is_tls: bool) -> String {
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

    /// Each variable is a setting, in one kind of environment at least, or is named. None is both.
    #[test]
    fn every_variable_has_an_effect_or_is_named() {
        let with = |name: &str, text: &str, kind: &str| {
            let read = read(|variable: &str| match variable {
                "RUNTIME_ROOT" => Some("/data".to_owned()),
                "CONFIG_TYPE" => Some(kind.to_owned()),
                "GRPC_SERVER_USE_TLS" | "CONFIG_GRPC_XDS_SERVER_USE_TLS" => Some("true".to_owned()),
                _ => (variable == name).then(|| text.to_owned()),
            });
            read.unwrap()
        };
        let texts = TEXTS.iter().chain(&XDS_TEXTS).map(|(name, ..)| *name);
        for name in texts.chain(["FORCE_START_WITHOUT_INITIAL_CONFIG", "REDIS_URL"]) {
            let (has, none) = (with(name, "1", XDS), with("", "", XDS));
            assert_ne!(has.raw_settings, none.raw_settings, "{name}");
            assert!(has.idle.is_empty() && has.refused == none.refused || name.ends_with("CACERT"));
        }
        for name in IDLE.split_whitespace() {
            let has = with(name, "1", "FILE");
            assert_eq!(has.raw_settings, with("", "", "FILE").raw_settings, "{name}");
            assert!(has.idle.contains(&name), "{name}");
        }
    }
}
