//! The protocol, engine and limits of each listener.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rategate::MonotonicClock;

use super::bound_listener::BoundListener;
use super::supervisor::Supervisor;
use super::web::{Web, WebServices};
use crate::config::settings;
use crate::engine::Engine;
use crate::net::{self, Access, Bound, Caps, Limits, ListenerConfig};
use crate::observe;
use crate::protocol::grpc::{self, Grpc};
use crate::protocol::http::{self, Api, ConnectionLimits};
use crate::protocol::resp::{Bounds, Resp};
use crate::protocol::rls;

/// A task that accepts connections at one listener until the shutdown begins.
pub(super) type ListenerTask = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl Supervisor {
    /// Returns the accepting tasks, one per listener.
    pub(super) fn listeners(
        &self,
        bound_listeners: Vec<BoundListener>,
    ) -> io::Result<Vec<ListenerTask>> {
        let server = &self.settings.server;
        let limits = limits(server);
        let caps = Caps::new(limits.connections, limits.connections_per_address);
        let access = server.token.as_ref().map(|token| Access::token(token.expose().as_bytes()));
        let access = access.unwrap_or_default();
        let bounds = Bounds { frame_bytes: server.limits.frame_bytes, ..Bounds::default() };
        let resp =
            Resp::new(self.engine_for(observe::Protocol::Resp), access.clone(), bounds, limits);
        let web = self.web(&access, limits);
        let mut listeners: Vec<ListenerTask> = Vec::new();
        let guesses = net::Guesses::default();
        for bound_listener in bound_listeners {
            let observed = bound_listener.observed_protocol();
            let BoundListener { protocol, bound, tls, token_required } = bound_listener;
            let address = bound.address().to_string();
            let tally = self.observe.status().listener(observed, &address, token_required);
            let guard = self.guard(&bound, tls.is_some());
            let config = ListenerConfig {
                tls,
                token_required,
                caps: caps.clone(),
                guesses: guesses.clone(),
                limits,
                drain: self.drainer.drain(),
                tally,
            };
            listeners.push(match protocol {
                "resp" => Box::pin(net::accept(bound, config, resp.clone(), &self.workers)?),
                "grpc" => Box::pin(net::accept(bound, config, web.only_grpc(), &self.workers)?),
                _ => Box::pin(net::accept(bound, config, web.behind(guard), &self.workers)?),
            });
        }
        Ok(listeners)
    }

    /// Returns the guard that keeps pages of other sites out of a listener.
    ///
    /// A listener reachable from other machines has names that the server does not know. With TLS,
    /// a request under a name that is not the certificate's fails. No page can reach a socket in
    /// the file system.
    fn guard(&self, bound: &Bound, is_tls: bool) -> http::Guard {
        let address = bound.address();
        let is_local = matches!(address, net::Address::Tcp(_)) && !address.is_public();
        http::Guard::new(&self.settings.http.hosts, is_local && !is_tls)
    }

    /// Returns the engine for a protocol, which counts the items that no rule matches. It is traced
    /// if spans are sent.
    fn engine_for(&self, protocol: observe::Protocol) -> Engine<MonotonicClock> {
        let unmatched = Arc::clone(self.observe.status().unmatched(protocol));
        let engine = self.engine.counting_unmatched(unmatched);
        #[cfg(feature = "otlp")]
        if let Some(spans) = &self.spans {
            return engine.traced(spans.of(protocol));
        }
        engine
    }

    fn grpc(&self) -> Grpc {
        let server = &self.settings.server;
        let settings = grpc::Settings {
            max_message_bytes: server.limits.body_bytes,
            max_wait: server.limits.header_time,
            options: self.rls_options(observe::Protocol::Grpc),
        };
        let engine = self.engine_for(observe::Protocol::Grpc);
        Grpc::new(engine, &self.health, settings)
    }

    /// Returns the options of replies to Envoy over a protocol.
    fn rls_options(&self, protocol: observe::Protocol) -> rls::Options {
        let grpc = &self.settings.grpc;
        let names = || rls::HeaderNames {
            limit: grpc.limit_header.as_str().into(),
            remaining: grpc.remaining_header.as_str().into(),
            reset: grpc.reset_header.as_str().into(),
        };
        rls::Options {
            headers: grpc.headers.then(|| Arc::new(names())),
            shadow: grpc.shadow,
            quota: grpc.quota,
            dynamic_metadata: grpc.dynamic_metadata,
            verbs: grpc.verbs,
            ignored_verbs: Arc::clone(self.observe.status().ignored_verbs(protocol)),
        }
    }

    fn web(&self, access: &Access, limits: Limits) -> Web {
        let server = &self.settings.server;
        let is_ready = Arc::clone(&self.is_ready);
        let options = http::Options {
            ready: Arc::new(move || is_ready.load(Ordering::Acquire)),
            fields: self
                .settings
                .http
                .headers
                .iter()
                .map(|dialect| header_dialect(*dialect))
                .collect(),
            proxies: http::Proxies::in_networks(self.settings.http.trusted_proxies.clone()),
            max_body_bytes: server.limits.body_bytes,
            ..http::Options::default()
        };
        let engine = self.engine_for(observe::Protocol::Http);
        let envoy = self.rls_options(observe::Protocol::Http);
        let routes = http::routes(engine.clone(), options)
            .merge(http::envoy_routes(engine, envoy, server.limits.body_bytes))
            .merge(self.admin.routes());
        Web::new(WebServices {
            api: Api::of(routes),
            grpc: self.grpc(),
            access: access.clone(),
            observe: Arc::clone(&self.observe),
            limits: ConnectionLimits {
                head_bytes: server.limits.header_bytes,
                arrival: limits.arrival,
                idle: limits.idle,
                unread: limits.unread,
                linger: limits.linger,
                streams: server.limits.streams.get(),
                ..ConnectionLimits::default()
            },
        })
    }
}

const fn header_dialect(dialect: settings::Dialect) -> rategate_tower::headers::Dialect {
    use rategate_tower::headers::Dialect;
    match dialect {
        settings::Dialect::Current => Dialect::Current,
        settings::Dialect::Legacy => Dialect::Legacy,
    }
}

fn limits(server: &settings::Server) -> Limits {
    Limits {
        connections: server.limits.connections.get(),
        connections_per_address: server.limits.connections_per_address.get(),
        idle: server.limits.idle,
        arrival: server.limits.header_time,
        ..Limits::default()
    }
}
