//! Paced clients of servers that report their limits as vendors do, over connections of the
//! loopback. A server decides by the plain list of what it let pass.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use rategate_tower::client::{PaceLayer, Tokens};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt, service_fn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vendor {
    OpenAi,
    Anthropic,
    GitHub,
    Shopify,
    Draft,
}

use Vendor::{Anthropic, Draft, GitHub, OpenAi, Shopify};

impl Vendor {
    /// Returns the quotas of requests and of tokens, if there is one, and their window.
    const fn limits(self) -> (f64, Option<f64>, f64) {
        match self {
            OpenAi => (20.0, Some(300.0), 1.0),
            Anthropic => (40.0, Some(600.0), 4.0),
            GitHub => (10.0, None, 2.0),
            Shopify => (40.0, None, 20.0),
            Draft => (10.0, Some(100.0), 1.0),
        }
    }
}

/// A server's limits, and the list of what passed: the time since 1970, and the tokens.
struct Server {
    vendor: Vendor,
    passed: Vec<(f64, f64)>,
    refused: Vec<f64>,
}

/// A limit at an instant: what remains of it, the time until its reset, and until there is one.
struct Status {
    remaining: f64,
    reset_s: f64,
    opens_s: f64,
}

impl Server {
    /// Returns the status of the limit on requests, or on tokens.
    fn status(&self, of_tokens: bool, now_s: f64) -> Option<Status> {
        let (requests, tokens, window_s) = self.vendor.limits();
        let quota = if of_tokens { tokens? } else { requests };
        let costs =
            self.passed.iter().map(|(at_s, cost)| (*at_s, if of_tokens { *cost } else { 1.0 }));
        if !matches!(self.vendor, GitHub | Draft) {
            // A bucket: the instant at which it is full.
            let full_s = costs
                .fold(0.0_f64, |full_s, (at_s, cost)| full_s.max(at_s) + cost / quota * window_s);
            let reset_s = (full_s - now_s).max(0.0);
            let remaining = (quota - reset_s / window_s * quota).floor();
            return Some(Status { remaining, reset_s, opens_s: window_s / quota });
        }
        let begin_s = if self.vendor == GitHub {
            (now_s / window_s).floor() * window_s
        } else {
            now_s - window_s
        };
        let inside: Vec<(f64, f64)> = costs.filter(|(at_s, _)| *at_s >= begin_s).collect();
        let first_s = inside.first().map_or(now_s, |(at_s, _)| *at_s);
        let from_s = if self.vendor == GitHub { begin_s } else { first_s };
        let reset_s = from_s + window_s - now_s;
        let remaining = quota - inside.iter().map(|(_, cost)| cost).sum::<f64>();
        Some(Status { remaining, reset_s, opens_s: reset_s })
    }

    /// Decides, and returns the response's status and fields.
    fn decide(&mut self, tokens: f64) -> (StatusCode, HeaderMap) {
        let now_s = since_1970_s();
        let fits = |status: &Option<Status>, cost: f64| {
            status.as_ref().is_none_or(|status| status.remaining >= cost)
        };
        let passes =
            fits(&self.status(false, now_s), 1.0) && fits(&self.status(true, now_s), tokens);
        if passes {
            self.passed.push((now_s, tokens));
        } else {
            self.refused.push(now_s);
        }
        let mut fields = Vec::new();
        for (of_tokens, unit) in [(false, "requests"), (true, "tokens")] {
            if let Some(status) = self.status(of_tokens, now_s) {
                self.report(unit, &status, now_s, &mut fields);
            }
            if !passes && let Some(status) = self.status(of_tokens, now_s) {
                fields.push(("retry-after".to_owned(), format!("{}", status.opens_s.ceil())));
            }
        }
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::try_from(value).unwrap());
        }
        (if passes { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS }, headers)
    }

    fn report(
        &self,
        unit: &str,
        &Status { remaining, reset_s, .. }: &Status,
        now_s: f64,
        to: &mut Vec<(String, String)>,
    ) {
        let (requests, tokens, window_s) = self.vendor.limits();
        let quota = if unit == "tokens" { tokens.unwrap_or_default() } else { requests };
        let reset = match self.vendor {
            OpenAi => format!("{}ms", (reset_s * 1000.0).ceil()),
            Anthropic => rfc_3339(now_s + reset_s),
            GitHub => format!("{}", (now_s + reset_s).round()),
            Shopify | Draft => format!("{}", reset_s.ceil()),
        };
        match self.vendor {
            OpenAi => to.extend([
                (format!("x-ratelimit-limit-{unit}"), quota.to_string()),
                (format!("x-ratelimit-remaining-{unit}"), remaining.to_string()),
                (format!("x-ratelimit-reset-{unit}"), reset),
            ]),
            Anthropic => to.extend([
                (format!("anthropic-ratelimit-{unit}-limit"), quota.to_string()),
                (format!("anthropic-ratelimit-{unit}-remaining"), remaining.to_string()),
                (format!("anthropic-ratelimit-{unit}-reset"), reset),
            ]),
            GitHub => to.extend([
                ("x-ratelimit-limit".to_owned(), quota.to_string()),
                ("x-ratelimit-remaining".to_owned(), remaining.to_string()),
                ("x-ratelimit-used".to_owned(), (quota - remaining).to_string()),
                ("x-ratelimit-reset".to_owned(), reset),
                ("x-ratelimit-resource".to_owned(), "core".to_owned()),
            ]),
            Shopify => to.push((
                "x-shopify-shop-api-call-limit".to_owned(),
                format!("{}/{quota}", quota - remaining),
            )),
            Draft => to.extend([
                (
                    "ratelimit-policy".to_owned(),
                    format!("\"{unit}\";q={quota};w={window_s};qu=\"{unit}\""),
                ),
                ("ratelimit".to_owned(), format!("\"{unit}\";r={remaining};t={reset}")),
            ]),
        }
    }
}

fn since_1970_s() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Writes an instant in whole seconds, the rest of a second cut off.
fn rfc_3339(unix_s: f64) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(unix_s);
    let text = httpdate::fmt_http_date(at);
    let words: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let &[_, day, month, year, time, _] = words.as_slice() else { unreachable!("{text}") };
    let month = "JanFebMarAprMayJunJulAugSepOctNovDec".find(month).unwrap() / 3 + 1;
    format!("{year}-{month:02}-{day}T{time}Z")
}

async fn serve(vendor: Vendor) -> (String, Arc<Mutex<Server>>) {
    let server = Server { vendor, passed: Vec::new(), refused: Vec::new() };
    let server = Arc::new(Mutex::new(server));
    let answer = |State(server): State<Arc<Mutex<Server>>>, headers: HeaderMap| async move {
        let tokens = headers.get("x-tokens").unwrap().to_str().unwrap().parse().unwrap();
        server.lock().unwrap().decide(tokens)
    };
    let app = Router::new().route("/", get(answer)).with_state(Arc::clone(&server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, server)
}

/// Sends requests from several tasks for a time, and returns what the server counted.
async fn play(vendor: Vendor) -> (usize, usize) {
    const TASKS: u32 = 5;
    let (url, server) = serve(vendor).await;
    let client = reqwest::Client::new();
    let inner = service_fn(move |request: Request<()>| {
        let tokens = request.extensions().get::<Tokens>().unwrap().input;
        let request = client.get(&url).header("x-tokens", tokens);
        async move {
            let answer = request.send().await?;
            let mut response = Response::new(());
            *response.status_mut() = answer.status();
            *response.headers_mut() = answer.headers().clone();
            Ok::<_, reqwest::Error>(response)
        }
    });
    let client = PaceLayer::new(tokio::time::sleep)
        .cost(|head| head.extensions.get::<Tokens>().copied().unwrap_or_default())
        .layer(inner);
    let end = Instant::now() + Duration::from_secs(4);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(task.into());
                while Instant::now() < end {
                    let mut request = Request::new(());
                    let tokens = Tokens { input: random.u64(1..20), output: 0 };
                    request.extensions_mut().insert(tokens);
                    client.clone().oneshot(request).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let server = server.lock().unwrap();
    (server.passed.len(), server.refused.len())
}

/// A client that reads what the vendor sends is not refused, and uses more than one quota.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_every_vendor_are_never_refused() {
    let vendors = [OpenAi, Anthropic, GitHub, Shopify, Draft];
    let plays = vendors.map(|vendor| tokio::spawn(play(vendor)));
    for (vendor, play) in vendors.into_iter().zip(plays) {
        let (passed, refused) = play.await.unwrap();
        eprintln!("{vendor:?}: {passed} passed, {refused} refused");
        assert_eq!(refused, 0, "{vendor:?}: {passed} passed");
        assert!(passed > 10, "{vendor:?}: {passed} passed");
    }
}
