//! Calls of Envoy's service as lines of text, over both wires.
//!
//! ```text
//! remote_address=x:3 a=1,b=2@5/hour *2 => ok 7 !0; limits address=10/minute =5/hour
//! ```
//!
//! A word is a descriptor: its entries, its own hits behind `:`, and a limit of its own behind `@`. A
//! `-` in front makes it a refund, and `*2` are hits of the call. Behind the arrow is the code of the
//! reply, and for each descriptor what remains, `max` without a limit, `-` without a rule, and behind
//! a `!` if it is over. Clauses behind it say more: the `limits`, the seconds until their `resets`,
//! the header `fields` or the `metadata` of the rules.

use std::sync::Arc;
use std::time::Duration;

use rategate_server::config::load_text;
use rategate_server::engine::EngineSettings;
use rategate_server::protocol::rls::Options;
use rategate_server::rule::{Rule, Unit};

use super::common::{Clock, engine_with, runtime};
use super::oracle::{Call, ModelDescriptor, Reply, Status};
use super::wires::{self, Wire};
use crate::engine::common::SMALL;
use rategate_server::engine::Engine;

/// The same engine twice, each behind a wire.
pub(crate) struct Told {
    pub(crate) engines: [(Engine<Clock>, Clock); 2],
    domain: &'static str,
    wires: [Wire; 2],
}

impl Told {
    /// Returns engines with rules of the domain `edge`.
    pub(crate) fn of(rules: &[Rule], settings: EngineSettings, options: &Options) -> Self {
        let engines = [(); 2].map(|()| engine_with(rules.to_vec(), settings));
        let runtime = Arc::new(runtime());
        let mut both = engines.iter();
        let wires = [wires::grpc, wires::json].map(|wire| {
            let (engine, _) = both.next().unwrap();
            wire(Arc::clone(&runtime), engine.clone(), options.clone())
        });
        Self { engines, domain: "edge", wires }
    }

    /// Returns engines with the descriptors of a file of envoyproxy/ratelimit, of the domain `d`.
    pub(crate) fn with(descriptors: &str, options: &Options) -> Self {
        let loaded = Self { domain: "d", ..Self::of(&[], SMALL, options) };
        loaded.load(descriptors);
        loaded
    }

    /// Replaces the descriptors.
    pub(crate) fn load(&self, descriptors: &str) {
        let text = format!("domain: d\ndescriptors: [{descriptors}]");
        let loaded = load_text("d.yaml", &text).unwrap_or_else(|it| panic!("{}", it.report()));
        for (engine, _) in &self.engines {
            engine.load_compiled(&loaded.rules).unwrap();
        }
    }

    pub(crate) fn play(&self, story: &'static str) -> &Self {
        let lines = story.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with("//")) {
            println!("{line}");
            if let Some(time) = line.strip_prefix("pass ") {
                let (time, unit) = time.strip_suffix("ms").map_or((time, 1_000), |time| (time, 1));
                let time = Duration::from_millis(time.parse::<u64>().unwrap() * unit);
                self.engines.iter().for_each(|(_, clock)| clock.advance(time));
                continue;
            }
            let (call, expected) = line.split_once(" => ").unwrap();
            let call = self.call(call);
            for wire in &self.wires {
                check(&wire(&call), expected);
            }
        }
        self
    }

    /// Returns `true` if a call passes, over either wire.
    pub(crate) fn passes(&self, call: &'static str) -> bool {
        let call = self.call(call);
        let [grpc, json] = self.wires.each_ref().map(|wire| !wire(&call).is_over);
        assert_eq!(grpc, json);
        grpc
    }

    fn call(&self, text: &'static str) -> Call {
        let mut call = Call { domain: self.domain, requested: Vec::new(), hits: 0 };
        for word in text.split(' ') {
            if let Some(hits) = word.strip_prefix('*') {
                call.hits = hits.parse().unwrap();
            } else if let Some(domain) = word.strip_suffix('>') {
                call.domain = domain;
            } else {
                call.requested.push(descriptor(word));
            }
        }
        call
    }
}

fn descriptor(word: &'static str) -> ModelDescriptor {
    let refund = word.starts_with('-');
    let word = word.trim_start_matches('-');
    let (word, own) = word.split_once('@').map_or((word, None), |(word, own)| (word, Some(own)));
    let (word, hits) = word.split_once(':').map_or((word, None), |(word, hits)| (word, Some(hits)));
    let own = own.map(|own| {
        let (permits, unit) = own.split_once('/').unwrap();
        (permits.parse().unwrap(), Unit::ALL.into_iter().find(|it| it.name() == unit).unwrap())
    });
    let entries = word.split(',').map(|entry| entry.split_once('=').unwrap()).collect();
    ModelDescriptor { entries, own, hits: hits.map(|hits| hits.parse().unwrap()), refund }
}

fn check(reply: &Reply, expected: &str) {
    let left = |status: &Status| {
        let over = if status.is_over { "!" } else { "" };
        match (&status.limit, status.remaining) {
            (None, u32::MAX) => "max".to_owned(),
            (None, 0) => format!("{over}-"),
            (_, left) => format!("{over}{left}"),
        }
    };
    let limit = |status: &Status| {
        let limit = status.limit.as_ref();
        limit.map_or("-".to_owned(), |(name, permits, unit)| {
            format!("{name}={permits}/{}", unit.name())
        })
    };
    let reset = |status: &Status| status.reset_s.map_or("-".to_owned(), |reset| reset.to_string());
    let all = |what: &dyn Fn(&Status) -> String| {
        reply.statuses.iter().map(what).collect::<Vec<_>>().join(" ")
    };
    let code = if reply.is_over { "over" } else { "ok" };
    let mut clauses = expected.split("; ");
    assert_eq!(format!("{code} {}", all(&left)).trim_end(), clauses.next().unwrap(), "{reply:?}");
    for (what, expected) in clauses.map(|clause| clause.split_once(' ').unwrap_or((clause, ""))) {
        let fields = reply.headers.iter().map(|(name, value)| format!("{name}={value}"));
        let metadata = || reply.metadata.as_ref().and_then(|all| all.get("metadata"));
        let seen = match what {
            "limits" => all(&limit),
            "resets" => all(&reset),
            "fields" => fields.collect::<Vec<_>>().join(" "),
            "metadata" => metadata().map_or(String::new(), ToString::to_string),
            other => panic!("{other}: nothing of a reply"),
        };
        assert_eq!(seen, expected, "{reply:?}");
    }
}
