//! Settings while they are assembled from files, the environment and flags, and the checks of the
//! result.

use std::collections::{BTreeMap, HashMap};

use super::error::Problem;
use super::settings::{Address, Listener, SOCKET_MODE, Settings, Store};
use super::source::SourceLocation;

/// The maximum length of the service's name in spans, in bytes.
const MAX_SERVICE_BYTES: usize = 256;

/// Settings that are not yet checked as a whole.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// All settings but the listeners and the store.
    pub(crate) settings: Settings,
    /// The listeners of each protocol; the defaults apply where there is no entry.
    pub(crate) listeners: BTreeMap<Protocol, Vec<ListenerDraft>>,
    /// The value of `auth` for listeners without their own.
    pub(crate) auth: Option<bool>,
    /// The store; it requires an address.
    pub(crate) store: Option<Store>,
    /// `true` if TLS is for gRPC listeners only, where a listener has no setting of its own.
    pub(crate) is_tls_of_grpc: bool,
    /// `true` if an untrusted client wrote it: then no file or variable that it names is read.
    pub(crate) is_foreign: bool,
    /// The position of each setting that was given, by its key.
    pub(crate) setting_sources: HashMap<&'static str, SettingSource>,
}

/// A listener before its defaults are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerDraft {
    pub(crate) address: Address,
    pub(crate) auth: Option<bool>,
    pub(crate) tls: Option<bool>,
    pub(crate) mode: Option<u32>,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Resp,
    Http,
    Grpc,
}

/// The source of a setting.
#[derive(Clone, Debug)]
pub(crate) enum SettingSource {
    File(SourceLocation),
    /// The name of a variable or a flag.
    Outside(String),
}

impl Protocol {
    pub(crate) const ALL: [Self; 3] = [Self::Resp, Self::Http, Self::Grpc];

    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Resp => "server.resp",
            Self::Http => "server.http",
            Self::Grpc => "server.grpc",
        }
    }

    /// Returns the listeners of this protocol.
    fn of(self, settings: &mut Settings) -> &mut Vec<Listener> {
        match self {
            Self::Resp => &mut settings.server.resp,
            Self::Http => &mut settings.server.http,
            Self::Grpc => &mut settings.server.grpc,
        }
    }
}

impl ListenerDraft {
    /// Creates a draft with the listener's address only.
    fn of(listener: &Listener) -> Self {
        Self { address: listener.address.clone(), auth: None, tls: None, mode: None }
    }
}

impl Draft {
    /// Creates a problem about the setting `key`, given or missing.
    fn problem(&self, key: &str, message: String) -> Problem {
        // A setting that is not given itself is reported at its table.
        let above = key.rmatch_indices('.').map(|(at, _)| key.get(..at).unwrap_or(key));
        match std::iter::once(key).chain(above).find_map(|key| self.setting_sources.get(key)) {
            Some(SettingSource::File(location)) => Problem::at(location.clone(), message),
            Some(SettingSource::Outside(name)) => Problem::nowhere(format!("{name}: {message}")),
            None => Problem::nowhere(format!("{key}: {message}")),
        }
    }

    /// Checks the settings together and returns them.
    pub(crate) fn finish(mut self, problems: &mut Vec<Problem>) -> Settings {
        self.settings.store = self.store.take();
        for protocol in Protocol::ALL {
            let given = self.listeners.remove(&protocol);
            let known = protocol.of(&mut self.settings);
            let drafts = given.unwrap_or_else(|| known.iter().map(ListenerDraft::of).collect());
            let listeners =
                drafts.into_iter().map(|draft| self.listener(protocol, draft)).collect();
            *protocol.of(&mut self.settings) = listeners;
        }
        self.check_certificate(problems);
        self.check_listeners(problems);
        if let Some(threads) = self.settings.server.threads
            && threads.get() > 1024
        {
            problems.push(self.problem("server.threads", "at most 1024 threads".to_owned()));
        }
        self.check_tracing(cfg!(feature = "otlp"), problems);
        self.settings
    }

    fn listener(&self, protocol: Protocol, draft: ListenerDraft) -> Listener {
        let ListenerDraft { address, auth, tls, mode } = draft;
        let is_tcp = matches!(address, Address::Tcp(_));
        let by_default = || address.is_public() && self.settings.server.token.is_some();
        let auth = auth.or(self.auth).unwrap_or_else(by_default);
        let speaks = !self.is_tls_of_grpc || protocol == Protocol::Grpc;
        let tls = tls.unwrap_or(is_tcp && speaks && self.settings.server.tls.is_some());
        Listener { address, auth, tls, mode: mode.unwrap_or(SOCKET_MODE) }
    }

    /// Checks the settings of spans. `is_built_in` is `true` if this build can send spans.
    fn check_tracing(&self, is_built_in: bool, problems: &mut Vec<Problem>) {
        let tracing = &self.settings.tracing;
        if tracing.otlp.is_some() && !is_built_in {
            let message = "spans cannot be sent: this rategate is built without OTLP".to_owned();
            let help = "build it with --features otlp, or leave this out";
            problems.push(self.problem("tracing.otlp", message).help(help));
        }
        if !(1..=MAX_SERVICE_BYTES).contains(&tracing.service.len()) {
            let message = format!("a service has a name of 1 to {MAX_SERVICE_BYTES} bytes");
            problems.push(self.problem("tracing.service", message));
        }
    }

    /// Checks that certificate and private key are given together.
    fn check_certificate(&self, problems: &mut Vec<Problem>) {
        let Some(tls) = &self.settings.server.tls else { return };
        let missing = match (tls.cert.as_os_str().is_empty(), tls.key.as_os_str().is_empty()) {
            (false, false) => return,
            (true, _) => "server.tls.cert",
            (false, true) => "server.tls.key",
        };
        let mut keys =
            ["server.tls", "server.tls.cert", "server.tls.key", "server.tls.client_ca"].into_iter();
        let given = keys.find(|key| self.setting_sources.contains_key(key)).unwrap_or(missing);
        let message = format!("TLS needs a certificate and its key, but {missing} is missing");
        problems.push(self.problem(given, message));
    }

    fn check_listeners(&self, problems: &mut Vec<Problem>) {
        let server = &self.settings.server;
        let mut seen = HashMap::new();
        let listeners = [
            (Protocol::Resp, &server.resp),
            (Protocol::Http, &server.http),
            (Protocol::Grpc, &server.grpc),
        ];
        let all = listeners
            .into_iter()
            .flat_map(|(protocol, all)| all.iter().map(move |one| (protocol, one)));
        for (protocol, listener) in all {
            let key = protocol.key();
            let address = &listener.address;
            if listener.tls && server.tls.is_none() {
                let problem =
                    self.problem(key, format!("{address} uses TLS, but there is no certificate"));
                problems.push(problem.help("give [server.tls] cert and key"));
            }
            if listener.tls && matches!(address, Address::Unix(_)) {
                problems.push(
                    self.problem(key, format!("{address} is a file, and TLS is for networks")),
                );
            }
            if listener.auth && server.token.is_none() {
                let given =
                    if self.setting_sources.contains_key(key) { key } else { "server.auth" };
                let problem = self
                    .problem(given, format!("calls to {address} need a token, and there is none"));
                problems.push(problem.help("give [server] token, or RATEGATE_SERVER_TOKEN"));
            }
            if server.is_open(listener) && !server.insecure {
                let message = format!(
                    "{address} can be reached by other machines, and clients are not authenticated"
                );
                let help = "give a token or tls.client_ca under [server], \
                    or set insecure = true to accept any client";
                problems.push(self.problem(key, message).help(help));
            }
            let is_any_port = matches!(address, Address::Tcp(address) if address.port() == 0);
            if !is_any_port && let Some(other) = seen.insert(address, key) {
                problems
                    .push(self.problem(key, format!("{address} is also an address of {other}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::Receiver;

    #[test]
    fn a_span_receiver_is_refused_without_otlp_support() {
        let mut draft = Draft::default();
        let refused = |draft: &Draft, is_built_in| {
            let mut problems = Vec::new();
            draft.check_tracing(is_built_in, &mut problems);
            problems.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(refused(&draft, false).is_empty());
        let receiver = Receiver { host: "h".into(), port: 4318, path: String::new() };
        draft.settings.tracing.otlp = Some(receiver);
        assert!(refused(&draft, true).is_empty());
        draft
            .setting_sources
            .insert("tracing.otlp", SettingSource::Outside("RATEGATE_TRACING_OTLP".to_owned()));
        let refused = refused(&draft, false);
        assert!(refused[0].contains("RATEGATE_TRACING_OTLP"), "{refused:?}");
        assert!(refused[0].contains("without OTLP"), "{refused:?}");
    }
}
