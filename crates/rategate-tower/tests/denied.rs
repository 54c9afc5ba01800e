//! Clients on a deny list are refused before any limit decides.

use std::convert::Infallible;
use std::future::ready;
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use http::{Request, Response, StatusCode};
use rategate::deny::{DenyFile, DenyList, write};
use rategate::{Keyed, Limiter, SlidingLog};
use rategate_tower::key::{self, Key, KeySource};
use rategate_tower::{Form, OnMissingKey, RateLimitLayer, Reason};
use tower::{Layer, Service, service_fn};

fn limiter() -> Limiter {
    Limiter::new(SlidingLog::new(3, Duration::from_secs(3600)))
}

fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

fn ask(layer: &RateLimitLayer, user: Option<&str>) -> Response<String> {
    ask_as(layer, user.as_slice())
}

/// Sends a request with these names of its user.
fn ask_as(layer: &RateLimitLayer, users: &[&str]) -> Response<String> {
    let mut service = layer.layer(service_fn(|_: Request<()>| {
        ready(Ok::<_, Infallible>(Response::new(String::from("within"))))
    }));
    let mut request = Request::get("/");
    for user in users {
        request = request.header("x-user", *user);
    }
    let answer = service.call(request.body(()).unwrap());
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => response.map(|_| String::new()),
        Poll::Pending => panic!("a request must not wait"),
    }
}

/// S3.20: the list is consulted before the limit, takes nothing from it, and returns the exact
/// wait.
#[test]
fn a_listed_client_is_refused_until_its_entry_ends() {
    let (limiter, list) = (limiter(), DenyList::new(10));
    let source = key::header("x-user".parse().unwrap());
    let layer = RateLimitLayer::new(limiter.clone()).deny(list.clone(), source);
    let listed = |wait: Duration| {
        let until_ns = wall_ns() + u64::try_from(wait.as_nanos()).unwrap();
        list.replace([(list.id(&Key::of(b"noisy".as_slice())), until_ns)]);
    };
    assert_eq!(ask(&layer, Some("noisy")).status(), 200);
    listed(Duration::from_millis(99_500));
    for _ in 0..5 {
        let response = ask(&layer, Some("noisy"));
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        let seconds: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((90..=100).contains(&seconds), "{seconds}");
    }
    assert_eq!(limiter.remaining().unwrap(), 2, "a refusal takes nothing");
    assert_eq!(ask(&layer, Some("quiet")).status(), 200);
    assert_eq!(ask(&layer, None).status(), 200, "a request without a key is not listed");
    assert_eq!(ask(&layer, Some("quiet")).status(), 429, "the limit is there still");
}

/// A client on the list cannot evade it by repeating its name.
#[test]
fn a_name_that_comes_twice_is_refused() {
    let source = || key::header("x-user".parse().unwrap());
    let list: DenyList<Key> = DenyList::new(10);
    list.replace([(list.id(&Key::of(b"noisy".as_slice())), u64::MAX)]);
    let twice = |layer: &RateLimitLayer| {
        let statuses = [["noisy", "noisy"], ["quiet", "noisy"], ["quiet", "quiet"]];
        statuses.map(|users| ask_as(layer, &users).status().as_u16())
    };
    let layer = RateLimitLayer::new(limiter()).deny(list.clone(), source());
    assert_eq!(twice(&layer), [400; 3]);
    assert_eq!(ask(&layer, None).status(), 200, "without a name no client is listed");
    assert_eq!(twice(&layer.clone().missing(OnMissingKey::Refuse)), [400; 3]);
    let several = (key::method(), (key::path(), source()));
    assert_eq!(twice(&RateLimitLayer::new(limiter()).deny(list.clone(), several)), [400; 3]);
    let boxed: Vec<Box<dyn KeySource>> = vec![Box::new(key::method()), Box::new(source())];
    assert_eq!(twice(&RateLimitLayer::new(limiter()).deny(list.clone(), boxed)), [400; 3]);
    // The setting can allow it.
    let layer = RateLimitLayer::new(limiter()).deny(list, source());
    assert_eq!(twice(&layer.missing(OnMissingKey::Pass)), [200; 3]);

    // Keys of a limit are treated alike.
    let keyed = Keyed::new(SlidingLog::new(3, Duration::from_secs(3600)));
    let layer = RateLimitLayer::keyed(keyed.clone(), source());
    assert_eq!(twice(&layer), [400; 3]);
    assert!(keyed.is_empty());
    assert_eq!(twice(&layer.missing(OnMissingKey::Share)), [200; 3]);
}

/// With the strictest setting, a request that names no client is refused, and takes nothing.
#[test]
fn a_request_that_the_list_cannot_know_is_refused_where_that_is_chosen() {
    let (limiter, source) = (limiter(), key::header("x-user".parse().unwrap()));
    let layer = RateLimitLayer::new(limiter.clone()).deny(DenyList::new(10), source);
    let refuse = layer.clone().missing(OnMissingKey::Refuse);
    assert_eq!(ask(&refuse, None).status(), 400);
    assert_eq!(limiter.remaining().unwrap(), 3);
    assert_eq!(ask(&refuse, Some("quiet")).status(), 200);
    let reported = refuse.answer(|refusal, _| {
        let reason = format!("{:?}", refusal.reason());
        Response::builder().header("x-reason", reason).body(String::new()).unwrap()
    });
    for (users, reason) in [(&[][..], "NoKey"), (&["quiet", "quiet"], "AmbiguousKey")] {
        assert_eq!(ask_as(&reported, users).headers()["x-reason"], reason);
    }
    for missing in [OnMissingKey::Share, OnMissingKey::Pass] {
        assert_eq!(ask(&layer.clone().missing(missing), None).status(), 200, "{missing:?}");
    }
}

/// A client that is also over its limit receives the later of the two instants.
#[test]
fn the_wait_is_that_of_the_list_and_of_the_limit() {
    let source = || key::header("x-user".parse().unwrap());
    let hour = 3_600_000_000_000;
    let keyed = Keyed::new(SlidingLog::new(1, Duration::from_nanos(hour)));
    let one = Limiter::new(SlidingLog::new(1, Duration::from_nanos(hour)));
    for layer in [RateLimitLayer::keyed(keyed, source()), RateLimitLayer::new(one)] {
        let list: DenyList<Key> = DenyList::new(10);
        let layer = layer.deny(list.clone(), source());
        let reported = |for_ns: u64| {
            list.replace([(list.id(&Key::of(b"noisy".as_slice())), wall_ns() + for_ns)]);
            let refused = ask(&layer, Some("noisy"));
            assert_eq!(refused.status(), 429);
            refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap()
        };
        assert!((1..=60).contains(&reported(60_000_000_000)), "the limit would let it pass");
        list.replace([]);
        assert_eq!(ask(&layer, Some("noisy")).status(), 200);
        assert!((3_590..=3_600).contains(&reported(60_000_000_000)));
        assert!((7_190..=7_200).contains(&reported(2 * hour)));
    }
}

#[test]
fn an_expired_entry_denies_no_client() {
    let list = DenyList::new(10);
    let source = key::header("x-user".parse().unwrap());
    let layer = RateLimitLayer::new(limiter()).deny(list.clone(), source);
    list.replace([(list.id(&Key::of(b"noisy".as_slice())), wall_ns())]);
    assert_eq!(ask(&layer, Some("noisy")).status(), 200);
}

#[test]
fn the_answer_can_be_another_one() {
    let list = DenyList::new(10);
    list.replace([(list.id(&Key::of(b"noisy".as_slice())), u64::MAX)]);
    let source = || key::header("x-user".parse().unwrap());
    let layer = RateLimitLayer::new(limiter()).deny(list, source());
    let grpc = ask(&layer.clone().form(Form::Grpc), Some("noisy"));
    assert_eq!(
        (grpc.status().as_u16(), &grpc.headers()["grpc-status"]),
        (200, &"8".parse().unwrap())
    );
    let layer = layer.answer(|refusal, _| {
        assert_eq!(refusal.reason(), Reason::OnDenyList);
        Response::builder().status(403).body(String::new()).unwrap()
    });
    let response = ask(&layer, Some("noisy"));
    assert_eq!(response.status(), 403);
    assert!(response.headers().contains_key("retry-after"));
}

/// The address names that a log analysis writes match the keys of the sources.
#[test]
fn names_of_a_file_are_the_keys_of_the_sources() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("names_of_a_file");
    let names = ["10.0.0.7", "10.1.2.0/24", "2001:db8:1:2::/64", "host.example"];
    write(&path, names.map(|name| (name.as_bytes(), u64::MAX))).unwrap();
    let list: DenyList<Key> = DenyList::new(10);
    let file = DenyFile::with_names(&path, list.clone(), |list, name| {
        Some(list.id(&key::named_address(name)?))
    });
    file.refresh().unwrap();
    assert_eq!(list.len(), 3);
    for (address, v4_bits, is_listed) in [
        ("10.0.0.7", 32, true),
        ("10.0.0.8", 32, false),
        ("10.1.2.9", 24, true),
        ("10.1.2.9", 32, false),
        ("2001:db8:1:2:9::1", 32, true),
        ("2001:db8:1:3::1", 32, false),
        ("::ffff:10.0.0.7", 32, true),
    ] {
        let source = key::peer(|address: &IpAddr| *address).group_v4(v4_bits);
        let address: IpAddr = address.parse().unwrap();
        let (head, ()) = Request::get("/").extension(address).body(()).unwrap().into_parts();
        let key = source.key(&head).unwrap();
        assert_eq!(list.denied_for(&key).is_some(), is_listed, "{address}");
    }
}
