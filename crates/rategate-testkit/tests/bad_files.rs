//! Files that are no scenario are refused with the line, the key and what would be accepted.

use rategate_testkit::scenario::Scenario;

/// A file, the line in error, and words that the message must contain.
type Case = (&'static str, Option<usize>, &'static [&'static str]);

const CASES: &[Case] = &[
    ("", Some(1), &["[limit]"]),
    ("[limit\n", Some(1), &["not TOML"]),
    ("limit = 3\n", Some(1), &["`limit`", "table"]),
    ("[limit]\nrate = \"5/s\"\n", Some(1), &["needs the key `policy`"]),
    ("[limit]\npolicy = \"leaky\"\n", Some(2), &["leaky", "sliding-log"]),
    ("[limit]\npolicy = \"gcra\"\n", Some(1), &["needs the key `rate`"]),
    ("[limit]\npolicy = \"adaptive\"\n", Some(1), &["needs the key `ceiling`"]),
    ("[limit]\npolicy = \"adaptive\"\nceiling = 0\n", Some(1), &["floor <= first <= ceiling"]),
    (
        "[limit]\npolicy = \"adaptive\"\nfloor = 5\nceiling = 4\n",
        Some(1),
        &["floor <= first <= ceiling"],
    ),
    (
        "[limit]\npolicy = \"adaptive\"\nfirst = 9\nceiling = 4\n",
        Some(1),
        &["floor <= first <= ceiling"],
    ),
    (
        "[limit]\npolicy = \"adaptive\"\nceiling = 4294967296\n",
        Some(3),
        &["`ceiling`", "at most 4294967295"],
    ),
    ("[limit]\npolicy = \"adaptive\"\nceiling = \"9/s\"\n", Some(3), &["a whole number"]),
    (
        "[limit]\npolicy = \"adaptive\"\nceiling = 9\nmethod = \"vegas\"\n",
        Some(4),
        &["`method`", "`vegas`", "`knee` or `aimd`"],
    ),
    (
        "[limit]\npolicy = \"adaptive\"\nceiling = 9\nrate = \"1/s\"\n",
        Some(4),
        &["unknown keys: rate", "ceiling"],
    ),
    (
        "[limit]\npolicy = \"adaptive-rate\"\nceiling = \"9/s\"\n",
        Some(1),
        &["needs the key `floor`"],
    ),
    (
        "[limit]\npolicy = \"adaptive-rate\"\nfloor = \"9/s\"\n",
        Some(1),
        &["needs the key `ceiling`"],
    ),
    (
        "[limit]\npolicy = \"adaptive-rate\"\nfloor = \"9/s\"\nceiling = \"8/s\"\n",
        Some(1),
        &["floor"],
    ),
    (
        "[limit]\npolicy = \"adaptive-rate\"\nfloor = \"1/s\"\nceiling = \"8/s\"\nburst = 0\n",
        Some(1),
        &["at least 1"],
    ),
    (
        "[limit]\npolicy = \"adaptive-rate\"\nfloor = \"1/s\"\nceiling = \"8/s\"\nmethod = \"aimd\"\n",
        Some(5),
        &["unknown keys: method", "burst"],
    ),
    ("[limit]\npolicy = \"gcra\"\nrate = \"5\"\n", Some(3), &["`rate`", "N/PERIOD"]),
    ("[limit]\npolicy = \"gcra\"\nrate = 5\n", Some(3), &["`rate`", "quotes"]),
    ("[limit]\npolicy = \"gcra\"\nrate = \"0/s\"\n", Some(3), &["zero", "never"]),
    ("[limit]\npolicy = \"gcra\"\nrate = \"-5/s\"\n", Some(3), &["negative"]),
    ("[limit]\npolicy = \"gcra\"\nrate = \"NaN/s\"\n", Some(3), &["not a rate"]),
    ("[limit]\npolicy = \"gcra\"\nrate = \"inf/s\"\n", Some(3), &["not a rate"]),
    ("[limit]\npolicy = \"gcra\"\nrate = \"1/0s\"\n", Some(3), &["unlimited"]),
    ("[limit]\npolicy = \"gcra\"\nrate = \"1/fortnight\"\n", Some(3), &["period"]),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"99999999999999999999999999999999999999999/s\"\n",
        Some(3),
        &["64 bits"],
    ),
    ("[limit]\npolicy = \"gcra\"\nrate = \"5/s\"\nburst = 0\n", Some(1), &["at least 1"]),
    ("[limit]\npolicy = \"gcra\"\nrate = \"5/s\"\nburst = -1\n", Some(4), &["zero or more"]),
    ("[limit]\npolicy = \"gcra\"\nrate = \"5/s\"\nburst = 1.5\n", Some(4), &["whole number"]),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"5/s\"\nbrust = 2\n",
        Some(4),
        &["unknown keys: brust", "rate, burst"],
    ),
    (
        "[limit]\npolicy = \"sliding-log\"\npermits = 5\nperiod = \"0s\"\n",
        Some(1),
        &["period", "1ns"],
    ),
    (
        "[limit]\npolicy = \"sliding-log\"\npermits = 5\nperiod = \"10\"\n",
        Some(4),
        &["`period`", "unit"],
    ),
    (
        "[limit]\npolicy = \"sliding-log\"\npermits = 5\nperiod = \"0.5ns\"\n",
        Some(4),
        &["whole number of nanoseconds"],
    ),
    (
        "[limit]\npolicy = \"sliding-log\"\npermits = 5\nperiod = \"600000d\"\n",
        Some(4),
        &["584 years"],
    ),
    (
        "[limit]\npolicy = \"sliding-log\"\npermits = 5\nperiod = \"1s\"\nresolution = \"2s\"\n",
        Some(1),
        &["resolution"],
    ),
    (
        "[limit]\npolicy = \"two-timeline\"\nrate = \"5/s\"\nmode = { damped = 1.5 }\n",
        Some(4),
        &["damping", "strict"],
    ),
    (
        "[limit]\npolicy = \"two-timeline\"\nrate = \"5/s\"\nmode = { burst = 0.5 }\n",
        Some(4),
        &["at least 1"],
    ),
    (
        "[limit]\npolicy = \"two-timeline\"\nrate = \"5/s\"\nmode = \"fast\"\n",
        Some(4),
        &["fast", "average"],
    ),
    ("[limit]\npolicy = \"concurrency\"\npermits = 1\n[clock]\nstop = 1\n", Some(5), &["stop"]),
    ("[limit]\npolicy = \"concurrency\"\npermits = 1\n[[caller]]\n", Some(4), &["`operations`"]),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[[caller]]\noperations = 9999999999\n",
        None,
        &["5000000"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[caller]]\noperations = 1\nlatency = \"-1s\"\n",
        Some(6),
        &["`latency`"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[arrivals]]\nrate = \"never\"\ncount = 1\n",
        Some(5),
        &["finite"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[arrivals]]\nshape = \"sine\"\n",
        Some(5),
        &["`shape`", "is \"sine\"", "\"poisson\" with a rate", "ramp:0/s>100/s@10s"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[arrivals]]\nshape = \"ramp:1/s\"\n",
        Some(5),
        &["`shape`", "\"ramp:1/s\": at byte 8: expected"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[arrivals]]\nshape = \"constant:1/s\"\n",
        Some(5),
        &["over 5000000 calls", "a length or a `count`"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[arrivals]]\nshape = \"constant:6000000/s@1s\"\n",
        Some(5),
        &["over 5000000 calls"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[arrivals]]\nshape = \"constant:1/s\"\ncount = 6000000\n",
        None,
        &["over 5000000 operations"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[arrivals]]\nshape = \"constant:1/s@9s\"\nrate = \"1/s\"\n",
        Some(6),
        &["`rate` is given by the shape too"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[arrivals]]\nshape = \"constant:1/s@9s\"\nseed = 7\n",
        Some(6),
        &["`seed` is given by the shape too"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[arrivals]]\ncount = 9\nshape = \"poisson\"\n",
        Some(4),
        &["`rate`"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[[step]]\nat = \"0s\"\ncall = \"take\"\n",
        Some(6),
        &["take", "reserve"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"refill\"\n",
        Some(6),
        &["backfill-pool"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"cancel\"\nname = \"a\"\n",
        Some(7),
        &["no earlier reserve"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"set\"\nlimit = { policy = \"gcra\" }\n",
        Some(7),
        &["keeps its policy"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\nexpect = { outcome = \"yes\" }\n",
        Some(7),
        &["yes", "granted"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[[check]]\nwindow = \"0s\"\nat_most = 1\n",
        Some(5),
        &["window"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[queue]\nwaiters = 3\n",
        Some(4),
        &["`queue`", "call = \"wait\""],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[queue]\nwaiters = 0\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n",
        Some(5),
        &["`waiters`", "at least 1"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[queue]\nwaiters = 16777216\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n",
        Some(5),
        &["`waiters`", "at most 16777215"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[queue]\nwaiters = \"3\"\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n",
        Some(5),
        &["`waiters`", "whole number"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[queue]\npermits = 0\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n",
        Some(5),
        &["`permits`", "at least 1"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[queue]\non_full = \"evict\"\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n",
        Some(5),
        &["`on_full`", "evict-newest"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[queue]\nlength = 3\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n",
        Some(5),
        &["unknown key `length`", "`waiters`, `permits`, `on_full`"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n[[step]]\nat = \"0s\"\ncall = \"leave\"\n",
        Some(4),
        &["`name`"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"reserve\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"leave\"\nname = \"a\"\n",
        Some(11),
        &["no earlier wait", "a"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"cancel\"\nname = \"a\"\n",
        Some(11),
        &["no earlier reserve", "a"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\nmax_wait = \"1\"\n",
        Some(7),
        &["`max_wait`", "unit"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\nexpect = { outcome = \"overtaken\" }\n",
        Some(7),
        &["overtaken", "deadline-passed"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\nexpect = { end = \"1s\" }\n",
        Some(7),
        &["unknown key `end`", "ended"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[caller]]\noperations = 1\ncall = \"try\"\n",
        Some(6),
        &["`call`", "wait"],
    ),
    (
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[arrivals]]\nrate = \"1/s\"\ncount = 1\ncall = \"queue\"\n",
        Some(7),
        &["queue", "wait"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[step]]\nat = \"0s\"\ncall = \"release\"\n",
        Some(6),
        &["outcome", "concurrency"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[step]]\nat = \"0s\"\ncall = \"release\"\noutcome = \"served\"\n",
        Some(4),
        &["`name`"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[step]]\nat = \"0s\"\ncall = \"release\"\nname = \"a\"\noutcome = \"served\"\n",
        Some(7),
        &["no earlier try, reserve, wait", "a"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[step]]\nat = \"0s\"\ncall = \"try\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"release\"\nname = \"a\"\noutcome = \"failed\"\n",
        Some(12),
        &["`outcome`", "`failed`", "`served`, `dropped`, `ignored`"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[[step]]\nat = \"0s\"\ncall = \"try\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"release\"\nname = \"a\"\noutcome = \"served\"\npermits = 1\n",
        Some(13),
        &["unknown keys: permits", "outcome"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[queue]\nclasses = { slow = 1 }\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\nclass = \"fast\"\n",
        Some(9),
        &["`class`", "\"fast\"", "one of slow"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\nclass = \"fast\"\n",
        Some(7),
        &["`class`", "there are none", "[queue] classes"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[queue]\nclasses = { slow = 0 }\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n",
        Some(5),
        &["`slow`", "at least 1"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[queue]\nclasses = { slow = \"1\" }\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n",
        Some(5),
        &["`slow`", "whole number"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[queue]\nclasses = [\"slow\"]\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n",
        Some(5),
        &["`classes`", "table"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[queue]\nclasses = { slow = 1 }\n",
        Some(4),
        &["`queue`", "call = \"wait\""],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[queue]\nclasses = { slow = 1 }\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\nclass = \"slow\"\n",
        Some(12),
        &["unknown keys: class", "permits"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[queue]\nclasses = { slow = 1 }\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n\
         [[arrivals]]\nrate = \"1/s\"\ncount = 1\nclass = \"slow\"\n",
        Some(12),
        &["`class`", "call = \"wait\""],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[queue]\nclasses = { slow = 1 }\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n\
         [[caller]]\noperations = 1\ncall = \"wait\"\nclass = \"fats\"\n",
        Some(12),
        &["`class`", "one of slow"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[queue]\nclasses = { slow = 1 }\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\nclass = 1\n",
        Some(9),
        &["`class`", "text"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"hold\"\n",
        Some(4),
        &["`ttl`"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"commit\"\nname = \"a\"\nactual = 1\n",
        Some(11),
        &["no earlier hold", "a"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"hold\"\nttl = \"1s\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"commit\"\nname = \"a\"\n",
        Some(9),
        &["`actual`"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"settle\"\nactual = 1\n",
        Some(4),
        &["`name`"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"settle\"\nname = \"a\"\nactual = 1\n",
        Some(7),
        &["no earlier try, reserve, wait", "a"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"settle\"\nname = \"a\"\n",
        Some(8),
        &["`actual`"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"refund\"\nname = \"b\"\n",
        Some(11),
        &["no earlier try, reserve, wait", "b"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"refund\"\nname = \"a\"\npermits = -1\n",
        Some(12),
        &["`permits`", "zero or more"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"cancel\"\nname = \"a\"\n",
        Some(11),
        &["no earlier reserve"],
    ),
    (
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\nname = \"a\"\n\
         [[step]]\nat = \"0s\"\ncall = \"leave\"\nname = \"a\"\n",
        Some(11),
        &["no earlier wait"],
    ),
];

#[test]
fn bad_files_name_the_line_the_key_and_what_is_right() {
    let missed = CASES.iter().filter_map(|(text, line, words)| {
        let error = Scenario::parse(text).expect_err(text);
        let has_all = words.iter().all(|word| error.message.contains(word));
        let is_right = error.line == *line && has_all && !error.message.contains('\n');
        (!is_right).then(|| format!("{text:?}: {line:?}, {words:?}, not {error}"))
    });
    assert_eq!(missed.collect::<Vec<_>>(), Vec::<String>::new());
}

/// The first class is that of all callers that name none, so 255 of 256 classes can have a name.
#[test]
fn classes_have_a_bound() {
    let named = |count: usize| {
        let classes = (0..count).fold(String::new(), |all, class| format!("{all}c{class} = 1\n"));
        Scenario::parse(&format!(
            "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
             [[step]]\nat = \"0s\"\ncall = \"wait\"\n[queue.classes]\n{classes}"
        ))
    };
    assert_eq!(named(255).unwrap().classes.len(), 255);
    let error = named(256).unwrap_err();
    assert_eq!(error.line, Some(263), "{error}");
    assert!(error.message.contains("`c255`") && error.message.contains("255 classes"), "{error}");
}

#[test]
fn junk_is_refused_without_a_panic() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..2_000 {
        let length = random.u64(..200);
        let junk: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        let _ = Scenario::parse(&String::from_utf8_lossy(&junk));
    }
}
