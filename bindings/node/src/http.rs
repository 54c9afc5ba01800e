//! Parts of HTTP servers and clients: names of clients, and paced requests.

use std::time::{Duration, SystemTime};

use napi::bindgen_prelude::{BigInt, Either};
use napi_derive::napi;
use rategate::adaptive::Outcome;
use rategate_ffi::http::{self, Tokens, Trust, hints, trusted_networks};

use crate::failure::{Result, invalid};
use crate::number::{double, duration, instant_ns, permits, whole};

/// The names of a server's clients.
#[napi]
#[derive(Debug)]
pub struct ClientNames(http::ClientNames);

#[napi]
impl ClientNames {
    /// Creates names by the peer, or behind trusted proxies: a number of them, or networks.
    #[napi(constructor, catch_unwind)]
    pub fn new(
        trust: Option<Either<f64, Vec<String>>>,
        field: Option<String>,
        group_v4: u8,
        group_v6: u8,
    ) -> Result<Self> {
        let groups = [group_v4, group_v6];
        let trust = match trust {
            None => return http::ClientNames::of_peers(groups).map(Self).map_err(invalid),
            // More count as many.
            Some(Either::A(hops)) => {
                Trust::Hops(whole(hops).and_then(|hops| hops.try_into().ok()).unwrap_or(u8::MAX))
            }
            Some(Either::B(networks)) => {
                trusted_networks(networks.iter().map(String::as_str)).map_err(invalid)?
            }
        };
        let field = field.unwrap_or_default();
        http::ClientNames::behind(trust, &field, groups).map(Self).map_err(invalid)
    }

    /// Returns the name of a request's client, by its peer and the lines of the field, joined.
    #[napi(catch_unwind)]
    pub fn name(&self, peer: Option<String>, report: Option<String>) -> Option<String> {
        self.0.name(peer.as_deref(), report.as_deref().map(str::as_bytes))
    }
}

/// The pacing of the requests to one server. Instants are milliseconds of a clock that does not go
/// back.
#[napi]
#[derive(Debug)]
pub struct Pacing(http::Pacing);

#[napi]
impl Pacing {
    #[napi(constructor, catch_unwind)]
    pub fn new(
        spreads: bool,
        jitter: Option<BigInt>,
        max_hold: Option<BigInt>,
        max_waiting: f64,
    ) -> Result<Self> {
        let waiting = usize::try_from(permits(max_waiting)?).unwrap_or(usize::MAX);
        let mut pacing = http::Pacing::new().bound_queue(waiting);
        if !spreads {
            pacing = pacing.without_spreading();
        }
        if let Some(jitter) = jitter {
            pacing = pacing.jitter(duration(&jitter)?);
        }
        if let Some(max_hold) = max_hold {
            pacing = pacing.max_hold(duration(&max_hold)?);
        }
        Ok(Self(pacing))
    }

    /// Adds a request, unless as many as may wait do already.
    #[napi(catch_unwind)]
    pub fn join(&self) -> Option<PacedRequest> {
        let request = self.0.join(Tokens::default())?;
        let max_hold = self.0.longest_hold();
        Some(PacedRequest { request: Some(request), max_hold, was_refused: false })
    }
}

/// A request from its arrival until it [leaves](Self::leave).
#[napi]
#[derive(Debug)]
pub struct PacedRequest {
    request: Option<http::PacedRequest>,
    max_hold: Duration,
    was_refused: bool,
}

#[napi]
impl PacedRequest {
    /// Starts the request, and returns 0; or returns the milliseconds until the next attempt.
    #[napi(catch_unwind)]
    pub fn start(&mut self, now: f64) -> Result<f64> {
        let now_ns = instant_ns(now)?;
        let started = self.request.as_mut().map_or(Ok(()), |request| request.start(now_ns));
        Ok(started.map_or_else(|again_ns| double(again_ns.saturating_sub(now_ns)) / 1e6, |()| 0.0))
    }

    /// Returns `false` if the request has to wait again.
    #[napi(catch_unwind)]
    pub fn send(&mut self, now: f64) -> Result<bool> {
        let now_ns = instant_ns(now)?;
        Ok(self.request.as_mut().is_some_and(|request| request.send(now_ns)))
    }

    /// Follows a response, whose fields are names and values in turn. Returns the milliseconds of
    /// the hold that it begins or extends. Where the server does not
    /// say how long, there is none unless it `guesses`.
    #[napi(catch_unwind)]
    pub fn follow(
        &mut self,
        now: f64,
        status: u32,
        fields: Vec<String>,
        guesses: bool,
    ) -> Result<Option<f64>> {
        let now_ns = instant_ns(now)?;
        let Some(request) = &mut self.request else { return Ok(None) };
        let (pairs, _) = fields.as_chunks();
        let pairs = pairs.iter().map(|[name, value]| (name.as_bytes(), value.as_bytes()));
        let status = u16::try_from(status).unwrap_or_default();
        let mut hints = hints(status, pairs, SystemTime::now(), self.max_hold);
        self.was_refused = http::outcome(status, &hints) == Outcome::Dropped;
        if hints.is_guess && !guesses {
            hints.hold = Duration::ZERO;
        }
        let hold = request.follow(now_ns, &hints);
        Ok(hold.map(|hold| hold.as_secs_f64() * 1e3))
    }

    /// Returns `true` if the response that was followed is a refusal.
    #[napi(catch_unwind)]
    pub fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// Ends the request wherever it is, and returns `true` the first time.
    #[napi(catch_unwind)]
    pub fn leave(&mut self) -> bool {
        self.request.take().is_some()
    }
}
