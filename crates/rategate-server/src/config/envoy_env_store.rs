//! The store of an environment of envoyproxy/ratelimit: its variables for Redis, where there is
//! an equivalent.

use std::time::Duration;

use rategate_core::span;
use rategate_redis::client::{DEFAULT_BUDGET, DEFAULT_QUEUE};

use super::envoy_env::flag_of;
use super::native::is_prefix;
use super::native::text::{Grammar as _, StoreUrl};
use super::settings::{Secret, Store, StoreLocation};

/// The variables that this module reads.
#[cfg(test)]
pub(super) const VARIABLES: [&str; 7] = [
    "REDIS_URL",
    "REDIS_SOCKET_TYPE",
    "REDIS_TYPE",
    "REDIS_AUTH",
    "REDIS_TLS",
    "REDIS_TIMEOUT",
    "CACHE_KEY_PREFIX",
];

/// The store in the environment. Settings that it does not give are left to files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnvoyEnvStore {
    location: StoreLocation,
    user: Option<String>,
    password: Option<Secret>,
    database: Option<u16>,
    budget: Option<Duration>,
    prefix: Option<String>,
}

/// Reads the variables for Redis. Errors omit texts that may hold a password.
pub(super) fn read(
    value: impl Fn(&str) -> Option<String>,
) -> Result<Option<EnvoyEnvStore>, String> {
    let Some(url) = value("REDIS_URL") else { return Ok(None) };
    let is_unix = value("REDIS_SOCKET_TYPE").map(|kind| kind == "unix");
    let is_tls = flag_of("REDIS_TLS", &value)? == Some(true);
    let invalid = |complaint: String| format!("REDIS_URL: {complaint}");
    let read = |server_text: &str| {
        StoreUrl::read(&address(server_text.trim(), is_unix, is_tls)).map_err(invalid)
    };
    let kind = value("REDIS_TYPE").unwrap_or_default().to_ascii_lowercase();
    let (name, servers) = match url.split_once(',') {
        Some((name, sentinels)) if kind == "sentinel" => (Some(name), sentinels),
        _ => (None, url.as_str()),
    };
    let urls = servers.split(',').map(read).collect::<Result<Vec<_>, _>>()?;
    let first = urls.first().cloned();
    let mut servers: Vec<_> = urls.into_iter().map(|url| url.server).collect();
    let location = match (kind.as_str(), name) {
        ("" | "single", _) if servers.len() == 1 => StoreLocation::Server(servers.remove(0)),
        ("" | "single", _) => {
            return Err(
                "REDIS_URL: several servers, and REDIS_TYPE is not CLUSTER or SENTINEL".to_owned()
            );
        }
        ("cluster", _) => StoreLocation::Cluster(servers),
        ("sentinel", Some(name)) => {
            StoreLocation::Sentinel { name: name.trim().to_owned(), sentinels: servers }
        }
        ("sentinel", None) => {
            return Err("REDIS_URL: with REDIS_TYPE=SENTINEL it is a name and the sentinels, \
                        as in \"mymaster,host:26379\""
                .to_owned());
        }
        _ => return Err("REDIS_TYPE: it is SINGLE, SENTINEL or CLUSTER".to_owned()),
    };
    let auth = value("REDIS_AUTH");
    let auth = auth.map(|auth| match auth.split_once(':') {
        Some((user, password)) => (Some(user.to_owned()), password.to_owned()),
        None => (None, auth),
    });
    let (user, password) = auth.map_or((None, None), |(user, password)| (user, Some(password)));
    let (own_user, own_password, database) =
        first.map_or((None, None, None), |url| (url.user, url.password, url.database));
    let budget = value("REDIS_TIMEOUT").map(|text| duration(&text)).transpose()?;
    Ok(Some(EnvoyEnvStore {
        location,
        user: user.or(own_user),
        password: password.or(own_password).map(Secret::new),
        database,
        budget,
        prefix: value("CACHE_KEY_PREFIX").map(prefix).transpose()?,
    }))
}

impl EnvoyEnvStore {
    /// Overrides the store of the files. Settings that only files give remain.
    pub(super) fn over(&self, store: Option<Store>) -> Store {
        let this = self.clone();
        let known = store.unwrap_or_else(|| Store {
            location: this.location.clone(),
            user: None,
            password: None,
            database: 0,
            prefix: "rategate".to_owned(),
            budget: DEFAULT_BUDGET,
            queue: DEFAULT_QUEUE,
            nodes: std::num::NonZeroU32::MIN,
        });
        Store {
            location: this.location,
            user: this.user.or(known.user),
            password: this.password.or(known.password),
            database: this.database.unwrap_or(known.database),
            prefix: this.prefix.unwrap_or(known.prefix),
            budget: this.budget.unwrap_or(known.budget),
            ..known
        }
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

/// Checks a prefix of keys. Replacing it could collide with another service's prefix and share
/// its counters.
fn prefix(text: String) -> Result<String, String> {
    if is_prefix(&text) {
        return Ok(text);
    }
    Err(format!("CACHE_KEY_PREFIX: {text:?} is not 1 to 32 letters, digits, `-`, `_` and `.`"))
}

/// Parses a length of time as Go writes it, in one unit: `10s`, `500ms`, `1m`.
fn duration(text: &str) -> Result<Duration, String> {
    let minutes = text.strip_suffix('m').map(|number| format!("{number}min"));
    match span::parse(&minutes.unwrap_or_else(|| text.to_owned())) {
        Ok(ns @ 1..) => Ok(Duration::from_nanos(ns)),
        _ => Err(format!("REDIS_TIMEOUT: {text:?} is not a time in one unit, as in 500ms or 10s")),
    }
}

#[cfg(test)]
mod tests {
    use rategate_redis::client::Server;

    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<EnvoyEnvStore>, String> {
        read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    fn store(variables: &[(&str, &str)]) -> Store {
        of(variables).unwrap().unwrap().over(None)
    }

    #[test]
    fn variables_for_redis_are_a_store() {
        assert_eq!(of(&[("REDIS_TLS", "true")]), Ok(None));
        let location = |variables: &[(&str, &str)]| store(variables).location;
        let plain = location(&[("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "tcp")]);
        assert_eq!(plain, StoreLocation::Server(Server::tcp("redis", 6379)));
        assert_eq!(location(&[("REDIS_URL", "redis:6379")]), plain, "no path");
        let tls = StoreLocation::Server(Server::Tls("r".into(), 6380));
        assert_eq!(location(&[("REDIS_URL", "r:6380"), ("REDIS_TLS", "true")]), tls);
        assert_eq!(location(&[("REDIS_URL", "redis://r:6380"), ("REDIS_TLS", "1")]), tls);
        assert_eq!(location(&[("REDIS_URL", "rediss://r:6380")]), tls);
        let socket = StoreLocation::Server(Server::Unix("/run/r.sock".into()));
        assert_eq!(location(&[("REDIS_URL", "/run/r.sock")]), socket);
        let of_sentinels = [("REDIS_URL", "mymaster,a:26379,b:26380"), ("REDIS_TYPE", "SENTINEL")];
        let sentinels = vec![Server::tcp("a", 26379), Server::tcp("b", 26380)];
        let expected = StoreLocation::Sentinel { name: "mymaster".to_owned(), sentinels };
        assert_eq!(location(&of_sentinels), expected);
        let nodes = vec![Server::tcp("a", 1), Server::tcp("b", 2)];
        let cluster = location(&[("REDIS_URL", "a:1,b:2"), ("REDIS_TYPE", "cluster")]);
        assert_eq!(cluster, StoreLocation::Cluster(nodes));
    }

    #[test]
    fn who_asks_how_long_and_under_which_keys() {
        let with = |name, text| store(&[("REDIS_URL", "r:1"), (name, text)]);
        let password_only = with("REDIS_AUTH", "sesame");
        assert_eq!(
            (password_only.user, password_only.password),
            (None, Some(Secret::new("sesame".to_owned())))
        );
        let both = with("REDIS_AUTH", "ann:se:same");
        assert_eq!(both.user.as_deref(), Some("ann"));
        assert_eq!(both.password, Some(Secret::new("se:same".to_owned())));
        assert_eq!(with("REDIS_TIMEOUT", "500ms").budget, Duration::from_millis(500));
        assert_eq!(with("REDIS_TIMEOUT", "1m").budget, Duration::from_secs(60));
        assert_eq!(with("CACHE_KEY_PREFIX", "prod").prefix, "prod");
        let files = Store { nodes: 3.try_into().unwrap(), ..with("REDIS_TIMEOUT", "1s") };
        let over = of(&[("REDIS_URL", "other:2")]).unwrap().unwrap().over(Some(files));
        assert_eq!((over.nodes.get(), over.budget), (3, Duration::from_secs(1)));
    }

    #[test]
    fn a_complaint_names_its_variable() {
        for (variables, expected_start) in [
            (&[("REDIS_URL", "a:1,b:2")][..], "REDIS_URL: several"),
            (&[("REDIS_URL", "a:1"), ("REDIS_TYPE", "SENTINEL")], "REDIS_URL: with"),
            (&[("REDIS_URL", "a:1"), ("REDIS_TYPE", "ring")], "REDIS_TYPE: "),
            (&[("REDIS_URL", "a:port")], "REDIS_URL: "),
            (&[("REDIS_URL", "a:1"), ("REDIS_TIMEOUT", "soon")], "REDIS_TIMEOUT: "),
            (&[("REDIS_URL", "a:1"), ("REDIS_TLS", "yes")], "REDIS_TLS: it is true or false"),
            (&[("REDIS_URL", "a:1"), ("CACHE_KEY_PREFIX", "prod:")], "CACHE_KEY_PREFIX: \"prod:\""),
        ] {
            let complaint = of(variables).unwrap_err();
            assert!(complaint.starts_with(expected_start), "{complaint}");
        }
        let secret = of(&[("REDIS_URL", "redis://u:sesame@h:port")]).unwrap_err();
        assert!(!secret.contains("sesame"));
    }
}
