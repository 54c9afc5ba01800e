//! Files about servers: what is wrong in one is said with its line, and what would be right.

use std::cell::RefCell;

use rategate_core::adaptive::{Bounds, Controller, Knee, Sample};
use rategate_testkit::server::{ControllerKind, Measure, ServerFile, Setup};

const GOOD: &str = "\
title = \"t\"
[limit]
controller = \"knee\"
[server]
workers = 10
service = { mean = \"10ms\" }
[[client]]
rate = \"100/s\"
[[measure]]
from = \"1s\"
to = \"2s\"
";

#[test]
fn nonsense_is_refused_with_its_line() {
    assert!(ServerFile::parse(GOOD).is_ok());
    let cases = [
        ("controller = \"knee\"", "controller = \"hill\"", 3, "`knee` or `aimd`"),
        ("controller = \"knee\"", "controller = \"knee\"\nfloor = 0", 2, "1 <= floor"),
        ("controller = \"knee\"", "controller = \"knee\"\nfirst = 5000", 2, "1 <= floor"),
        ("controller = \"knee\"", "controller = \"knee\"\nspeed = 1", 4, "unknown key `speed`"),
        ("workers = 10", "workers = \"many\"", 5, "a whole number"),
        ("workers = 10", "workers = 99999999999", 5, "at most 4294967295"),
        ("workers = 10", "workers = [{ from = \"1s\", is = 1 }]", 5, "from \"0s\""),
        (
            "workers = 10",
            "workers = [{ from = \"0s\", is = 1 }, { from = \"0s\", is = 2 }]",
            5,
            "order of time",
        ),
        ("workers = 10", "workers = []", 5, "is empty"),
        ("mean = \"10ms\"", "mean = 10", 6, "text in quotes"),
        ("mean = \"10ms\"", "from = \"2ms\", to = \"1ms\"", 6, "the lesser one first"),
        ("mean = \"10ms\"", "mean = \"1ms\", to = \"1ms\"", 6, "`mean` alone"),
        (
            "mean = \"10ms\" }",
            "mean = \"1ms\", except = { percent = 101, mean = \"1s\" } }",
            6,
            "at most 100",
        ),
        ("workers = 10", "workers = 10\nslowness = 1.2345", 6, "up to 3 decimals"),
        (
            "workers = 10",
            "workers = 10\npause = { every = \"1s\", for = \"1s\" }",
            6,
            "less than `every`",
        ),
        ("rate = \"100/s\"", "rate = \"unlimited\"", 8, "above 100000/s"),
        ("rate = \"100/s\"", "rate = \"100001/s\"", 8, "above 100000/s"),
        ("rate = \"100/s\"", "rate = \"-1/s\"", 8, "rate"),
        ("rate = \"100/s\"", "shape = \"constant:5\"", 8, "at byte 9: not a rate"),
        ("rate = \"100/s\"", "shape = \"poisson\"", 8, "\"poisson(\" or a parenthesis"),
        ("rate = \"100/s\"", "shape = \"constant:100001/s\"", 7, "above 100000/s together"),
        (
            "rate = \"100/s\"",
            "shape = \"constant:5/s@1s then constant:200000/s@1s\"",
            7,
            "above 100000/s together",
        ),
        ("rate = \"100/s\"", "shape = 5", 8, "text in quotes"),
        (
            "rate = \"100/s\"",
            "shape = \"sine:18446744073709551615/ns,18446744073709551615/ns,10s\"",
            8,
            "exceed 128 bits",
        ),
        ("rate = \"100/s\"", "rate = \"1/s\"\nshape = \"constant:5/s\"", 8, "leave out one"),
        ("rate = \"100/s\"", "rate = \"1/s\"\nshare = 0", 9, "1 to 100"),
        ("rate = \"100/s\"", "rate = \"1/s\"\nshare = 356", 9, "1 to 100"),
        ("rate = \"100/s\"", "rate = \"1/s\"\nlimit_of = 1", 9, "from 1, of which there are 0"),
        ("to = \"2s\"", "to = \"2s\"\nclient = 0", 12, "of which there are 1"),
        ("to = \"2s\"", "to = \"2s\"\nclient = 2", 12, "of which there are 1"),
        ("to = \"2s\"", "to = \"1s\"", 11, "must be after `from`"),
        ("to = \"2s\"", "to = \"61min\"", 11, "at most \"1h\""),
        ("to = \"2s\"", "to = \"2s\"\ngoodput = \"all\"", 12, "a number"),
        ("to = \"2s\"", "to = \"2s\"\ngoodput = 101", 12, "at most 100"),
        ("to = \"2s\"", "to = \"2s\"\nshed = 1.55", 12, "thousandths"),
        ("to = \"2s\"", "to = \"2s\"\njain = 95", 12, "at most 1"),
        ("workers = 10", "workers = [10, 20]", 5, "expected a table"),
    ];
    for (good, bad, line, reported) in cases {
        let error = ServerFile::parse(&GOOD.replace(good, bad)).unwrap_err();
        assert_eq!(error.line, Some(line), "{bad}: {error}");
        assert!(error.message.contains(reported), "{bad}: {error}");
    }
    for missing in ["[[client]]\nrate = \"100/s\"\n", "[[measure]]\nfrom = \"1s\"\nto = \"2s\"\n"] {
        let error = ServerFile::parse(&GOOD.replace(missing, "")).unwrap_err();
        assert!(error.message.contains("needs"), "{error}");
    }
    assert!(ServerFile::is_meant(GOOD) && !ServerFile::is_meant("[limit]\npolicy = \"gcra\"\n"));
}

/// A controller that notes when a share was filled.
#[derive(Debug)]
struct Filled<'a> {
    limit: Knee,
    at: &'a RefCell<Vec<u32>>,
}

impl Controller for Filled<'_> {
    fn limit(&self) -> u32 {
        self.limit.limit()
    }

    fn rebound(&mut self, bounds: Bounds) {
        self.limit.rebound(bounds);
    }

    fn sample(&mut self, sample: Sample) {
        self.limit.sample(sample);
    }

    fn fill_share(&mut self, in_flight: u32, _now_ns: u64) {
        self.at.borrow_mut().push(in_flight);
    }
}

/// Two clients of one limit, of which one has a share of it: together they are never more than it,
/// and those of the second start while fewer than its share are in flight.
#[test]
fn clients_can_have_one_limit_and_shares_of_it() {
    let two = "rate = \"600/s\"\n[[client]]\nrate = \"2000/s\"\nlimit_of = 1\nshare = 25\n";
    let text = GOOD.replace("rate = \"100/s\"\n", two);
    let run = ServerFile::parse(&text).unwrap().run();
    let setup = ServerFile::parse(&text).unwrap().setup;
    let fixed = setup.run(|_| Knee::new(Bounds::new(8, 8, 8), 1));
    assert!(run.seen.len() > 100 && fixed.seen.len() > 100);
    // The most calls in flight when one of a client started, itself included.
    let spans =
        fixed.seen.iter().map(|seen| (seen.client, seen.sample.start_ns, seen.sample.end_ns));
    let spans: Vec<_> = spans.collect();
    let in_flight =
        |at: u64| spans.iter().filter(|(_, from, to)| (*from..*to).contains(&at)).count();
    let most = |client| {
        let starts = spans.iter().filter(|(of, ..)| *of == client);
        starts.map(|(_, start_ns, _)| in_flight(*start_ns)).max()
    };
    assert_eq!((most(0), most(1)), (Some(8), Some(2)));
    let filled = RefCell::new(Vec::new());
    setup.run(|_| Filled { limit: Knee::new(Bounds::new(8, 8, 8), 1), at: &filled });
    assert!(!filled.borrow().is_empty() && filled.borrow().iter().all(|&in_flight| in_flight == 2));
    // A measure of one client counts no calls of the other.
    let of_one = |client| {
        let measure = Measure { client, ..setup.measures[0] };
        let setup = Setup { measures: vec![measure], ..setup.clone() };
        setup.run(|_| Knee::new(Bounds::new(8, 8, 8), 1)).measured[0].clone()
    };
    let (all, one, other) = (of_one(None), of_one(Some(0)), of_one(Some(1)));
    assert_eq!((all.made, all.sent), (one.made + other.made, one.sent + other.sent));
    assert!(one.sent > other.sent && other.sent > 10, "{} and {}", one.sent, other.sent);
    let chain = format!(
        "{}[[client]]\nrate = \"1/s\"\nlimit_of = 2\n",
        text.split("[[measure]]").next().unwrap()
    );
    let error = ServerFile::parse(&format!("{chain}[[measure]]\nfrom = \"1s\"\nto = \"2s\"\n"));
    assert!(error.unwrap_err().message.contains("no limit of its own"));
}

/// Calls along a shape come at its instants, and what they could have been is its rate.
#[test]
fn calls_can_come_by_a_shape() {
    let shaped = |shape: &str| {
        let shape = format!("shape = \"{shape}\"");
        let text = GOOD.replace("rate = \"100/s\"", &shape);
        ServerFile::parse(&text).unwrap_or_else(|error| panic!("{text}{error}")).run()
    };
    let run = shaped("constant:100/s");
    let starts = run.seen.iter().map(|seen| seen.sample.start_ns);
    assert!(starts.clone().count() > 150);
    assert!(starts.into_iter().all(|start_ns| start_ns % 10_000_000 == 0));
    // From 1 s to 2 s, without the second bound: what could be served is what came.
    for (shape, made) in [
        ("constant:100/s", 100),
        ("ramp:0/s>800/s@2s", 600),
        ("poisson(ramp:0/s>800/s@2s),seed=3", 567),
        ("constant:100/s@1500ms", 51),
    ] {
        let measured = shaped(shape).measured[0].clone();
        assert_eq!(measured.made, made, "{shape}");
        let goodput = measured.numbers().goodput_per_mille;
        assert!((900..=1_100).contains(&goodput), "{shape}: {goodput}");
    }
    let seeded = |seed| shaped(&format!("poisson(constant:100/s),seed={seed}")).seen;
    assert_eq!(seeded(1), seeded(1));
    assert_ne!(seeded(1), seeded(2));
}

/// A missed goal is reported.
#[test]
fn each_controller_runs_and_a_missed_goal_is_reported() {
    for (name, kind) in [("knee", ControllerKind::Knee), ("aimd", ControllerKind::Aimd)] {
        let text = GOOD.replace("\"knee\"", &format!("\"{name}\""));
        let file = ServerFile::parse(&text).unwrap();
        assert_eq!(file.controller, kind);
        let report = file.report();
        assert!(report.passed() && report.to_text().contains("goodput"), "{name}");
        assert!(report.to_svg().ends_with("</svg>\n") && report.to_json().contains("p99_ns"));
        let file = ServerFile::parse(&format!("{text}p99 = \"1ns\"\n")).unwrap();
        let report = file.report();
        assert_eq!(report.mismatches.len(), 1, "{name}");
        assert!(report.to_text().contains("missed: measure 1: p99 is "), "{}", report.to_text());
    }
}
