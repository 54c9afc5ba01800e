//! Places to listen at: what has to hold before there is one, and who counts what comes in there.

use std::sync::Arc;

use super::{Listening, StartError};
use crate::config::Settings;
use crate::config::settings::{self, Listener};
use crate::net::{self, Bound, Tally, Tls};
use crate::observe::{self, Observe};

/// A listener that is bound.
pub(super) struct Place {
    pub(super) protocol: &'static str,
    pub(super) bound: Bound,
    pub(super) tls: Option<Tls>,
    pub(super) token_required: bool,
}

impl Place {
    pub(super) fn listening(&self) -> Listening {
        Listening {
            protocol: self.protocol,
            address: self.bound.address().clone(),
            tls: self.tls.is_some(),
        }
    }
}

/// Binds a listener, if what it needs is there.
pub(super) fn place(
    settings: &Settings,
    protocol: &'static str,
    listener: &Listener,
) -> Result<Place, StartError> {
    let server = &settings.server;
    let address = || listener.address.clone();
    if server.is_open(listener) && !server.insecure {
        return Err(StartError::Open { protocol, address: address() });
    }
    if listener.auth && server.token.is_none() {
        return Err(StartError::NoToken { protocol, address: address() });
    }
    let tls = match (listener.tls, &server.tls) {
        (false, _) => None,
        (true, None) => return Err(StartError::NoCertificate { protocol, address: address() }),
        (true, Some(tls)) => {
            let offers: &[&[u8]] = match protocol {
                "http" => &[b"h2", b"http/1.1"],
                "grpc" => &[b"h2"],
                _ => &[],
            };
            Some(Tls::read(&tls.cert, &tls.key, tls.client_ca.as_deref(), offers)?)
        }
    };
    // Whoever reaches an open listener from outside has to show the token for everything.
    let token_required = listener.auth;
    let bound = net::bind(&at(listener)).map_err(|error| StartError::Bind {
        protocol,
        address: address(),
        error,
    })?;
    Ok(Place { protocol, bound, tls, token_required })
}

fn at(listener: &Listener) -> net::Address {
    match &listener.address {
        settings::Address::Tcp(address) => net::Address::Tcp(*address),
        settings::Address::Unix(path) => {
            net::Address::Unix { path: path.clone(), mode: listener.mode }
        }
    }
}

/// Tells whoever looks on of connections.
pub(super) struct Tallied {
    pub(super) observe: Arc<Observe>,
    pub(super) protocol: observe::Protocol,
}

impl Tally for Tallied {
    fn opened(&self) {
        self.observe.status().opened(self.protocol);
    }

    fn closed(&self) {
        self.observe.status().closed(self.protocol);
    }

    fn refused(&self) {
        self.observe.status().refused(self.protocol);
    }
}

pub(super) fn spoken(protocol: &str) -> observe::Protocol {
    match protocol {
        "resp" => observe::Protocol::Resp,
        "grpc" => observe::Protocol::Grpc,
        _ => observe::Protocol::Http,
    }
}
