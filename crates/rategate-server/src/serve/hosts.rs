//! The protocol, engine and limits of each listener.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rategate::MonotonicClock;

use super::front::Front;
use super::place::{Place, Tallied};
use super::web::{Parts, Web};
use crate::config::settings;
use crate::engine::Engine;
use crate::net::{self, Access, Bound, Caps, Door, Limits};
use crate::observe;
use crate::protocol::grpc::{self, Rls};
use crate::protocol::http::{self, Api, ConnectionLimits};
use crate::protocol::resp::{Bounds, Resp};
use crate::protocol::rls;

/// A task that accepts connections at one listener until the shutdown begins.
pub(super) type Host = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl Front {
    /// Returns the accepting tasks, one per listener.
    pub(super) fn hosts(&self, places: Vec<Place>) -> io::Result<Vec<Host>> {
        let server = &self.settings.server;
        let limits = limits(server);
        let caps = Caps::new(limits.connections, limits.connections_per_address);
        let access = server.token.as_ref().map(|token| Access::token(token.expose().as_bytes()));
        let access = access.unwrap_or_default();
        let bounds = Bounds { frame_bytes: server.limits.frame_bytes, ..Bounds::default() };
        let resp =
            Resp::new(self.asked_by(observe::Protocol::Resp), access.clone(), bounds, limits);
        let rls = self.rls(&access);
        let web = self.web(&access, rls.clone(), limits);
        let mut hosts: Vec<Host> = Vec::new();
        let guesses = net::Guesses::default();
        for place in places {
            let tally = Tallied::of(&place, &self.observe);
            let Place { protocol, bound, tls, token_required } = place;
            let guard = self.guard(&bound, tls.is_some());
            let door = Door {
                tls,
                token_required,
                caps: caps.clone(),
                guesses: guesses.clone(),
                limits,
                drain: self.drainer.drain(),
                tally: Arc::new(tally),
            };
            hosts.push(match protocol {
                "resp" => Box::pin(net::accept(bound, door, resp.clone(), &self.workers)?),
                "grpc" => Box::pin(net::accept(bound, door, rls.clone(), &self.workers)?),
                _ => Box::pin(net::accept(bound, door, web.behind(guard), &self.workers)?),
            });
        }
        Ok(hosts)
    }

    /// Returns the guard that keeps pages of other sites out of a listener.
    ///
    /// A listener reachable from other machines has names that the server does not know. With TLS,
    /// a request under a name that is not the certificate's fails. No page can reach a socket in
    /// the file system.
    fn guard(&self, bound: &Bound, is_tls: bool) -> http::Guard {
        let is_local = match bound.address() {
            net::Address::Tcp(at) => at.ip().to_canonical().is_loopback(),
            net::Address::Unix { .. } => false,
        };
        http::Guard::new(&self.settings.http.hosts, is_local && !is_tls)
    }

    /// Returns the engine for a protocol, traced if spans are sent.
    fn asked_by(&self, protocol: observe::Protocol) -> Engine<MonotonicClock> {
        #[cfg(feature = "otlp")]
        if let Some(spans) = &self.spans {
            return self.engine.traced(spans.of(protocol));
        }
        // Without spans, all protocols use one engine.
        let _ = protocol;
        self.engine.clone()
    }

    fn rls(&self, access: &Access) -> Rls<Engine<MonotonicClock>> {
        let server = &self.settings.server;
        let settings = grpc::Settings {
            most_message: server.limits.body_bytes,
            most_wait: server.limits.header_time,
            most_streams: server.limits.streams,
            most_head: server.limits.header_bytes,
            options: self.told(),
        };
        let engine = self.asked_by(observe::Protocol::Grpc);
        Rls::new(engine, access.clone(), self.health.clone(), settings)
    }

    /// Returns the options of replies to Envoy.
    const fn told(&self) -> rls::Options {
        rls::Options { headers: self.settings.grpc.headers, shadow: self.settings.grpc.shadow }
    }

    fn web(&self, access: &Access, rls: Rls<Engine<MonotonicClock>>, limits: Limits) -> Web {
        let server = &self.settings.server;
        let is_ready = Arc::clone(&self.is_ready);
        let options = http::Options {
            access: access.clone(),
            ready: Arc::new(move || is_ready.load(Ordering::Acquire)),
            fields: self.settings.http.headers.iter().map(|dialect| told(*dialect)).collect(),
            proxies: http::Proxies::in_networks(self.settings.http.trusted_proxies.clone()),
            most_body_bytes: server.limits.body_bytes,
            ..http::Options::default()
        };
        let engine = self.asked_by(observe::Protocol::Http);
        Web::new(Parts {
            engine: engine.clone(),
            api: Api::new(engine, options),
            rls,
            admin: self.admin.clone(),
            access: access.clone(),
            observe: Arc::clone(&self.observe),
            limits: ConnectionLimits {
                head_bytes: server.limits.header_bytes,
                arrival: limits.arrival,
                idle: limits.idle,
                unread: limits.unread,
                linger: limits.linger,
                streams: server.limits.streams,
                ..ConnectionLimits::default()
            },
            most_body_bytes: server.limits.body_bytes,
            options: self.told(),
        })
    }
}

const fn told(dialect: settings::Dialect) -> rategate_tower::headers::Dialect {
    use rategate_tower::headers::{Dialect, Reset};
    match dialect {
        settings::Dialect::Current => Dialect::Current,
        settings::Dialect::Older => Dialect::Older,
        settings::Dialect::Legacy => Dialect::Envoy,
        settings::Dialect::LegacyEpoch => Dialect::Legacy(Reset::Unix),
    }
}

fn limits(server: &settings::Server) -> Limits {
    Limits {
        connections: server.limits.connections,
        connections_per_address: server.limits.connections_per_address,
        idle: server.limits.idle,
        arrival: server.limits.header_time,
        ..Limits::default()
    }
}
