//! Conversion of the native format's tables to settings.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rategate_redis::client::{DEFAULT_BUDGET, DEFAULT_QUEUE};
use toml::Spanned;
use toml::de::DeValue;

use super::read as reading;
use super::server::{
    GrpcTable, HttpTable, InlineTable, KeysTable, LimitsTable, Listeners, LogTable, SecretText,
    ServerTable, SnapshotTable, StoreKind, StoreTable, TracingTable,
};
use super::text::{At, Grammar as _, StoreUrl, Text};
use crate::config::draft::{Draft, ListenerDraft, Protocol, SettingSource};
use crate::config::error::Problem;
use crate::config::settings::{Limits, Secret, Snapshot, Store, StoreLocation, Tls};
use crate::config::source::Source;

/// The names of the tables other than rules.
pub(crate) const TABLES: [&str; 9] =
    ["server", "http", "grpc", "store", "snapshot", "inline", "log", "tracing", "keys"];
/// The default interval of snapshots.
pub(crate) const SNAPSHOT_EVERY: Duration = Duration::from_secs(60);
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// Reads a table and adds its settings to the draft.
pub(crate) fn read(
    source: &Arc<Source>,
    name: &str,
    value: Spanned<DeValue<'_>>,
    draft: &mut Draft,
    problems: &mut Vec<Problem>,
) {
    let reader = &mut Reader { source, draft, problems };
    match name {
        "server" => reader.with(value, Reader::server),
        "http" => reader.with(value, Reader::http),
        "grpc" => reader.with(value, |reader, table| reader.grpc(&table)),
        "store" => reader.with(value, Reader::store),
        "snapshot" => reader.with(value, Reader::snapshot),
        "inline" => reader.with(value, |reader, table| reader.inline(&table)),
        "log" => reader.with(value, Reader::log),
        "tracing" => reader.with(value, Reader::tracing),
        _ => reader.with(value, |reader, table| reader.keys(&table)),
    }
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    draft: &'a mut Draft,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn with<'de, T: serde::Deserialize<'de>>(
        &mut self,
        value: Spanned<DeValue<'de>>,
        then: impl FnOnce(&mut Self, T),
    ) {
        // Conditions over several settings are checked only if each of them is right.
        if let (Some(table), reported) = reading::table(self.source, value, self.problems)
            && reported.is_empty()
        {
            then(self, table);
        }
    }

    fn note_source<T>(&mut self, key: &'static str, at: &At<T>) {
        let location = self.source.location(at.span.clone());
        self.draft.setting_sources.insert(key, SettingSource::File(location));
    }

    fn complain<T>(&mut self, at: &At<T>, message: impl Into<String>) {
        self.problems.push(Problem::at(self.source.location(at.span.clone()), message));
    }

    fn server(&mut self, table: ServerTable) {
        let ServerTable { resp, http, grpc, auth, token, tls, threads, limits, drain, insecure } =
            table;
        for (protocol, listeners) in Protocol::ALL.into_iter().zip([resp, http, grpc]) {
            self.listeners(protocol, listeners);
        }
        if let Some(auth) = auth {
            self.note_source("server.auth", &auth);
            self.draft.auth = Some(auth.value);
        }
        let token = token.and_then(|token| self.secret(&token));
        let server = &mut self.draft.settings.server;
        server.token = token;
        server.tls = tls.as_ref().map(|At { value: tls, .. }| Tls {
            cert: tls.cert.clone(),
            key: tls.key.clone(),
            client_ca: tls.client_ca.clone(),
        });
        server.drain = drain.map_or(server.drain, |drain| drain.0);
        server.insecure = insecure.unwrap_or(server.insecure);
        if let Some(limits) = limits {
            server.limits = with_limits(server.limits, &limits);
        }
        if let Some(tls) = tls {
            self.note_source("server.tls", &tls);
        }
        let server = &mut self.draft.settings.server;
        if let Some(threads) = threads {
            server.threads = Some(threads.value);
            self.note_source("server.threads", &threads);
        }
    }

    fn listeners(&mut self, protocol: Protocol, listeners: Option<At<Listeners>>) {
        let Some(listeners) = listeners else { return };
        self.note_source(protocol.key(), &listeners);
        let drafts = listeners.value.0.into_iter().map(|one| ListenerDraft {
            address: one.address,
            auth: one.auth,
            tls: one.tls,
            mode: one.mode,
        });
        self.draft.listeners.insert(protocol, drafts.collect());
    }

    fn secret(&mut self, at: &At<SecretText>) -> Option<Secret> {
        if self.draft.is_foreign && at.value.is_elsewhere() {
            // A secret outside the text is assumed to exist, since it must not be read.
            return Some(Secret::new("elsewhere".to_owned()));
        }
        match secret(&at.value) {
            Ok(secret) => Some(secret),
            Err(complaint) => {
                self.complain(at, complaint);
                None
            }
        }
    }

    fn http(&mut self, table: HttpTable) {
        let http = &mut self.draft.settings.http;
        http.headers = table.headers.unwrap_or_else(|| std::mem::take(&mut http.headers));
        let hosts = table.hosts.unwrap_or_default();
        http.hosts = hosts.into_iter().map(|host| host.0.0).collect();
        let trusted = table.trusted_proxies.unwrap_or_default();
        http.trusted_proxies = trusted.into_iter().map(|network| network.0).collect();
    }

    fn grpc(&mut self, table: &GrpcTable) {
        let grpc = &mut self.draft.settings.grpc;
        grpc.count_denied = table.count_denied.unwrap_or_default();
        grpc.count_over_only = table.count_over_only.unwrap_or_default();
        grpc.shadow = table.shadow.unwrap_or_default();
        grpc.merge_domains = table.merge_domains.unwrap_or_default();
        grpc.headers = table.headers.unwrap_or_default();
    }

    fn store(&mut self, table: StoreTable) {
        let StoreTable { kind, url, name, user, password, database, .. } = table;
        let StoreTable { prefix, budget, queue, nodes, .. } = table;
        let password = password.and_then(|password| self.secret(&password));
        let mut urls = url.value.0.clone();
        let Some(first) = urls.first().cloned() else {
            self.complain(&url, "no server; write \"redis://127.0.0.1:6379\"");
            return;
        };
        if !urls.iter().all(|one| is_same_login(one, &first)) {
            self.complain(&url, "all servers have the same user, password and database");
        }
        let kind_value = kind.as_ref().map_or(StoreKind::default(), |kind| kind.value);
        if let (Some(name), false) = (&name, kind_value == StoreKind::Sentinel) {
            self.complain(name, "a name belongs to kind = \"sentinel\"; leave out one of the two");
        }
        let servers: Vec<_> = urls.drain(..).map(|url| url.server).collect();
        let location = match (kind_value, name) {
            (StoreKind::Server, _) if servers.len() > 1 => {
                let message = "several servers need a kind, which sets how the primary is found";
                let problem = Problem::at(self.source.location(url.span.clone()), message);
                self.problems
                    .push(problem.help("kind = \"primary-of\", \"sentinel\" or \"cluster\""));
                return;
            }
            (StoreKind::Server, _) => StoreLocation::Server(first.server),
            (StoreKind::PrimaryOf, _) => StoreLocation::PrimaryOf(servers),
            (StoreKind::Cluster, _) => StoreLocation::Cluster(servers),
            (StoreKind::Sentinel, Some(name)) => {
                StoreLocation::Sentinel { name: name.value, sentinels: servers }
            }
            (StoreKind::Sentinel, None) => {
                self.complain(&url, "sentinels need the name of the primary; write name = \"...\"");
                return;
            }
        };
        if let Some(prefix) = &prefix
            && !is_prefix(&prefix.value)
        {
            self.complain(prefix, "a prefix is 1 to 32 letters, digits, `-`, `_` and `.`");
        }
        let database = database.or(first.database).unwrap_or(0);
        if database > 0 && matches!(location, StoreLocation::Cluster(_)) {
            self.complain(&url, "a cluster has only database 0");
        }
        self.note_source("store.url", &url);
        self.draft.store = Some(Store {
            user: user.or(first.user),
            password: password.or_else(|| first.password.map(Secret::new)),
            database,
            prefix: prefix.map_or_else(|| "rategate".to_owned(), |prefix| prefix.value),
            budget: budget.map_or(DEFAULT_BUDGET, |budget| budget.0),
            queue: queue.map_or(DEFAULT_QUEUE, Into::into),
            nodes: nodes.unwrap_or(NonZeroU32::MIN),
            location,
        });
    }

    fn snapshot(&mut self, table: SnapshotTable) {
        let SnapshotTable { path, every, when_torn } = table;
        self.draft.settings.snapshot = Some(Snapshot {
            path,
            every: every.map_or(SNAPSHOT_EVERY, |every| every.0),
            when_torn: when_torn.unwrap_or_default(),
        });
    }

    fn inline(&mut self, table: &InlineTable) {
        let inline = &mut self.draft.settings.inline;
        inline.keys = table.keys.map_or(inline.keys, Into::into);
        inline.limits = table.limits.map_or(inline.limits, Into::into);
    }

    fn log(&mut self, table: LogTable) {
        let log = &mut self.draft.settings.log;
        log.format = table.format.unwrap_or(log.format);
        log.filter = table.filter.unwrap_or_else(|| std::mem::take(&mut log.filter));
        log.keys = table.keys.unwrap_or(log.keys);
    }

    fn tracing(&mut self, table: TracingTable) {
        let TracingTable { otlp, sample, service } = table;
        let tracing = &mut self.draft.settings.tracing;
        tracing.sample = sample.map_or(tracing.sample, |sample| sample.0);
        if let Some(otlp) = otlp {
            self.note_source("tracing.otlp", &otlp);
            self.draft.settings.tracing.otlp = otlp.value.0;
        }
        if let Some(service) = service {
            self.note_source("tracing.service", &service);
            self.draft.settings.tracing.service = service.value;
        }
    }

    fn keys(&mut self, table: &KeysTable) {
        let keys = &mut self.draft.settings.keys;
        keys.total = table.total.map_or(keys.total, Into::into);
    }
}

/// Sets the servers of a store, and creates one with defaults if there is none. The way to find
/// the primary remains.
pub(crate) fn add_store_urls(store: &mut Option<Store>, text: &str) -> Result<(), String> {
    let urls = text.split(',').map(|url| StoreUrl::read(url.trim()));
    let urls = urls.collect::<Result<Vec<_>, _>>()?;
    let servers: Vec<_> = urls.iter().map(|url| url.server.clone()).collect();
    let (Some(url), Some(server)) = (urls.first().cloned(), servers.first().cloned()) else {
        return Err("no server".to_owned());
    };
    if !urls.iter().all(|one| is_same_login(one, &url)) {
        return Err("all servers have the same user, password and database".to_owned());
    }
    let location = match store.as_ref().map(|store| &store.location) {
        None | Some(StoreLocation::Server(_)) if servers.len() > 1 => {
            return Err("several servers need a kind, and no file gives one".to_owned());
        }
        None | Some(StoreLocation::Server(_)) => StoreLocation::Server(server),
        Some(StoreLocation::PrimaryOf(_)) => StoreLocation::PrimaryOf(servers),
        Some(StoreLocation::Cluster(_)) if url.database.is_some_and(|number| number > 0) => {
            return Err("a cluster has only database 0".to_owned());
        }
        Some(StoreLocation::Cluster(_)) => StoreLocation::Cluster(servers),
        Some(StoreLocation::Sentinel { name, .. }) => {
            StoreLocation::Sentinel { name: name.clone(), sentinels: servers }
        }
    };
    let known = store.take();
    let fresh = Store {
        location: location.clone(),
        user: None,
        password: None,
        database: 0,
        prefix: "rategate".to_owned(),
        budget: DEFAULT_BUDGET,
        queue: DEFAULT_QUEUE,
        nodes: NonZeroU32::MIN,
    };
    let known = known.unwrap_or(fresh);
    *store = Some(Store {
        location,
        user: url.user.or(known.user),
        password: url.password.map(Secret::new).or(known.password),
        database: url.database.unwrap_or(known.database),
        ..known
    });
    Ok(())
}

fn is_same_login(one: &StoreUrl, other: &StoreUrl) -> bool {
    (&one.user, &one.password, one.database) == (&other.user, &other.password, other.database)
}

fn with_limits(limits: Limits, table: &LimitsTable) -> Limits {
    let time = |text: &Option<Text<Duration>>, known| text.as_ref().map_or(known, |time| time.0);
    Limits {
        frame_bytes: table.frame.map_or(limits.frame_bytes, |size| size.0),
        header_bytes: table.header.map_or(limits.header_bytes, |size| size.0),
        body_bytes: table.body.map_or(limits.body_bytes, |size| size.0),
        streams: table.streams.map_or(limits.streams, NonZeroU32::get),
        connections: table.connections.map_or(limits.connections, NonZeroUsize::get),
        connections_per_address: table
            .connections_per_address
            .map_or(limits.connections_per_address, NonZeroUsize::get),
        idle: time(&table.idle, limits.idle),
        header_time: time(&table.header_time, limits.header_time),
    }
}

/// Returns `true` if a store's keys may have this prefix.
pub(crate) fn is_prefix(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=32).contains(&text.len()) && text.bytes().all(is_plain)
}

fn secret(text: &SecretText) -> Result<Secret, String> {
    let not_empty = |text: String| {
        if text.is_empty() {
            return Err("a secret of no characters".to_owned());
        }
        Ok(Secret::new(text))
    };
    match text {
        SecretText::Value(value) => not_empty(value.clone()),
        SecretText::Elsewhere(location) => match (&location.file, &location.env, &location.value) {
            (Some(path), None, None) => secret_file(path),
            (None, Some(name), None) => match std::env::var(name) {
                Ok(value) => not_empty(value),
                Err(_) => Err(format!("the variable {name} is not set, or no text")),
            },
            (None, None, Some(value)) => not_empty(value.clone()),
            _ => Err("one of value, file and env".to_owned()),
        },
    }
}

/// Reads a secret from a file, without the final line break.
pub(crate) fn secret_file(path: &Path) -> Result<Secret, String> {
    let invalid = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let about = std::fs::metadata(path).map_err(|error| invalid(&error))?;
    if !about.is_file() || about.len() > MAX_SECRET_BYTES {
        return Err(invalid(&"not a file of at most 64 KiB"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| invalid(&error))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(invalid(&"it is empty")),
        text => Ok(Secret::new(text.to_owned())),
    }
}
