//! Operations under an id, by every protocol, of a service whose store fails over to its replica in
//! the middle: each is sent one to five times, and counts once.

use std::time::{Duration, Instant};

use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_testkit::redis::{Brand, Server};

use crate::serve::clients::{Http, PATIENCE, Resp, Rls, Service, descriptor, until};

/// A limit of which nothing is earned back in the time of a test.
const LIMIT: u64 = 1_000;

/// An operation, with the permits that it names.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Take(u64),
    Charge(u64),
    Refund(u64),
    Reserve(u64),
    Commit(u64),
    Cancel,
}

use Operation::{Cancel, Charge, Commit, Refund, Reserve, Take};

/// A client of one protocol, which sends operations on its own key.
trait Client {
    /// Sends an operation under an id, and returns the refusal unless it was answered.
    fn send(&mut self, operation: Operation, id: &str) -> Result<(), String>;

    /// Returns `true` if the protocol has the operation.
    fn has(&self, _operation: Operation) -> bool {
        true
    }

    fn key(&self) -> &'static str;
}

impl Client for Http {
    fn send(&mut self, operation: Operation, id: &str) -> Result<(), String> {
        let (verb, member, permits) = match operation {
            Take(permits) => ("take", "once", Some(permits)),
            Charge(permits) => ("charge", "once", Some(permits)),
            Refund(permits) => ("refund", "once", Some(permits)),
            Reserve(permits) => ("reserve", "id", Some(permits)),
            Commit(permits) => ("commit", "id", Some(permits)),
            Cancel => ("cancel", "id", None),
        };
        let permits = permits.map_or(String::new(), |permits| format!(",\"permits\":{permits}"));
        let body = format!(
            "{{\"verb\":\"{verb}\",\"{member}\":\"{id}\",\"rule\":\"tokens\",\"key\":\"http\"\
             {permits}}}"
        );
        let (status, answer) = self.post("/v1/check", &body);
        let json: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
        let is_true = |part: &serde_json::Value| part["allowed"] == true;
        let is_done = status == 200 && is_true(&json) && is_true(&json["items"][0]);
        if is_done { Ok(()) } else { Err(answer) }
    }

    fn key(&self) -> &'static str {
        "http"
    }
}

impl Client for Resp {
    fn send(&mut self, operation: Operation, id: &str) -> Result<(), String> {
        let (name, permits) = match operation {
            Take(permits) => ("CHECK", permits),
            Charge(permits) => ("CHARGE", permits),
            Refund(permits) => ("REFUND", permits),
            Reserve(permits) => ("RESERVE", permits),
            Commit(permits) => ("COMMIT", permits),
            Cancel => ("CANCEL", 0),
        };
        let (name, permits) = (format!("RATEGATE.{name}"), permits.to_string());
        let words = match operation {
            Reserve(_) => vec![&*name, id, "60000", "tokens", &permits, "resp"],
            Cancel => vec![&*name, id, "tokens", "resp"],
            _ => vec![&*name, id, "tokens", &permits, "resp"],
        };
        let answer = self.ask(&words);
        let is_done = answer.iter().any(|word| word == "verdict")
            && Self::field(&answer, "allowed") == "1"
            && !["unavailable", "denied", "unknown"].contains(&&*Self::field(&answer, "verdict"));
        if is_done { Ok(()) } else { Err(answer.join(" ")) }
    }

    fn key(&self) -> &'static str {
        "resp"
    }
}

impl Client for Rls {
    fn send(&mut self, operation: Operation, id: &str) -> Result<(), String> {
        let (verb, permits) = match operation {
            Take(permits) => ("take", permits),
            Charge(permits) => ("charge", permits),
            Reserve(permits) => ("reserve", permits),
            Commit(permits) => ("commit", permits),
            Cancel | Refund(_) => ("cancel", 0),
        };
        let entries = [("user", "grpc"), ("rategate.id", id), ("rategate.verb", verb)];
        let hits_addend = (!matches!(operation, Cancel)).then_some(permits);
        let descriptor = RateLimitDescriptor { hits_addend, ..descriptor(&entries) };
        let answer = self.ask("default", &[descriptor], 0);
        let code = answer.map_err(|status| status.to_string())?.overall_code;
        // OK; a denial is no answer here, since all of it fits.
        if code == 1 { Ok(()) } else { Err(format!("code {code}")) }
    }

    // `is_negative_hits` without another verb, and so without an id.
    fn has(&self, operation: Operation) -> bool {
        !matches!(operation, Refund(_))
    }

    fn key(&self) -> &'static str {
        "grpc"
    }
}

fn id_of(round: u32, number: u32) -> String {
    format!("{round:016x}{number:016x}")
}

/// Sends an operation until it is answered, and then so many times more.
fn send(client: &mut dyn Client, operation: Operation, id: &str, times: u32) {
    let begun = Instant::now();
    for _ in 0..times {
        while let Err(why) = client.send(operation, id) {
            assert!(begun.elapsed() < PATIENCE, "{operation:?}: {why}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

fn used(service: &Service, key: &str) -> Option<u64> {
    let body = format!("{{\"verb\":\"peek\",\"rule\":\"tokens\",\"key\":\"{key}\"}}");
    let (_, answer) = service.http().post("/v1/check", &body);
    let json: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let item = &json["items"][0];
    Some(LIMIT - item["remaining"].as_u64()? + item["debt"].as_u64().unwrap_or(0))
}

/// Returns how far a server has written, or has got what its primary wrote.
fn written(server: &Server) -> String {
    let info = server.client().ok(&["INFO", "replication"]).text();
    let line = info.lines().find(|line| line.starts_with("master_repl_offset:"));
    line.unwrap().to_owned()
}

#[test]
fn operations_count_once_over_a_failover_by_every_protocol() {
    for brand in Brand::installed() {
        let mut primary = Server::start(brand);
        let replica = primary.replica();
        let service = Service::of(&format!(
            "[grpc]\nverbs = true\n[store]\nkind = \"primary-of\"\nurl = [\"redis://127.0.0.1:{}\", \
             \"redis://127.0.0.1:{}\"]\nbudget = \"300ms\"\n[[rule]]\nname = \"tokens\"\n\
             match = [\"user\"]\nalgorithm = \"sliding-log\"\nlimit = \"{LIMIT}/6h\"\n\
             store = \"exact\"\non_unavailable = \"deny\"\n",
            primary.port(),
            replica.port()
        ));
        let (mut http, mut resp, mut grpc) = (service.http(), service.resp(), service.rls());
        until("the store", || used(&service, "http").is_some());
        let steps = [
            (1, Charge(70)),
            (2, Take(30)),
            (3, Reserve(50)),
            (3, Commit(40)),
            (4, Reserve(25)),
            (4, Cancel),
            (5, Refund(11)),
        ];
        let mut counted = [0; 3];
        for round in 0..5 {
            for (at, (number, operation)) in steps.into_iter().enumerate() {
                if (round, at) == (2, 3) {
                    // In the middle of a reservation: what was answered is at the replica, which
                    // gets nothing in the first second of its link.
                    until("the replica", || written(&primary) == written(&replica));
                    primary.kill();
                    replica.client().ok(&["REPLICAOF", "NO", "ONE"]);
                }
                let clients: [&mut dyn Client; 3] = [&mut http, &mut resp, &mut grpc];
                for (client, counted) in clients.into_iter().zip(&mut counted) {
                    if !client.has(operation) {
                        continue;
                    }
                    send(client, operation, &id_of(round, number), round + 1);
                    *counted += match operation {
                        Charge(permits) | Take(permits) | Commit(permits) => permits,
                        Refund(_) | Reserve(_) | Cancel => 0,
                    };
                    *counted -= if let Refund(permits) = operation { permits } else { 0 };
                }
            }
        }
        // What was sent before the failover counts once after it.
        for (number, operation) in steps {
            let clients: [&mut dyn Client; 3] = [&mut http, &mut resp, &mut grpc];
            for client in clients {
                // A reservation that has ended is not made again.
                if client.has(operation) && !matches!(operation, Reserve(_)) {
                    send(client, operation, &id_of(0, number), 1);
                }
            }
        }
        let clients: [&dyn Client; 3] = [&http, &resp, &grpc];
        for (client, counted) in clients.into_iter().zip(counted) {
            let mut seen = None;
            until("the store", || {
                seen = used(&service, client.key());
                seen.is_some()
            });
            assert_eq!(seen, Some(counted), "{brand:?}, {}", client.key());
        }
    }
}
