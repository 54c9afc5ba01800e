//! Files that are no scenario are refused with the line, the key and what would be accepted.

use rategate_testkit::scenario::Scenario;

/// The beginning of a file, the rest of it, the line in error if there is one, and words that the
/// message must contain.
type Case = (&'static str, &'static str, usize, &'static [&'static str]);

const LIMIT: &str = "[limit]\n";
const GCRA: &str = "[limit]\npolicy = 'gcra'\nrate = '1/s'\n";
const IN_FLIGHT: &str = "[limit]\npolicy = 'concurrency'\npermits = 1\n";

const CASES: &[Case] = &[
    ("", "", 1, &["[limit]"]),
    ("", "[limit\n", 1, &["not TOML"]),
    ("", "limit = 3\n", 1, &["`limit`", "table"]),
    ("", "[limit]\nrate = '5/s'\n", 1, &["needs the key `policy`"]),
    (LIMIT, "policy = 'leaky'\n", 2, &["leaky", "sliding-log"]),
    (LIMIT, "policy = 'gcra'\n", 1, &["needs the key `rate`"]),
    (LIMIT, "policy = 'adaptive'\n", 1, &["needs the key `ceiling`"]),
    (LIMIT, "policy = 'adaptive'\nceiling = 0\n", 1, &["floor <= first <= ceiling"]),
    (LIMIT, "policy = 'adaptive'\nfloor = 5\nceiling = 4\n", 1, &["floor <= first <= ceiling"]),
    (LIMIT, "policy = 'adaptive'\nfirst = 9\nceiling = 4\n", 1, &["floor <= first <= ceiling"]),
    (LIMIT, "policy = 'adaptive'\nceiling = 4294967296\n", 3, &["`ceiling`", "at most 4294967295"]),
    (LIMIT, "policy = 'adaptive'\nceiling = '9/s'\n", 3, &["a whole number"]),
    (
        LIMIT,
        "policy = 'adaptive'\nceiling = 9\nmethod = 'vegas'\n",
        4,
        &["`method`", "`vegas`", "`knee` or `aimd`"],
    ),
    (
        LIMIT,
        "policy = 'adaptive'\nceiling = 9\nrate = '1/s'\n",
        4,
        &["unknown keys: rate", "ceiling"],
    ),
    (LIMIT, "policy = 'adaptive-rate'\nceiling = '9/s'\n", 1, &["needs the key `floor`"]),
    (LIMIT, "policy = 'adaptive-rate'\nfloor = '9/s'\n", 1, &["needs the key `ceiling`"]),
    (LIMIT, "policy = 'adaptive-rate'\nfloor = '9/s'\nceiling = '8/s'\n", 1, &["floor"]),
    (
        LIMIT,
        "policy = 'adaptive-rate'\nfloor = '1/s'\nceiling = '8/s'\nburst = 0\n",
        1,
        &["at least 1"],
    ),
    (
        LIMIT,
        "policy = 'adaptive-rate'\nfloor = '1/s'\nceiling = '8/s'\nmethod = 'aimd'\n",
        5,
        &["unknown keys: method", "burst"],
    ),
    (LIMIT, "policy = 'gcra'\nrate = '5'\n", 3, &["`rate`", "N/PERIOD"]),
    (LIMIT, "policy = 'gcra'\nrate = 5\n", 3, &["`rate`", "quotes"]),
    (LIMIT, "policy = 'gcra'\nrate = '0/s'\n", 3, &["zero", "never"]),
    (LIMIT, "policy = 'gcra'\nrate = '-5/s'\n", 3, &["negative"]),
    (LIMIT, "policy = 'gcra'\nrate = 'NaN/s'\n", 3, &["not a rate"]),
    (LIMIT, "policy = 'gcra'\nrate = 'inf/s'\n", 3, &["not a rate"]),
    (LIMIT, "policy = 'gcra'\nrate = '1/0s'\n", 3, &["unlimited"]),
    (LIMIT, "policy = 'gcra'\nrate = '1/fortnight'\n", 3, &["period"]),
    (
        LIMIT,
        "policy = 'gcra'\nrate = '99999999999999999999999999999999999999999/s'\n",
        3,
        &["64 bits"],
    ),
    (LIMIT, "policy = 'gcra'\nrate = '5/s'\nburst = 0\n", 1, &["at least 1"]),
    (LIMIT, "policy = 'gcra'\nrate = '5/s'\nburst = -1\n", 4, &["zero or more"]),
    (LIMIT, "policy = 'gcra'\nrate = '5/s'\nburst = 1.5\n", 4, &["whole number"]),
    (
        LIMIT,
        "policy = 'gcra'\nrate = '5/s'\nbrust = 2\n",
        4,
        &["unknown keys: brust", "rate, burst"],
    ),
    (LIMIT, "policy = 'sliding-log'\npermits = 5\nperiod = '0s'\n", 1, &["period", "1ns"]),
    (LIMIT, "policy = 'sliding-log'\npermits = 5\nperiod = '10'\n", 4, &["`period`", "unit"]),
    (
        LIMIT,
        "policy = 'sliding-log'\npermits = 5\nperiod = '0.5ns'\n",
        4,
        &["whole number of nanoseconds"],
    ),
    (LIMIT, "policy = 'sliding-log'\npermits = 5\nperiod = '600000d'\n", 4, &["584 years"]),
    (
        LIMIT,
        "policy = 'sliding-log'\npermits = 5\nperiod = '1s'\nresolution = '2s'\n",
        1,
        &["resolution"],
    ),
    (
        LIMIT,
        "policy = 'two-timeline'\nrate = '5/s'\nmode = { damped = 1.5 }\n",
        4,
        &["damping", "strict"],
    ),
    (LIMIT, "policy = 'two-timeline'\nrate = '5/s'\nmode = { burst = 0.5 }\n", 4, &["at least 1"]),
    (LIMIT, "policy = 'two-timeline'\nrate = '5/s'\nmode = 'fast'\n", 4, &["fast", "average"]),
    (IN_FLIGHT, "[clock]\nstop = 1\n", 5, &["stop"]),
    (IN_FLIGHT, "[[caller]]\n", 4, &["`operations`"]),
    (IN_FLIGHT, "[[caller]]\noperations = 9999999999\n", 0, &["5000000"]),
    (IN_FLIGHT, "[[caller]]\noperations = 1\nlatency = '-1s'\n", 6, &["`latency`"]),
    (IN_FLIGHT, "[[arrivals]]\nrate = 'never'\ncount = 1\n", 5, &["finite"]),
    (
        GCRA,
        "[[arrivals]]\nshape = 'sine'\n",
        5,
        &["`shape`", "is \"sine\"", "\"poisson\" with a rate", "ramp:0/s>100/s@10s"],
    ),
    (
        GCRA,
        "[[arrivals]]\nshape = 'ramp:1/s'\n",
        5,
        &["`shape`", "\"ramp:1/s\": at byte 8: expected"],
    ),
    (
        GCRA,
        "[[arrivals]]\nshape = 'constant:1/s'\n",
        5,
        &["over 5000000 calls", "a length or a `count`"],
    ),
    (GCRA, "[[arrivals]]\nshape = 'constant:6000000/s@1s'\n", 5, &["over 5000000 calls"]),
    (
        GCRA,
        "[[arrivals]]\nshape = 'constant:1/s'\ncount = 6000000\n",
        0,
        &["over 5000000 operations"],
    ),
    (
        GCRA,
        "[[arrivals]]\nshape = 'constant:1/s@9s'\nrate = '1/s'\n",
        6,
        &["`rate` is given by the shape too"],
    ),
    (
        GCRA,
        "[[arrivals]]\nshape = 'constant:1/s@9s'\nseed = 7\n",
        6,
        &["`seed` is given by the shape too"],
    ),
    (GCRA, "[[arrivals]]\ncount = 9\nshape = 'poisson'\n", 4, &["`rate`"]),
    (IN_FLIGHT, "[[step]]\nat = '0s'\ncall = 'take'\n", 6, &["take", "reserve"]),
    (IN_FLIGHT, "[[step]]\nat = '0s'\ncall = 'refill'\n", 6, &["backfill-pool"]),
    (IN_FLIGHT, "[[step]]\nat = '0s'\ncall = 'cancel'\nname = 'a'\n", 7, &["no earlier reserve"]),
    (
        IN_FLIGHT,
        "[[step]]\nat = '0s'\ncall = 'set'\nlimit = { policy = 'gcra', rate = '1/s' }\n",
        7,
        &["whether they count operations in flight"],
    ),
    (
        IN_FLIGHT,
        "[[step]]\nat = '0s'\ncall = 'try'\nexpect = { outcome = 'yes' }\n",
        7,
        &["yes", "granted"],
    ),
    (IN_FLIGHT, "[[check]]\nwindow = '0s'\nat_most = 1\n", 5, &["window"]),
    (IN_FLIGHT, "[queue]\nwaiters = 3\n", 4, &["`queue`", "call = \"wait\""]),
    (
        IN_FLIGHT,
        "[queue]\nwaiters = 0\n[[step]]\nat = '0s'\ncall = 'wait'\n",
        5,
        &["`waiters`", "at least 1"],
    ),
    (
        IN_FLIGHT,
        "[queue]\nwaiters = 16777216\n[[step]]\nat = '0s'\ncall = 'wait'\n",
        5,
        &["`waiters`", "at most 16777215"],
    ),
    (
        IN_FLIGHT,
        "[queue]\nwaiters = '3'\n[[step]]\nat = '0s'\ncall = 'wait'\n",
        5,
        &["`waiters`", "whole number"],
    ),
    (
        IN_FLIGHT,
        "[queue]\npermits = 0\n[[step]]\nat = '0s'\ncall = 'wait'\n",
        5,
        &["`permits`", "at least 1"],
    ),
    (
        IN_FLIGHT,
        "[queue]\non_full = 'evict'\n[[step]]\nat = '0s'\ncall = 'wait'\n",
        5,
        &["`on_full`", "evict-newest"],
    ),
    (
        IN_FLIGHT,
        "[queue]\nlength = 3\n[[step]]\nat = '0s'\ncall = 'wait'\n",
        5,
        &["unknown key `length`", "`waiters`, `permits`, `on_full`"],
    ),
    (IN_FLIGHT, "[[step]]\nat = '0s'\ncall = 'leave'\n", 4, &["`name`"]),
    (
        IN_FLIGHT,
        "[[step]]\nat = '0s'\ncall = 'reserve'\nname = 'a'\n[[step]]\nat = '0s'\ncall = 'leave'\nname = 'a'\n",
        11,
        &["no earlier wait", "a"],
    ),
    (
        IN_FLIGHT,
        "[[step]]\nat = '0s'\ncall = 'wait'\nname = 'a'\n[[step]]\nat = '0s'\ncall = 'cancel'\nname = 'a'\n",
        11,
        &["no earlier reserve", "a"],
    ),
    (IN_FLIGHT, "[[step]]\nat = '0s'\ncall = 'wait'\nmax_wait = '1'\n", 7, &["`max_wait`", "unit"]),
    (
        IN_FLIGHT,
        "[[step]]\nat = '0s'\ncall = 'wait'\nexpect = { outcome = 'overtaken' }\n",
        7,
        &["overtaken", "deadline-passed"],
    ),
    (
        IN_FLIGHT,
        "[[step]]\nat = '0s'\ncall = 'wait'\nexpect = { end = '1s' }\n",
        7,
        &["unknown key `end`", "ended"],
    ),
    (IN_FLIGHT, "[[caller]]\noperations = 1\ncall = 'try'\n", 6, &["`call`", "wait"]),
    (IN_FLIGHT, "[[arrivals]]\nrate = '1/s'\ncount = 1\ncall = 'queue'\n", 7, &["queue", "wait"]),
    (GCRA, "[[step]]\nat = '0s'\ncall = 'release'\n", 6, &["outcome", "concurrency"]),
    (GCRA, "[[step]]\nat = '0s'\ncall = 'release'\noutcome = 'served'\n", 4, &["`name`"]),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'release'\nname = 'a'\noutcome = 'served'\n",
        7,
        &["no earlier try, reserve, wait", "a"],
    ),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'try'\nname = 'a'\n[[step]]\nat = '0s'\ncall = 'release'\nname = 'a'\noutcome = 'failed'\n",
        12,
        &["`outcome`", "`failed`", "`served`, `dropped`, `ignored`"],
    ),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'try'\nname = 'a'\n[[step]]\nat = '0s'\ncall = 'release'\nname = 'a'\noutcome = 'served'\npermits = 1\n",
        13,
        &["unknown keys: permits", "outcome"],
    ),
    (
        GCRA,
        "[queue]\nclasses = { slow = 1 }\n[[step]]\nat = '0s'\ncall = 'wait'\nclass = 'fast'\n",
        9,
        &["`class`", "\"fast\"", "one of slow"],
    ),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'wait'\nclass = 'fast'\n",
        7,
        &["`class`", "there are none", "[queue] classes"],
    ),
    (
        GCRA,
        "[queue]\nclasses = { slow = 0 }\n[[step]]\nat = '0s'\ncall = 'wait'\n",
        5,
        &["`slow`", "at least 1"],
    ),
    (
        GCRA,
        "[queue]\nclasses = { slow = '1' }\n[[step]]\nat = '0s'\ncall = 'wait'\n",
        5,
        &["`slow`", "whole number"],
    ),
    (
        GCRA,
        "[queue]\nclasses = ['slow']\n[[step]]\nat = '0s'\ncall = 'wait'\n",
        5,
        &["`classes`", "table"],
    ),
    (GCRA, "[queue]\nclasses = { slow = 1 }\n", 4, &["`queue`", "call = \"wait\""]),
    (
        GCRA,
        "[queue]\nclasses = { slow = 1 }\n[[step]]\nat = '0s'\ncall = 'wait'\n[[step]]\nat = '0s'\ncall = 'try'\nclass = 'slow'\n",
        12,
        &["unknown keys: class", "permits"],
    ),
    (
        GCRA,
        "[queue]\nclasses = { slow = 1 }\n[[step]]\nat = '0s'\ncall = 'wait'\n[[arrivals]]\nrate = '1/s'\ncount = 1\nclass = 'slow'\n",
        12,
        &["`class`", "call = \"wait\""],
    ),
    (
        GCRA,
        "[queue]\nclasses = { slow = 1 }\n[[step]]\nat = '0s'\ncall = 'wait'\n[[caller]]\noperations = 1\ncall = 'wait'\nclass = 'fats'\n",
        12,
        &["`class`", "one of slow"],
    ),
    (
        GCRA,
        "[queue]\nclasses = { slow = 1 }\n[[step]]\nat = '0s'\ncall = 'wait'\nclass = 1\n",
        9,
        &["`class`", "text"],
    ),
    (GCRA, "[[step]]\nat = '0s'\ncall = 'hold'\n", 4, &["`ttl`"]),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'try'\nname = 'a'\n[[step]]\nat = '0s'\ncall = 'commit'\nname = 'a'\nactual = 1\n",
        11,
        &["no earlier hold", "a"],
    ),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'hold'\nttl = '1s'\nname = 'a'\n[[step]]\nat = '0s'\ncall = 'commit'\nname = 'a'\n",
        9,
        &["`actual`"],
    ),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'settle'\nactual = 1\n",
        6,
        &["unknown word `settle`", "`commit`"],
    ),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'wait'\nttl = '1s'\nmax_wait = '1s'\n",
        7,
        &["`ttl`", "without `max_wait`"],
    ),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'wait'\nname = 'a'\n[[step]]\nat = '0s'\ncall = 'commit'\nname = 'a'\nactual = 1\n",
        11,
        &["no earlier hold", "a"],
    ),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'try'\nname = 'a'\n[[step]]\nat = '0s'\ncall = 'cancel'\nname = 'a'\n",
        11,
        &["no earlier reserve"],
    ),
    (
        GCRA,
        "[[step]]\nat = '0s'\ncall = 'try'\nname = 'a'\n[[step]]\nat = '0s'\ncall = 'leave'\nname = 'a'\n",
        11,
        &["no earlier wait"],
    ),
];

#[test]
fn bad_files_name_the_line_the_key_and_what_is_right() {
    let missed = CASES.iter().filter_map(|&(begin, rest, line, words)| {
        let text = format!("{begin}{rest}");
        let error = Scenario::parse(&text).expect_err(&text);
        let has_all = words.iter().all(|word| error.message.contains(word));
        let is_right = error.line.unwrap_or(0) == line && !error.message.contains('\n');
        (!is_right || !has_all).then(|| format!("{text:?}: {line}, {words:?}, not {error}"))
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
