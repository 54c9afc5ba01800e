//! The rules of a layer: the way of a request from its head to a decision.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Response, response};
use rategate::deny::DenyList;
use rategate::{Share, adaptive};

use crate::gate::{Gate, KeyStatus, LimitRequest, Outcome, Pass, refused};
use crate::headers::{Followed, Headers, write_retry_after};
use crate::key::{Key, KeySource, LimitSource};
use crate::refusal::{Answers, Reason, Refusal};

/// The handling of requests without a key, for the limit or for the deny list.
///
/// By default, a request whose client has left the key out shares a limit. A request with [more
/// than one](KeySource::is_ambiguous) key is refused with a 400. If the [server](KeySource::lacks)
/// has left the key out, the request is refused with a 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// The request shares a key, and so a limit, with all others without a key. It is on no deny
    /// list.
    Share,
    /// The request is refused with a 400.
    Refuse,
    /// The request passes, unlimited, and is on no deny list. Only for keys that a client cannot
    /// leave out.
    Pass,
}

/// A function from a request to its number of permits.
pub(crate) type Cost = Arc<dyn Fn(&Parts) -> u64 + Send + Sync>;

/// A function from a request to the share of the limit that it may fill.
pub(crate) type ShareOf = Arc<dyn Fn(&Parts) -> Share + Send + Sync>;

/// A function that returns `true` if a response refunds the permits of its request.
pub(crate) type Returns = Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>;

/// A function that returns what a response says about the service's load.
pub(crate) type Classify = Arc<dyn Fn(&response::Parts) -> adaptive::Outcome + Send + Sync>;

/// A deny list, with the source of its keys.
#[derive(Clone)]
pub(crate) struct Denied {
    pub(crate) list: DenyList<Key>,
    pub(crate) source: Arc<dyn KeySource>,
}

/// The configuration that all services of a layer share.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) denied: Option<Denied>,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) source: Option<LimitSource>,
    /// The configured handling of requests without a key.
    pub(crate) missing: Option<OnMissingKey>,
    /// `true` once the log has reported the missing extension.
    pub(crate) has_reported: Arc<AtomicBool>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) cost: Option<Cost>,
    pub(crate) share: Option<ShareOf>,
    pub(crate) returns: Option<Returns>,
    pub(crate) classify: Option<Classify>,
    pub(crate) headers: Option<(Headers, Arc<Followed>)>,
    pub(crate) answers: Answers,
}

impl Rules {
    pub(crate) fn decide(&self, head: &Parts) -> Pass {
        let listed_for = match self.listed_for(head) {
            Ok(listed_for) => listed_for,
            Err(reason) => return Pass::Now(refused(reason)),
        };
        let limit_request = self.limit_request(head);
        if let Some(wait) = listed_for {
            // The request has to satisfy both.
            let limit =
                limit_request.ok().and_then(|(limit_request, _)| self.gate.wait(limit_request));
            let refusal = Refusal::new(Reason::OnDenyList, Some(wait).max(limit));
            return Pass::Now(Outcome::Refused(refusal, None));
        }
        match limit_request {
            Ok((limit_request, name)) => self.gate.pass(limit_request, name),
            Err(outcome) => Pass::Now(outcome),
        }
    }

    /// Returns the time for which the client of a request is still on the deny list.
    fn listed_for(&self, head: &Parts) -> Result<Option<Duration>, Reason> {
        let Some(denied) = &self.denied else { return Ok(None) };
        match denied.source.key(head) {
            Some(key) => Ok(denied.list.denied_for(&key)),
            None => self.without_key(&*denied.source, head).map(|()| None),
        }
    }

    /// Returns the limit's request with the name of its key, or the outcome of a request without a
    /// decision.
    fn limit_request(&self, head: &Parts) -> Result<(LimitRequest, Vec<u8>), Outcome> {
        let mut client = None;
        if let Some(source) = &self.source {
            client = source.client(head);
            if client.is_none() {
                self.without_key(source.keys(), head).map_err(refused)?;
                if self.missing == Some(OnMissingKey::Pass) {
                    return Err(Outcome::Passed(None, None));
                }
            }
        }
        let (key, name) = client.unwrap_or_else(|| (Key::shared_key(), Vec::new()));
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        if cost == 0 {
            // A request without a cost creates no key and no entry in a table.
            return Err(Outcome::Passed(None, None));
        }
        let (max_wait, reports_status) = (self.max_wait, self.headers.is_some());
        let share = self.share.as_ref().map_or(Share::WHOLE, |share| share(head));
        let may_return = self.returns.is_some();
        Ok((LimitRequest { key, cost, share, max_wait, reports_status, may_return }, name))
    }

    /// Lets a request without a key proceed, or returns the reason to refuse it: for the limit and
    /// for the deny list alike.
    fn without_key(&self, source: &dyn KeySource, head: &Parts) -> Result<(), Reason> {
        match self.missing {
            Some(OnMissingKey::Share | OnMissingKey::Pass) => Ok(()),
            _ if source.is_ambiguous(head) => Err(Reason::AmbiguousKey),
            Some(OnMissingKey::Refuse) => Err(Reason::NoKey),
            None if self.lacks(source, head) => Err(Reason::KeyNotProvided),
            None => Ok(()),
        }
    }

    /// Returns `true` if the server has left the key out. The log reports that once.
    fn lacks(&self, source: &dyn KeySource, head: &Parts) -> bool {
        let lacking = source.lacks(head);
        if let Some(extension) = lacking
            && !self.has_reported.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                extension,
                "requests have no extension `{extension}`, which tells clients apart, and are \
                 answered with 500: add it before the rate limit layer (axum adds `ConnectInfo` \
                 by `into_make_service_with_connect_info`), or configure `RateLimitLayer::missing`"
            );
        }
        lacking.is_some()
    }

    /// Returns what a response says about the service's load.
    pub(crate) fn outcome(&self, head: &response::Parts) -> adaptive::Outcome {
        match (&self.classify, head.status.as_u16()) {
            (Some(classify), _) => classify(head),
            (None, 429 | 503 | 504 | 529) => adaptive::Outcome::Dropped,
            (None, _) => adaptive::Outcome::Served,
        }
    }

    pub(crate) fn returns(&self, head: &response::Parts) -> bool {
        self.returns.as_ref().is_some_and(|returns| returns(head))
    }

    pub(crate) fn answer(
        &self,
        refusal: Refusal,
        key_status: Option<KeyStatus>,
        head: &Parts,
    ) -> Response<String> {
        let refusal = match &self.headers {
            Some((headers, _)) => refusal.under(headers.policy().name()),
            None => refusal,
        };
        let mut response = self.answers.answer(&refusal, head);
        if let Some(wait) = refusal.retry_after() {
            write_retry_after(wait, response.headers_mut());
        }
        if let Some(key_status) = key_status {
            self.write_status(key_status, response.headers_mut());
        }
        response
    }

    /// Writes the status of the client's limit.
    pub(crate) fn write_status(&self, key_status: KeyStatus, to: &mut HeaderMap) {
        let Some((headers, followed)) = &self.headers else { return };
        let (gate, given) = (&self.gate, headers.policy());
        let tier = || gate.tier(&key_status.key);
        let newer = followed.policy(gate.changes(), given, tier, |tier| gate.numbers(tier));
        let policy = newer.as_deref().unwrap_or(given);
        headers.write_of(policy, key_status.quota_status, to);
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("denied", &self.denied.as_ref().map(|denied| &denied.list))
            .field("is_keyed", &self.source.is_some())
            .field("missing", &self.missing)
            .field("longest_wait", &self.max_wait)
            .field("headers", &self.headers.as_ref().map(|(headers, _)| headers))
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}
