//! Streams of assignments by another gRPC client, over both drivers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::rate_limit_quota::v3 as rlqs;
use envoy_types::pb::envoy::r#type::v3::rate_limit_strategy::Strategy;
use rategate::Clock as _;
use rategate_server::engine::{
    Engine, Item, MAX_BUCKETS, Matcher, QuotaTerms, Request, Target, Verb,
};
use rategate_server::protocol::grpc::Settings;
use rategate_server::rule::Limit;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};

use self::rlqs::rate_limit_quota_response::BucketAction;
use self::rlqs::rate_limit_quota_response::bucket_action::BucketAction as Action;
use self::rlqs::rate_limit_quota_service_client::RateLimitQuotaServiceClient;
use self::rlqs::rate_limit_quota_usage_reports::BucketQuotaUsage;
use self::rlqs::{BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports};
use crate::rls::common::{Clock, Driver, Server, engine, rule, rules, runtime};

const BOTH: [Driver; 2] = [Driver::Own, Driver::Hyper];
/// The time of an assignment, and how much longer it counts, in seconds.
const TTL_S: u64 = 10;
const DELIVERY_S: u64 = 5;

/// The content of an action about a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Assigned {
    All,
    None,
    /// The size of a bucket, the tokens of each interval, and the interval in seconds.
    Tokens(u32, u32, i64),
    Abandoned,
}

struct Client {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    answers: Streaming<RateLimitQuotaResponse>,
    probes: u32,
}

fn usage(entries: &[(&str, &str)], allowed: u64, denied: u64) -> BucketQuotaUsage {
    let bucket = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket: bucket.collect() }),
        time_elapsed: None,
        num_requests_allowed: allowed,
        num_requests_denied: denied,
    }
}

fn report(domain: &str, usages: Vec<BucketQuotaUsage>) -> RateLimitQuotaUsageReports {
    RateLimitQuotaUsageReports { domain: domain.to_owned(), bucket_quota_usages: usages }
}

fn read(action: &BucketAction) -> Assigned {
    match action.bucket_action.as_ref().unwrap() {
        Action::AbandonAction(_) => Assigned::Abandoned,
        Action::QuotaAssignmentAction(assigned) => {
            let ttl = assigned.assignment_time_to_live.unwrap();
            assert!(ttl.seconds > 0 || ttl.nanos > 0);
            match assigned.rate_limit_strategy.as_ref().unwrap().strategy.as_ref().unwrap() {
                Strategy::BlanketRule(0) => Assigned::All,
                Strategy::BlanketRule(1) => Assigned::None,
                Strategy::TokenBucket(bucket) => {
                    let interval = bucket.fill_interval.unwrap();
                    assert_eq!(interval.nanos, 0);
                    let per_fill = bucket.tokens_per_fill.unwrap().value;
                    Assigned::Tokens(bucket.max_tokens, per_fill, interval.seconds)
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

impl Client {
    async fn open(server: &Server, first: RateLimitQuotaUsageReports) -> Result<Self, Status> {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
        let mut client = RateLimitQuotaServiceClient::new(endpoint.connect().await.unwrap());
        let (reports, stream) = mpsc::channel(8);
        reports.send(first).await.unwrap();
        let answers = client.stream_rate_limit_quotas(ReceiverStream::new(stream)).await?;
        Ok(Self { reports, answers: answers.into_inner(), probes: 0 })
    }

    /// Opens a stream of domain `edge`, and returns what is assigned about its first bucket.
    async fn with(server: &Server, entries: &[(&str, &str)]) -> (Self, Assigned) {
        let first = report("edge", vec![usage(entries, 1, 0)]);
        let mut client = Self::open(server, first).await.unwrap();
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.len(), 1);
        (client, read(&answer[0]))
    }

    async fn answer(&mut self) -> Result<Vec<BucketAction>, Status> {
        let answer = tokio::time::timeout(Duration::from_secs(20), self.answers.message()).await;
        Ok(answer.unwrap()?.expect("the stream goes on").bucket_action)
    }

    /// Reports, and returns what is assigned of the bucket, if anything is. Waits for the answer
    /// about another bucket, which no rule is for.
    async fn tell(
        &mut self,
        entries: &[(&str, &str)],
        allowed: u64,
        denied: u64,
    ) -> Option<Assigned> {
        self.probes += 1;
        let probe = self.probes.to_string();
        let usages = vec![usage(entries, allowed, denied), usage(&[("probe", &probe)], 1, 0)];
        self.reports.send(report("", usages)).await.unwrap();
        let wanted = usage(entries, 0, 0).bucket_id;
        let mut found = None;
        loop {
            let answer = self.answer().await.unwrap();
            let is_own = |action: &&BucketAction| action.bucket_id == wanted;
            found = answer.iter().find(is_own).map(read).or(found);
            let is_probe = |action: &BucketAction| {
                action.bucket_id.as_ref().is_some_and(|id| id.bucket.get("probe") == Some(&probe))
            };
            if answer.iter().any(is_probe) {
                return found;
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a closure, as each caller has it")]
fn on_both(test: impl AsyncFn(&Server, &Clock, &Engine<Clock>)) {
    for driver in BOTH {
        let (engine, clock) = engine(rules());
        let server = Server::start(driver, engine.clone(), Settings::default());
        runtime().block_on(test(&server, &clock, &engine));
    }
}

const BUCKET: [(&str, &str); 1] = [("remote_address", "x")];

fn left(engine: &Engine<Clock>) -> u64 {
    let entries: [(&[u8], &[u8]); 1] = [(b"remote_address", b"x")];
    let target = Target::Descriptor { domain: "edge", entries: &entries, limit: None };
    let items = [Item::of(target, 0)];
    let decided = engine.decide(&Request { verb: Verb::Peek, items: &items, counts_denied: false });
    runtime_less(decided).results[0].remaining.unwrap()
}

fn runtime_less(decided: rategate_server::engine::Decided) -> rategate_server::engine::Answer {
    match decided {
        rategate_server::engine::Decided::Now(answer) => answer.unwrap(),
        rategate_server::engine::Decided::Later(_) => panic!("it needs a store"),
    }
}

#[test]
fn two_streams_share_a_rule_as_soon_as_the_first_may_not_have_all() {
    on_both(async |server, clock, engine| {
        let (mut one, assigned) = Client::with(server, &BUCKET).await;
        assert_eq!(assigned, Assigned::Tokens(10, 10, 60));
        assert_eq!(left(engine), 9, "the first request is charged");
        let (mut two, assigned) = Client::with(server, &BUCKET).await;
        assert_eq!(assigned, Assigned::None, "all is assigned");
        let half = Some(Assigned::Tokens(5, 5, 60));
        assert_eq!(one.tell(&BUCKET, 0, 0).await, half, "with the next report");
        assert_eq!(one.tell(&BUCKET, 0, 0).await, None, "nothing new");
        clock.advance(Duration::from_secs(TTL_S / 2));
        assert_eq!(one.tell(&BUCKET, 4, 6).await, half);
        assert_eq!(left(engine), 4, "what was used is charged, what was denied is not");
        assert_eq!(
            two.tell(&BUCKET, 0, 10).await,
            Some(Assigned::None),
            "the old one still counts"
        );
        clock.advance(Duration::from_secs(TTL_S / 2 + DELIVERY_S));
        assert_eq!(two.tell(&BUCKET, 0, 20).await, half);
        assert_eq!(one.tell(&BUCKET, 10, 10).await, half);
        assert_eq!(left(engine), 0);
    });
}

/// Equal numbers of a bucket are not sent again before half of their time is over: a client
/// would begin other numbers with a full bucket.
#[test]
fn a_steady_demand_keeps_its_numbers() {
    on_both(async |server, clock, _| {
        let (mut one, _) = Client::with(server, &BUCKET).await;
        for second in 1..40_u64 {
            clock.advance(Duration::from_secs(1));
            let assigned = one.tell(&BUCKET, 3 + second % 2, 0).await;
            let expected = second.is_multiple_of(TTL_S / 2).then_some(Assigned::Tokens(10, 10, 60));
            assert_eq!(assigned, expected, "{second}");
        }
    });
}

#[test]
fn what_a_dead_stream_had_is_free_after_its_time() {
    on_both(async |server, clock, _| {
        let (one, _) = Client::with(server, &BUCKET).await;
        let (mut two, assigned) = Client::with(server, &BUCKET).await;
        assert_eq!(assigned, Assigned::None);
        drop(one);
        clock.advance(
            Duration::from_secs(TTL_S + DELIVERY_S).checked_sub(Duration::from_nanos(1)).unwrap(),
        );
        assert_eq!(two.tell(&BUCKET, 0, 1).await, Some(Assigned::None));
        clock.advance(Duration::from_nanos(1));
        assert_eq!(two.tell(&BUCKET, 0, 1).await, Some(Assigned::Tokens(10, 10, 60)));
    });
}

#[test]
fn shares_follow_demand() {
    let mut rules = rules();
    rules.push(rule("hourly", &[("plan", "")], 900));
    for driver in BOTH {
        let (engine, clock) = engine(rules.clone());
        let server = Server::start(driver, engine, Settings::default());
        runtime().block_on(async {
            let bucket = [("plan", "free")];
            let mut clients = Vec::new();
            for _ in 0..3 {
                clients.push(Client::with(&server, &bucket).await);
            }
            let demands = [80, 10, 0];
            // In a minute without requests the third would be abandoned.
            for _ in 0..50 {
                clock.advance(Duration::from_secs(1));
                for (client, demand) in clients.iter_mut().zip(demands) {
                    if let Some(assigned) = client.0.tell(&bucket, demand, 0).await {
                        client.1 = assigned;
                    }
                }
            }
            let shares: Vec<_> = clients
                .iter()
                .map(
                    |(_, assigned)| {
                        if let Assigned::Tokens(_, share, 60) = assigned { *share } else { 0 }
                    },
                )
                .collect();
            // Eight parts of nine by demand, one evenly: 744, 122 and 33, within a sixteenth.
            for (share, expected) in shares.iter().zip([744_u32, 122, 33]) {
                assert!(share.abs_diff(expected) * 16 <= expected.max(*share), "{shares:?}");
            }
            assert!(shares.iter().sum::<u32>() <= 900);
        });
    }
}

/// Streams come, report any demand, and go. An oracle adds up what each of them may use.
#[test]
fn live_assignments_of_all_streams_never_exceed_the_rule() {
    for (seed, driver) in [(1, Driver::Own), (2, Driver::Own), (3, Driver::Hyper)] {
        let (engine, clock) = engine(rules());
        let server = Server::start(driver, engine, Settings::default());
        runtime().block_on(async {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut clients: Vec<(u32, Client)> = Vec::new();
            // What each client, dead or not, may use until when.
            let mut live: HashMap<u32, (u32, u64)> = HashMap::new();
            let (mut next, mut usable, steps) = (0, 0, 250);
            for _ in 0..steps {
                clock.advance(Duration::from_millis(random.u64(0..3_000)));
                let assigned = match random.u32(0..20) {
                    0 if !clients.is_empty() => {
                        clients.swap_remove(random.usize(..clients.len()));
                        None
                    }
                    1..4 if clients.len() < 5 => {
                        let (client, assigned) = Client::with(&server, &BUCKET).await;
                        clients.push((next, client));
                        next += 1;
                        Some((next - 1, assigned))
                    }
                    _ if clients.is_empty() => None,
                    _ => {
                        let index = random.usize(..clients.len());
                        let (name, client) = &mut clients[index];
                        let denied = random.u64(0..50);
                        let assigned = client.tell(&BUCKET, random.u64(1..50), denied).await;
                        assigned.map(|assigned| (*name, assigned))
                    }
                };
                let now_ns = clock.now_ns();
                if let Some((name, assigned)) = assigned {
                    let tokens = match assigned {
                        Assigned::Tokens(max, per_fill, 60) => {
                            assert_eq!(max, per_fill);
                            max
                        }
                        Assigned::None => 0,
                        other => panic!("{other:?}"),
                    };
                    live.insert(name, (tokens, now_ns + TTL_S * 1_000_000_000));
                }
                live.retain(|_, (_, until_ns)| *until_ns > now_ns);
                let sum = live.values().map(|(tokens, _)| *tokens).sum::<u32>();
                assert!(sum <= 10, "seed {seed}: {live:?}");
                usable += sum;
            }
            assert!(usable > 2 * steps, "seed {seed}: hardly anything is assigned: {usable}");
        });
    }
}

#[test]
fn assignments_are_renewed_and_silent_buckets_abandoned_without_reports() {
    let terms = QuotaTerms { ttl: Duration::from_millis(200), silence: Duration::from_millis(400) };
    for driver in BOTH {
        let (engine, clock) = engine(rules());
        let settings = Settings { quota: terms, ..Settings::default() };
        let server = Server::start(driver, engine, settings);
        runtime().block_on(async {
            let (mut one, assigned) = Client::with(&server, &BUCKET).await;
            let all = Assigned::Tokens(10, 10, 60);
            assert_eq!(assigned, all);
            clock.advance(Duration::from_millis(150));
            let answer = one.answer().await.unwrap();
            assert_eq!(answer.iter().map(read).collect::<Vec<_>>(), [all]);
            clock.advance(Duration::from_millis(250));
            let answer = one.answer().await.unwrap();
            assert_eq!(answer.iter().map(read).collect::<Vec<_>>(), [Assigned::Abandoned]);
            // The next request subscribes again. What was assigned counts until its end.
            assert_eq!(one.tell(&BUCKET, 1, 0).await, Some(Assigned::None));
        });
    }
}

/// Reports without requests are silence, too.
#[test]
fn a_bucket_without_requests_is_abandoned() {
    on_both(async |server, clock, _| {
        let (mut one, _) = Client::with(server, &BUCKET).await;
        for _ in 0..11 {
            clock.advance(Duration::from_secs(5));
            assert_eq!(one.tell(&BUCKET, 0, 0).await, Some(Assigned::Tokens(10, 10, 60)));
        }
        clock.advance(Duration::from_secs(5));
        assert_eq!(one.tell(&BUCKET, 0, 0).await, Some(Assigned::Abandoned));
    });
}

#[test]
fn each_kind_of_rule_has_its_strategy() {
    on_both(async |server, _, _| {
        let table: [(&[(&str, &str)], Assigned); 6] = [
            (&[("remote_address", "50.0.0.5")], Assigned::None),
            (&[("internal", "a")], Assigned::All),
            (&[("shadow", "a")], Assigned::All),
            (&[("unheard", "of")], Assigned::All),
            (&[("b", "2"), ("a", "1")], Assigned::Tokens(3, 3, 60)),
            (&[("a", "1")], Assigned::All),
        ];
        for (entries, expected) in table {
            assert_eq!(Client::with(server, entries).await.1, expected, "{entries:?}");
        }
    });
}

#[test]
fn nonsense_ends_a_stream_with_a_reason() {
    on_both(async |server, _, _| {
        let none = BucketQuotaUsage { bucket_id: None, ..usage(&[], 1, 0) };
        let table = [
            (report("", vec![usage(&BUCKET, 1, 0)]), Code::InvalidArgument, "a domain"),
            (report("edge", vec![none]), Code::InvalidArgument, "usage 0 has no entries"),
            (report("edge", vec![usage(&[], 1, 0)]), Code::InvalidArgument, "no entries"),
            (
                report("edge", vec![usage(&[("a", "")], 0, 0); 4097]),
                Code::ResourceExhausted,
                "more than 4096 usages",
            ),
        ];
        for (first, code, why) in table {
            let error = match Client::open(server, first).await {
                Ok(mut client) => client.answer().await.unwrap_err(),
                Err(error) => error,
            };
            assert_eq!(error.code(), code);
            assert!(error.message().contains(why), "{error}");
        }
        let (client, _) = Client::with(server, &BUCKET).await;
        let mut client = client;
        client.reports.send(report("other", vec![usage(&BUCKET, 1, 0)])).await.unwrap();
        let error = client.answer().await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains("one domain"), "{error}");
    });
}

#[test]
fn a_rule_that_cannot_be_divided_is_refused_by_name() {
    let mut rules = rules();
    let mut busy = rule("busy", &[("busy", "")], 5);
    busy.limit = Limit::Policy(rategate::Concurrency::new(5).into());
    rules.push(busy);
    for driver in BOTH {
        let (engine, _) = engine(rules.clone());
        let server = Server::start(driver, engine, Settings::default());
        runtime().block_on(async {
            let first = report("edge", vec![usage(&[("busy", "x")], 1, 0)]);
            let error = match Client::open(&server, first).await {
                Ok(mut client) => client.answer().await.unwrap_err(),
                Err(error) => error,
            };
            assert_eq!(error.code(), Code::FailedPrecondition);
            assert!(error.message().starts_with("rule `busy` is not assigned"), "{error}");
        });
    }
}

#[test]
fn a_stream_has_so_many_buckets_and_no_more() {
    for driver in BOTH {
        let (engine, _) = engine(rules());
        let settings = Settings { max_message_bytes: 1 << 20, ..Settings::default() };
        let server = Server::start(driver, engine, settings);
        runtime().block_on(async {
            let name = |nth: usize| usage(&[("remote_address", &nth.to_string())], 1, 0);
            let first = report("edge", (0..MAX_BUCKETS).map(name).collect());
            let mut client = Client::open(&server, first).await.unwrap();
            let answer = client.answer().await.unwrap();
            assert_eq!(answer.len(), MAX_BUCKETS);
            assert!(answer.iter().all(|action| read(action) == Assigned::Tokens(10, 10, 60)));
            client.reports.send(report("", vec![name(MAX_BUCKETS)])).await.unwrap();
            let answer = client.answer().await.unwrap();
            assert_eq!(answer.iter().map(read).collect::<Vec<_>>(), [Assigned::Abandoned]);
        });
    }
}

/// A bucket has no order: its rule is found by any order of its entries, and by all of them.
#[test]
fn entries_without_an_order_find_their_rule() {
    let rules = [
        rule("ab", &[("a", ""), ("b", "1")], 1),
        rule("ba", &[("b", ""), ("a", "")], 1),
        rule("c", &[("c", "")], 1),
    ];
    let matcher = Matcher::new(&rules.map(Arc::new)).unwrap();
    let find = |entries: &[(&'static [u8], &'static [u8])]| {
        let found = matcher.find_unordered("edge", entries);
        found.map(|(order, rules)| (order.to_vec(), rules.to_vec()))
    };
    let entry = |key: &'static str, value: &'static str| (key.as_bytes(), value.as_bytes());
    let (a, one, two) = (entry("a", "x"), entry("b", "1"), entry("b", "2"));
    for entries in [[a, one], [one, a]] {
        assert_eq!(find(&entries), Some((vec![a, one], vec![0])), "the first rule of two");
    }
    for entries in [[a, two], [two, a]] {
        assert_eq!(find(&entries), Some((vec![two, a], vec![1])));
    }
    assert_eq!(find(&[a]), None);
    assert_eq!(find(&[a, one, entry("c", "x")]), None);
    assert_eq!(find(&[entry("c", "x")]), Some((vec![entry("c", "x")], vec![2])));
    assert!(matcher.find_unordered("elsewhere", &[a]).is_none());
}
