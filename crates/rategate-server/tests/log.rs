//! The log: addresses of clients appear only in the lines about refused calls, and a start says
//! what it does not know.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::format_push_string,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

#[path = "serve/clients.rs"]
#[allow(dead_code, reason = "the other binary uses all of it")]
mod clients;

use std::io::{self, Read as _, Write};
use std::net::TcpStream;
use std::sync::{Arc, LazyLock, Mutex};

use clients::{PATIENCE, Service, until};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// All lines of the log at the most detailed level.
static LOG: LazyLock<Lines> = LazyLock::new(|| {
    let lines = Lines::default();
    let all = lines.clone();
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    log.with_writer(move || all.clone()).with_ansi(false).init();
    lines
});

/// A refused connection, and failed handshakes, at the most detailed level.
#[test]
fn no_line_about_a_connection_has_an_address() {
    let lines = &*LOG;
    let service = Service::of("[server.limits]\nconnections = 1\n");
    let connect = || {
        let stream = TcpStream::connect(service.at("resp")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut first = connect();
    first.write_all(b"PING\r\n").unwrap();
    let mut received = [0; 7];
    first.read_exact(&mut received).unwrap();
    let second = connect();
    until("it is logged", || lines.text().contains("the connection cap is reached"));
    for stream in [first, second] {
        let port = format!(":{}", stream.local_addr().unwrap().port());
        let text = lines.text();
        let logged = text.lines().filter(|line| line.contains("rategate_server"));
        let logged: Vec<_> = logged.filter(|line| line.contains(&port)).collect();
        assert!(logged.is_empty(), "{logged:?}");
    }
}

/// A start from the file of a process that was killed says since when ids may be unknown. One from
/// the file of an orderly end says nothing of the kind.
#[test]
fn a_start_says_since_when_ids_may_be_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counters");
    let snapshot = format!("[snapshot]\npath = {:?}\nevery = \"1s\"\n", path.display());
    let rule = |name: &str, key: &str| {
        format!("{snapshot}[[rule]]\nname = \"{name}\"\nmatch = [\"{key}\"]\nlimit = \"9/h\"\n")
    };
    let lines = &*LOG;
    let about = |what: &str| {
        let text = lines.text();
        text.lines().filter(|line| line.contains(what)).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut service = Service::of(&rule("api", "user"));
    let id = "0000000000000000000000000000000f";
    let held = service.resp().ask(&["RATEGATE.RESERVE", id, "600000", "api", "3", "ann"]);
    assert!(held.iter().any(|word| word == "granted"), "{held:?}");
    let commit = |service: &Service, id| {
        let ended = service.resp().ask(&["RATEGATE.COMMIT", id, "api", "3", "ann"]);
        assert!(ended.iter().any(|word| word == "committed"), "{ended:?}");
    };
    commit(&service, id);
    service.restart();
    assert_eq!(about("did not end in order"), Vec::<String>::new());
    let is_periodic = || {
        let is_last = br#""is_last":false"#;
        std::fs::read(&path).is_ok_and(|file| file.windows(15).any(|at| at == is_last))
    };
    until("the file is a periodic one", is_periodic);
    let periodic = std::fs::read(&path).unwrap();
    // As after a kill: the last file is a periodic one.
    service.restart_after(|| std::fs::write(&path, &periodic).unwrap());
    let warned = about("did not end in order");
    assert_eq!(warned.len(), 1, "{warned:?}");
    let (_, since) = warned[0].split_once("since=").unwrap();
    let since: jiff::Timestamp = since.split_whitespace().next().unwrap().parse().unwrap();
    let age_s = jiff::Timestamp::now().as_second() - since.as_second();
    assert!((0..600).contains(&age_s), "{}", warned[0]);
    assert!(warned[0].contains("cannot be known"), "{}", warned[0]);
    assert_eq!(about("is not all restored"), Vec::<String>::new());
    service.rewrite(&format!("[keys]\nreservations = 1\n{}", rule("api", "user")));
    let second = "0000000000000000000000000000000e";
    service.resp().ask(&["RATEGATE.RESERVE", second, "600000", "api", "3", "ann"]);
    commit(&service, second);
    service.restart();
    let lost = about("is not all restored");
    assert!(lost.len() == 1 && lost[0].contains("1 ids of settled operations"), "{lost:?}");
}

/// A proxy that states operations, while `[grpc] verbs` is off, reserves nothing and would not
/// notice.
#[test]
fn operations_that_are_ignored_are_counted_and_the_first_is_logged() {
    let lines = &*LOG;
    let call = |key: &str| {
        format!(
            "{{\"domain\":\"unsettled\",\"descriptors\":[{{\"entries\":[\
             {{\"key\":\"{key}\",\"value\":\"reserve\"}},{{\"key\":\"user\",\"value\":\"ann\"}}]}}]}}"
        )
    };
    let warned = || {
        let text = lines.text();
        let about = text.lines().filter(|line| line.contains("`[grpc] verbs` is off"));
        about.map(str::to_owned).collect::<Vec<_>>()
    };
    let ignored = |service: &Service, protocol: &str| {
        let name = format!("rategate_ignored_verbs_total{{protocol=\"{protocol}\"}}");
        service.metric(&name).unwrap()
    };
    let service = Service::of("[grpc]\nverbs = true\n");
    let with_id = call("rategate.verb").replace(
        "\"entries\":[",
        "\"entries\":[{\"key\":\"rategate.id\",\"value\":\"0000000000000000000000000000000a\"},",
    );
    assert_eq!(service.http().post("/json", &with_id).0, 200);
    assert_eq!((ignored(&service, "http").as_str(), warned().len()), ("0", 0));
    let service = Service::of("");
    assert_eq!(service.http().post("/json", &call("plan")).0, 200);
    assert_eq!((ignored(&service, "http").as_str(), warned().len()), ("0", 0));
    for _ in 0..3 {
        assert_eq!(service.http().post("/json", &call("rategate.verb")).0, 200);
    }
    assert_eq!(
        (ignored(&service, "http").as_str(), ignored(&service, "grpc").as_str()),
        ("3", "0")
    );
    let warned = warned();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("domain=\"unsettled\""), "{warned:?}");
    assert!(warned[0].contains("verbs = true"), "{warned:?}");
}

/// Rules keep their counters over a reload. Where one does not, the operator reads which, and why.
#[test]
fn a_rule_whose_counters_start_afresh_is_warned_of() {
    let lines = &*LOG;
    let rule = |algorithm: &str, of: &str, limit: &str| {
        format!(
            "[[rule]]\nname = \"afresh\"\nmatch = [\"{of}\"]\nlimit = \"{limit}\"\n\
             algorithm = \"{algorithm}\"\n"
        )
    };
    let service = Service::of(&rule("gcra", "user", "9/h"));
    let left = || {
        let (_, answer) = service.http().post("/v1/check", "{\"rule\":\"afresh\",\"key\":\"ann\"}");
        let (_, left) = answer.split_once("\"remaining\":").unwrap();
        left.split([',', '}']).next().unwrap().parse::<u64>().unwrap()
    };
    let warned = || {
        let text = lines.text();
        let about = text.lines().filter(|line| line.contains("start afresh"));
        about.map(str::to_owned).collect::<Vec<_>>()
    };
    let reload = |rules: &str| {
        let loads = || service.metric("rategate_config_loads_total{outcome=\"loaded\"}").unwrap();
        let before = loads();
        service.rewrite(rules);
        until("it is loaded", || loads() != before);
    };
    assert_eq!(left(), 8);
    reload(&rule("gcra", "user", "10/h"));
    assert_eq!((left(), warned()), (7, Vec::new()));
    reload(&rule("fixed-window", "user", "10/h"));
    assert_eq!((left(), warned()), (6, Vec::new()));
    reload(&rule("fixed-window", "tenant", "10/h"));
    assert_eq!(left(), 9);
    let warned = warned();
    assert_eq!(warned.len(), 1, "{warned:?}");
    let why = "the keys of its entries change";
    assert!(warned[0].contains("WARN") && warned[0].contains(why), "{warned:?}");
    assert!(warned[0].contains("rule=afresh"), "{warned:?}");
}
