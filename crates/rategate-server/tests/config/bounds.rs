//! Configurations of any size: what is too much is refused, and the rest is read soon.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use rategate_server::config::{explain, load, to_toml};

use super::{invalid, loaded};

/// Runs a function, and returns how long a processor was busy with it.
///
/// Where the system does not say, that is how long it took, also while other programs ran.
fn busy<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let busy = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    };
    let (since, before) = (Instant::now(), busy());
    let result = run();
    let took =
        busy().zip(before).map_or(since.elapsed(), |(now, before)| now.saturating_sub(before));
    (result, took)
}

#[test]
fn many_rules_load_soon() {
    // As many as a release build loads in a moment; fewer without optimization.
    let count = if cfg!(debug_assertions) { 1_000 } else { 10_000 };
    let (mut native, mut envoy) = (String::new(), "domain: d\ndescriptors:\n".to_owned());
    for nth in 0..count {
        let _ = writeln!(
            native,
            "[[rule]]\nname = \"r{nth}\"\nlimit = \"9/s\"\nmatch = [{{ key = \"plan\", value = \"p{nth}\" }}, \"user\"]"
        );
        let _ = writeln!(
            envoy,
            "- {{key: plan, value: p{nth}, descriptors: [{{key: user, rate_limit: {{unit: day}}}}]}}"
        );
    }
    for (name, text) in [("a.toml", native), ("a.yaml", envoy)] {
        let (loaded, took) = busy(|| loaded(name, &text));
        println!("{count} rules of {name} in {took:?}");
        assert_eq!(loaded.rules.rules.len(), count);
        assert!(took < Duration::from_secs(5), "{name}: {took:?}");
    }
}

/// A call may have any number of unknown keys: the first eight are compared, with at most a
/// hundred known ones.
#[test]
fn unknown_keys_are_no_work_without_end() {
    let mut rules = String::new();
    for nth in 0..500 {
        let key = format!("{}{nth:03}", "k".repeat(40));
        rules += &format!("[[rule]]\nname = \"r{nth}\"\nmatch = [\"{key}\"]\nlimit = \"1/s\"\n");
    }
    let loaded = loaded("r.toml", &rules);
    let unknown: Vec<String> =
        (0..2_000).map(|nth| format!("{}{nth:04}", "u".repeat(38))).collect();
    let mut keys: Vec<_> = unknown.iter().map(|key| (key.as_str(), "x")).collect();
    let near = "k".repeat(40) + "0x1";
    let reported = |keys: &[(&str, &str)]| busy(|| explain(&loaded.rules, "default", keys).hint);
    keys.insert(8, (&near, "x"));
    let (none, took) = reported(&keys);
    assert_eq!(none, None);
    keys.swap(7, 8);
    let (hint, again) = reported(&keys);
    let hint = hint.unwrap();
    assert!(hint.contains("did you mean `k"), "{hint}");
    assert!(took + again < Duration::from_secs(2), "{took:?} and {again:?}");
}

/// Lists multiply in the matcher's tree; a short text must not take all memory.
#[test]
fn lists_multiply_up_to_a_bound() {
    let rule = |name: &str, counts: &[usize]| {
        let entries: String = (0..)
            .zip(counts)
            .map(|(key, count)| {
                let values: Vec<_> = (0..*count).map(|nth| nth.to_string()).collect();
                format!("{{ key = \"{name}{key}\", values = {values:?} }},")
            })
            .collect();
        format!("[[rule]]\nname = \"{name}\"\nlimit = \"5/s\"\nmatch = [{entries}]\n")
    };
    loaded("a.toml", &rule("r", &[100, 100]));
    let over_all: String = (0..5).map(|nth| rule(&format!("r{nth}"), &[600, 500])).collect();
    for text in [rule("r", &[1_000, 1_000, 1_000]), over_all] {
        let error = invalid("a.toml", &text);
        assert_eq!(error.problems().len(), 1, "{error}");
        assert!(error.to_string().contains("1000000"), "{error}");
    }
}

#[test]
fn long_values_are_refused_with_their_place() {
    let name = "x".repeat(4_097);
    let key = "k".repeat(16 << 10);
    let envoy = "domain: d\ndescriptors:\n- key: a\n  ";
    for (file, text, place, message) in [
        ("a.toml", format!("[[rule]]\nlimit = \"1/s\"\nenvoy_name = {name:?}"), "3:14", "4096"),
        ("a.yaml", format!("{envoy}rate_limit: {{name: {name}}}"), "4:22", "a name longer"),
        ("a.yaml", format!("{envoy}metadata: {{a: {key}}}"), "4:13", "at most 16384 are accepted"),
    ] {
        let report = invalid(file, &text).report();
        assert!(report.contains(&format!("{file}:{place}: ")), "{report}");
        assert!(report.contains(message), "{report}");
    }
}

#[test]
fn bombs_are_refused() {
    invalid("a.yaml", &format!("domain: {}", "[".repeat(100_000)));
    let nested = format!("domain: d\ndescriptors: {}", "[{key: a, descriptors: ".repeat(500));
    invalid("a.yaml", &nested);
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let last = format!("*a{}", n - 1);
        laughs += &format!("a{n}: &a{n} [{}]\n", [last.as_str(); 10].join(", "));
    }
    invalid("a.yaml", &laughs);
}

#[test]
fn what_is_no_text_or_too_long_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let reported = |name: &str| load(&folder.path().join(name)).unwrap_err().to_string();
    assert!(reported("").contains("no file"));
    for (name, bytes, message) in [
        ("a.toml", &b"# a\nx = \"\xff\""[..], "a.toml:2:6: a byte that is not UTF-8"),
        ("b.toml", b" \n", "empty"),
        ("c.txt", b"x", "neither .toml nor .yaml"),
    ] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        assert!(reported(name).contains(message), "{}", reported(name));
    }
    let long = std::fs::File::create(folder.path().join("d.toml")).unwrap();
    long.set_len((16 << 20) + 1).unwrap();
    assert!(reported("d.toml").contains("16 MiB"));
    assert!(reported("x.toml").contains("cannot be read"));
}

#[test]
fn a_null_in_metadata_is_not_imported() {
    let text = "domain: d\ndescriptors: [{key: a, metadata: {e: ~}, rate_limit: {unit: day}}]";
    let refused = to_toml(&loaded("a.yaml", text).rules).unwrap_err().to_string();
    assert_eq!(refused, "rule `d.a` has a null in its metadata, which the native format does not");
}
