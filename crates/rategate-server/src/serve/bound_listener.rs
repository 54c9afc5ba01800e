//! Bound listeners, and the checks before binding.

use super::{Listening, StartError};
use crate::config::Settings;
use crate::config::settings::{Listener, SOCKET_MODE, Server};
use crate::net::{self, Bound, Tls};
use crate::observe;

pub(super) struct BoundListener {
    pub(super) protocol: &'static str,
    pub(super) bound: Bound,
    pub(super) tls: Option<Tls>,
    pub(super) token_required: bool,
}

impl BoundListener {
    /// Returns the protocol as the observer knows it.
    pub(super) fn observed_protocol(&self) -> observe::Protocol {
        match self.protocol {
            "resp" => observe::Protocol::Resp,
            "grpc" => observe::Protocol::Grpc,
            _ => observe::Protocol::Http,
        }
    }

    pub(super) fn listening(&self) -> Listening {
        Listening {
            protocol: self.protocol,
            address: self.bound.address().clone(),
            tls: self.tls.is_some(),
        }
    }
}

/// Binds a listener, if the token and certificates that it needs are configured.
pub(super) fn bound_listener(
    settings: &Settings,
    protocol: &'static str,
    listener: &Listener,
) -> Result<BoundListener, StartError> {
    let server = &settings.server;
    let address = || listener.address.clone();
    if server.is_open(listener) && !server.insecure {
        return Err(StartError::Open { protocol, address: address() });
    }
    // It is required for every call.
    let token_required = server.requires_token(listener);
    if token_required && server.token.is_none() {
        return Err(StartError::NoToken { protocol, address: address() });
    }
    let tls = match (server.uses_tls(listener), &server.tls) {
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
    warn_of_exposure(server, protocol, listener);
    let bound = net::bind(&listener.address, listener.mode.unwrap_or(SOCKET_MODE))
        .map_err(|error| StartError::Bind { protocol, address: address(), error })?;
    Ok(BoundListener { protocol, bound, tls, token_required })
}

/// Warns of a listener that other machines can reach without authentication, or that carries the
/// token unencrypted.
fn warn_of_exposure(server: &Server, protocol: &str, listener: &Listener) {
    let address = &listener.address;
    if server.is_open(listener) {
        tracing::warn!(
            protocol,
            %address,
            "any machine that reaches this address may take, reset and read everything (insecure = \
             true): set a token, require client certificates, or listen on 127.0.0.1"
        );
    } else if address.is_public() && server.token.is_some() && !server.uses_tls(listener) {
        tracing::warn!(
            protocol,
            %address,
            "the token crosses the network unencrypted: use TLS (tls = true, [server.tls]), or \
             restrict the network to machines that may know the token"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::config::settings::Secret;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the log of a listener at an address that no machine has, so that nothing listens.
    fn warned(token: bool, insecure: bool, address: &str) -> String {
        let mut settings = Settings::default();
        settings.server.insecure = insecure;
        settings.server.token = token.then(|| Secret::new("s3cret".to_owned()));
        let listener = Listener {
            auth: Some(token),
            ..Listener::plain(net::Address::Tcp(address.parse().unwrap()))
        };
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        tracing::subscriber::with_default(subscriber.finish(), || {
            drop(bound_listener(&settings, "grpc", &listener));
        });
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_start_warns_of_public_listeners() {
        let open = warned(false, true, "192.0.2.1:8081");
        assert!(open.contains("WARN") && open.contains("any machine that reaches"), "{open}");
        let plain = warned(true, false, "192.0.2.1:8081");
        assert!(plain.contains("WARN") && plain.contains("unencrypted"), "{plain}");
        assert!(!plain.contains("s3cret") && plain.contains("192.0.2.1:8081"), "{plain}");
        assert_eq!(warned(true, true, "127.0.0.1:0"), "");
        assert_eq!(warned(false, false, "192.0.2.1:8081"), "", "it is refused");
    }
}
