//! `pace --shape`: the instants of lines, traces, and shapes that are refused.

use std::f64::consts::TAU;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::common::{Record, Session, folder, max_within, rategate, records, run, seq, stderr};

/// Runs a shape over more lines than it has, and returns the records and the number of lines.
fn shaped(name: &str, shape: &str, options: &[&str]) -> Vec<Record> {
    let log = folder(name).join("log");
    let arguments = ["pace", "--shape", shape, "--log-json", log.to_str().unwrap()];
    let output = run(&[&arguments, options].concat(), &seq(2_000));
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{shape}");
    let records = records(&log);
    if !options.contains(&"--") {
        let passed = seq(u32::try_from(records.len()).unwrap());
        assert!(output.stdout == passed, "{shape}: as many lines as the load has");
    }
    for record in &records {
        assert_eq!(record.start_ns, record.scheduled_ns + record.wait_ns, "{shape}");
    }
    records
}

fn refused(shape: &str, options: &[&str]) -> String {
    let output = run(&[&["pace", "--shape", shape], options].concat(), b"line\n");
    let complaint = stderr(&output);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{shape}: {complaint}");
    assert!(complaint.lines().count() == 1, "{shape}: {complaint}");
    complaint
}

/// The inverse of the integral, in floats: by its formula for a ramp, by halving for a sine.
#[test]
fn each_line_has_its_instant() {
    // 200 + 200 sin over 0.5 s.
    let sine = |t: f64| 200.0 * t + 200.0 * 0.5 / TAU * (1.0 - (TAU * t / 0.5).cos());
    let halved = |n: f64| {
        let (mut low, mut high) = (0.0, 10.0);
        for _ in 0..100 {
            let mid = f64::midpoint(low, high);
            if sine(mid) < n { low = mid } else { high = mid }
        }
        high
    };
    let root = |n: f64| (n / 200.0).sqrt();
    let expected: [(_, _, &dyn Fn(f64) -> f64); 2] =
        [("ramp:0/s>400/s@1s", 201, &root), ("sine:200/s,200/s,500ms@750ms", 182, &halved)];
    for (shape, count, due) in expected {
        let records = shaped("instants", shape, &[]);
        assert_eq!(records.len(), count, "{shape}");
        for (n, record) in (0_u32..).zip(&records) {
            let scheduled = Duration::from_nanos(record.scheduled_ns).as_secs_f64();
            let off_ns = (scheduled - due(f64::from(n))) * 1e9;
            assert!((-0.1..1.1).contains(&off_ns), "{shape}: {n} is {off_ns} ns off");
        }
    }
}

/// A free job, and then the next instant: waits count from the instants.
#[test]
fn commands_start_by_the_shape() {
    let options = ["-j", "2", "--", "sh", "-c", "sleep 0.1"];
    let records = shaped("commands_start_by_the_shape", "constant:100/s@100ms", &options);
    assert_eq!(records.len(), 11);
    for (n, record) in (0..).zip(&records) {
        assert_eq!(record.scheduled_ns, n * 10_000_000);
    }
    // Two start each 100 ms, so that the last starts after 500 ms.
    assert!(records[10].wait_ns >= 390_000_000, "{:?}", records[10]);
}

#[test]
fn a_window_holds_beside_a_shape() {
    let shape = "constant:10/s@200ms then constant:500/s@100ms";
    let records = shaped("window_beside_shape", shape, &["--at-most", "20/200ms"]);
    assert_eq!(records.len(), 53);
    assert!(max_within(&records, 200_000_000) <= 20);
    assert_eq!(records[52].scheduled_ns, 300_000_000);
    assert!(records[52].wait_ns > 200_000_000, "{:?}", records[52]);
}

#[test]
fn late_lines_pass_at_once_and_wait_from_their_instants() {
    let log = folder("late_lines").join("log");
    let shape = ["pace", "--shape", "constant:10/s", "--log-json", log.to_str().unwrap()];
    let mut session = Session::start(&shape);
    session.write(b"0\n");
    session.expect(b"0\n");
    thread::sleep(Duration::from_millis(1_050));
    session.write(&seq(10));
    drop(session.stdin.take());
    assert_eq!((session.rest(), session.status()), (seq(10), Some(0)));
    let records = records(&log);
    for (n, record) in (0..).zip(&records) {
        assert_eq!(record.scheduled_ns, n * 100_000_000);
    }
    assert!(records[1].wait_ns >= 949_000_000, "{:?}", records[1]);
    let (first, last) = (records[1].start_ns, records[10].start_ns);
    assert!(last - first < 900_000_000, "from {first} to {last}: their instants are 900 ms apart");
}

/// The end of a load ends the command, whether more input comes or not.
#[test]
fn the_end_of_a_shape_needs_no_more_input() {
    for command in [vec![], vec!["--", "echo"]] {
        let shape = ["pace", "--shape", "constant:100/s@20ms"];
        let mut session = Session::start(&[&shape, command.as_slice()].concat());
        session.write(&seq(3));
        assert_eq!(session.rest(), seq(3), "{command:?}");
        assert_eq!(session.status(), Some(0), "{command:?}");
    }
}

#[test]
fn equal_seeds_are_equal_instants() {
    let [first, second, other] = [7, 7, 8].map(|seed| {
        let shape = format!("poisson(constant:500/s@100ms),seed={seed}");
        let records = shaped("equal_seeds", &shape, &[]);
        records.iter().map(|record| record.scheduled_ns).collect::<Vec<_>>()
    });
    assert_eq!(first, second);
    assert_ne!(first, other);
}

#[test]
fn a_shape_that_is_no_shape_is_refused_at_its_place() {
    let forms = "expected \"constant:\", \"ramp:\", \"stages:\", \"sawtooth:\", \"sine:\"";
    for (shape, why) in [
        ("", "at the end: expected \"constant:\""),
        ("steady:1/s", &format!("{forms}, \"poisson(\" or a parenthesis")),
        ("ramp:0/s>1/s@10", "at byte 13, \"10\": a duration needs a unit"),
        ("sine:100/s,5O/s,60s", "at byte 11, \"5O/s,60s\": not a rate; write N/PERIOD"),
        ("constant:1MiB/s", "at byte 9, \"1MiB/s\": not a rate; write N/PERIOD as in \"5/s\" or"),
        ("ramp:1/s", "at the end: expected \">\" and the rate at the end"),
        ("sine:1/s,2/s,1s", "the amplitude of a sine is at most its mean rate"),
        ("constant:1/s x2", "the shape never ends"),
        ("constant:1/s@1s then trace:x", &format!("at byte 21, \"trace:x\": {forms}")),
        ("trace:x,speed=0", "the speed \"0\" is not a factor above zero; write speed=10"),
        ("trace:x,speed=fast", "the speed \"fast\" is not a factor above zero"),
        ("trace:/", "not a regular file"),
    ] {
        let complaint = refused(shape, &[]);
        assert!(complaint.starts_with(&format!("rategate: --shape \"{shape}\": ")), "{complaint}");
        assert!(complaint.contains(why), "{shape}: {complaint}");
    }
    let output = run(&["pace", "--shape", "trace:/no/such/file"], b"line\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("rategate: --shape trace:/no/such/file: "));
}

#[test]
fn what_contradicts_a_shape_is_refused() {
    for (options, why) in [
        (["5/s"].as_slice(), "RATE \"5/s\": --shape has the rate; leave out one of the two"),
        (&["--policy", "strict"], "--policy \"strict\": it belongs to a RATE"),
        (&["--burst", "5"], "--burst \"5\": it belongs to a RATE"),
        (&["--catch-up", "0s"], "--catch-up \"0s\": it belongs to a RATE"),
        (&["--jobs", "2"], "--jobs \"2\": nothing to run"),
        (&["--at-most", "5kB/1s"], "--at-most \"5kB/1s\": this counts lines"),
    ] {
        let complaint = refused("constant:5/s", options);
        assert!(complaint.contains(why), "{options:?}: {complaint}");
    }
    let neither = run(&["pace"], b"");
    assert_eq!(neither.status.code(), Some(2));
    assert!(stderr(&neither).contains("<RATE>"));
}

/// Each part has every third instant, and all together have each once.
#[test]
fn parts_on_several_machines_are_the_whole() {
    let shape = "poisson(ramp:0/s>400/s@500ms),seed=7";
    let instants = |name: &str, shape: &str, options: &[&str]| -> Vec<u64> {
        shaped(name, shape, options).iter().map(|record| record.scheduled_ns).collect()
    };
    let trace = trace("split_trace", b"1\n1.01\n1.02\n1.03\n1.04\n1.05\n1.06\n");
    for shape in [shape, &trace] {
        let whole = instants("split_whole", shape, &[]);
        assert!(whole.len() > 6, "{shape}");
        for (part, split) in ["0/3", "1/3", "2/3"].into_iter().enumerate() {
            let of_part: Vec<u64> = whole.iter().copied().skip(part).step_by(3).collect();
            assert_eq!(instants("split_part", shape, &["--split", split]), of_part, "{split}");
        }
    }
    // A fault in the line of another part ends each of them there.
    let torn = self::trace("split_torn", b"1\n1.01\nsoon\n1.03\n");
    let output = run(&["pace", "--shape", &torn, "--split", "0/4"], &seq(9));
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), b"1\n".as_slice()));
    assert!(stderr(&output).contains("line 3 \"soon\""), "{}", stderr(&output));
}

#[test]
fn a_split_that_is_no_part_is_refused() {
    for shape in ["constant:5/s", "trace:/no/such/file"] {
        for (split, why) in [
            ("5/5", "part 5 of 5: parts count from 0, up to one less than their number"),
            ("0/0", "part 0 of 0: parts count from 0"),
            ("7/2", "part 7 of 2"),
            ("2", "not a part; write PART/PARTS, as in 0/5"),
            ("-1/2", "not a part"),
            ("+1/2", "not a part"),
            ("1/18446744073709551616", "not a part"),
            ("", "not a part"),
        ] {
            let complaint = refused(shape, &["--split", split]);
            let start = format!("rategate: --split \"{split}\": {why}");
            assert!(complaint.starts_with(&start), "{complaint}");
        }
    }
    let output = run(&["pace", "5/s", "--split", "0/2"], b"line\n");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(stderr(&output).starts_with("rategate: --split \"0/2\": it splits the instants"));
}

/// A log would empty the trace before it is read, under whatever name it has.
#[test]
fn a_log_does_not_overwrite_its_trace() {
    let shape = trace("log_on_trace", b"1\n2\n");
    let file = folder("log_on_trace_names").join("link");
    let trace = Path::new(shape.strip_prefix("trace:").unwrap());
    std::os::unix::fs::symlink(trace, &file).unwrap();
    for (log, speed) in [(trace, ""), (trace, ",speed=1000"), (file.as_path(), "")] {
        let complaint = refused(&format!("{shape}{speed}"), &["--log-json", log.to_str().unwrap()]);
        let why = "this is the trace of --shape; write the log to a file of its own\n";
        assert!(complaint.contains("--log-json ") && complaint.ends_with(why), "{complaint}");
        assert_eq!(fs::read(trace).unwrap(), b"1\n2\n");
    }
}

/// Writes a trace, and returns the shape.
fn trace(name: &str, text: &[u8]) -> String {
    let file = folder(name).join("trace");
    fs::write(&file, text).unwrap();
    format!("trace:{}", file.display())
}

#[test]
fn a_trace_is_replayed_from_its_first_instant() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"971211336\n971211336.04\n\n971211336.08\n").unwrap();
    let gzip = gzip.finish().unwrap();
    let log = br#"h - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326
{"time": "2000-10-10T20:55:36.040Z"}
2000-10-10T20:55:36.080Z"#;
    for (name, text) in [
        ("trace_plain", b"0.5\n0.54\n0.58\n".as_slice()),
        ("trace_log", log),
        ("trace_gzip", gzip.as_slice()),
    ] {
        let shape = trace(name, text);
        for (speed, step_ns) in
            [("", 40_000_000), (",speed=4", 10_000_000), (",speed=2/3", 60_000_000)]
        {
            let records = shaped("trace_log_json", &format!("{shape}{speed}"), &[]);
            let instants: Vec<u64> = records.iter().map(|record| record.scheduled_ns).collect();
            assert_eq!(instants, [0, step_ns, 2 * step_ns], "{name}{speed}");
        }
    }
}

/// The lines before a fault have passed by then; a first line with a fault passes nothing.
#[test]
fn a_torn_trace_says_which_line() {
    for (name, text, lines, why) in [
        ("torn_unsorted", "1\n1.01\n1.005\n", 2, "line 3 \"1.005\": earlier than the line before"),
        ("torn_malformed", "1\n\nsoon\n", 1, "line 3 \"soon\": no instant; it is a line of an"),
        ("torn_first", "soon\n", 0, "line 1 \"soon\": no instant"),
        ("torn_empty", "", 0, "the file has no instants; write at least one"),
        ("torn_blank", "\n \n", 0, "the file has no instants"),
    ] {
        let shape = trace(name, text.as_bytes());
        let output = run(&["pace", "--shape", &shape], &seq(9));
        let complaint = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert_eq!(output.stdout, seq(lines), "{complaint}");
        let message = format!("rategate: --shape \"{shape}\": {why}");
        assert!(complaint.starts_with(&message), "{complaint}");
    }
}

fn peak_kib(id: u32) -> u64 {
    let status = fs::read_to_string(Path::new("/proc").join(id.to_string()).join("status"));
    let status = status.unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    peak.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// 60 MB of a log, of which nearly all has been read.
#[test]
#[cfg(target_os = "linux")]
fn a_long_trace_takes_no_memory() {
    let agent = "a".repeat(30_000);
    let line = format!("h - - [10/Oct/2000:13:55:36 -0700] \"GET /\" 200 1 \"-\" \"{agent}\"\n");
    let shape = trace("long_trace", line.repeat(2_000).as_bytes());
    let mut session = Session::of(&mut rategate(&["pace", "--shape", &shape]));
    let lines = seq(1_990);
    session.write(&lines);
    let mut read = vec![0; lines.len()];
    session.stdout.read_exact(&mut read).unwrap();
    let peak_kib = peak_kib(session.child.id());
    assert!(peak_kib < 32_000, "{peak_kib} KiB");
}
