//! The same operations through Redis' protocol: its replies say what the engine's answers say.

use std::io::BufReader;
use std::os::unix::net::UnixStream;

use rategate::charge::Settled;
use rategate_server::engine::{Engine, EngineError, ItemResult, Reserved, Verdict};
use rategate_server::net::Protocol as _;
use rategate_server::net::{Access, Attempts, Drainer, Limits, Peer};
use rategate_server::protocol::resp::{Bounds, Resp};
use rategate_server::rule::RuleSet;
use tokio::runtime::{Builder, Runtime};

use super::{Part, Story, id_and_ttl};
use crate::resp::client::{Client, Reply, text};

/// A server with the rules and the clock of a story, and a connection to it.
pub(super) struct Twin {
    version: i64,
    client: Client<UnixStream>,
    _runtime: Runtime,
    _drainer: Drainer,
}

impl Twin {
    pub(super) fn new(story: &Story, version: i64) -> Self {
        let engine = Engine::new(story.world.clock.clone(), story.settings);
        engine.load(RuleSet { rules: story.rules.clone(), hash: "".into() }).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let resp = Resp::new(engine, Access::default(), Bounds::default(), Limits::default());
        let drainer = Drainer::new();
        let attempts = Attempts::default();
        let peer = Peer { address: None, identity: None, token_required: false, attempts };
        let far = {
            let _entered = runtime.enter();
            tokio::net::UnixStream::from_std(far).unwrap()
        };
        runtime.spawn(resp.serve(far, peer, drainer.drain()));
        let mut client = Client { stream: BufReader::new(near) };
        client.ask(&format!("HELLO {version}"));
        Self { version, client, _runtime: runtime, _drainer: drainer }
    }

    fn truth(&self, is_true: bool) -> Reply {
        if self.version == 3 { Reply::Truth(is_true) } else { Reply::Int(is_true.into()) }
    }

    /// Sends an operation of a story, and compares the reply with the answer of the engine.
    pub(super) fn compare(
        &mut self,
        verb: &str,
        rest: &str,
        answer: &Result<Reserved, EngineError>,
    ) {
        let mut words: Vec<&str> = rest.split(' ').collect();
        let (mut verb, mut operation) = (verb, None);
        if verb == "once" {
            verb = words.remove(0);
        }
        if ["reserve", "commit", "cancel"].contains(&verb) || words.len() > 1 {
            operation = Some(words.remove(0));
        }
        let parts: Vec<_> = words.iter().map(|word| Part::of(word)).collect();
        let is_listed = parts.len() > 1;
        let mut command = vec![format!("RATEGATE.{}", if verb == "take" { "CHECK" } else { verb })];
        if let Some((id, ttl)) = operation.map(id_and_ttl) {
            command.push(id.to_string());
            if verb == "reserve" {
                command.push(ttl.map_or("-".to_owned(), |ttl| ttl.as_millis().to_string()));
            }
        }
        if is_listed {
            command.extend(["ITEMS".to_owned(), parts.len().to_string()]);
        }
        for part in &parts {
            command.push(part.name.to_owned());
            if !["cancel", "reset"].contains(&verb) {
                let permits = part.permits.unwrap_or_else(|| panic!("{rest}: RESP needs permits"));
                command.push(permits.to_string());
            }
            command.extend(is_listed.then(|| "1".to_owned()));
            command.push(String::from_utf8(part.values[0].to_vec()).unwrap());
        }
        let reply = self.client.ask(&command.join(" "));
        let Ok(answer) = answer else {
            let error = answer.as_ref().unwrap_err();
            // A fault of one item of several says which it is.
            let says = reply.error().ends_with(&error.to_string());
            assert!(says && reply.error().starts_with("ERR "), "{command:?}: {reply:?}");
            return;
        };
        assert_eq!(*reply.named("allowed"), self.truth(answer.answer.allowed), "{reply:?}");
        if operation.is_some() {
            assert_eq!(*reply.named("repeated"), self.truth(answer.is_repeated), "{reply:?}");
        }
        if ["reserve", "commit", "cancel"].contains(&verb) {
            let ends = answer.ends_after_ns.map_or(Reply::Null, |ns| int(ns.get() / 1_000_000));
            assert_eq!(
                (reply.named("id"), reply.named("ends_after_ms")),
                (&text(&command[1].clone()), &ends)
            );
        }
        let replies = match is_listed.then(|| reply.named("items")) {
            Some(Reply::List(items)) => items.iter().collect(),
            _ => vec![&reply],
        };
        assert_eq!(replies.len(), parts.len());
        for ((reply, result), part) in replies.iter().zip(&answer.answer.results).zip(&parts) {
            let taken = match verb {
                "take" => part.permits.unwrap(),
                "reserve" => result.held().unwrap_or(0),
                _ => 0,
            };
            for (name, value) in fields(result, taken) {
                assert_eq!(*reply.named(name), value, "{name} of {command:?}");
            }
        }
    }
}

fn int(number: u64) -> Reply {
    Reply::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Times are rounded up to milliseconds, and -1 if there are none.
fn ms(ns: Option<u64>) -> Reply {
    ns.map_or(Reply::Int(-1), |ns| int(ns.div_ceil(1_000_000)))
}

fn fields(result: &ItemResult, taken: u64) -> [(&'static str, Reply); 8] {
    let (word, permits) = match result.verdict {
        Verdict::Granted => ("granted", taken),
        Verdict::Denied { enforced, .. } => (if enforced { "denied" } else { "shadowed" }, 0),
        Verdict::Charged(permits) => ("charged", permits),
        Verdict::Refunded(permits) => ("refunded", permits),
        Verdict::Committed(Settled::Even) => ("committed", 0),
        Verdict::Committed(Settled::Back { permits } | Settled::Owed { permits, .. }) => {
            ("committed", permits)
        }
        Verdict::Cancelled(permits) => ("cancelled", permits),
        Verdict::Late(permits) => ("late", permits),
        Verdict::Unknown => ("unknown", 0),
        Verdict::Reset => ("reset", 0),
        other => panic!("{other:?} is of no story in this process"),
    };
    let rule = result.rule.as_ref().map_or(Reply::Null, |rule| text(&rule.name));
    [
        ("rule", rule),
        ("verdict", text(word)),
        ("permits", int(permits)),
        ("limit", int(result.limit)),
        ("remaining", result.remaining.map_or(Reply::Null, int)),
        ("debt", int(result.debt)),
        ("retry_after_ms", ms(result.verdict.retry_after_ns().map(u64::from))),
        ("reset_after_ms", ms(result.reset_after())),
    ]
}
