//! Rules for the sources of single crates. The core uses no clock and no float; in `rategate`,
//! clocks are read and waits made only in their own files.

use cargo_metadata::{DependencyKind, Metadata};

use super::Report;
use crate::source::{File, code_only, find_word, line_of};

const CORE: &str = "crates/rategate-core";
const LIBRARY_SOURCES: &str = "crates/rategate/src";

/// Words that no source file of the core may use outside comments.
const CORE_NEVER: [&str; 5] = ["std::", "Instant", "SystemTime", "f32", "unsafe"];

/// The files that convert floats into exact values. They decide nothing.
const CORE_FLOAT_FILES: [&str; 3] = ["rate/float.rs", "ratio.rs", "compensation.rs"];

/// The algorithms. Each is a whole policy of its own, and must not depend on another.
const ALGORITHMS: [&str; 9] = [
    "gcra",
    "sliding_log",
    "fixed_window",
    "pacer",
    "two_timeline",
    "backfill_pool",
    "commit_log",
    "compact_log",
    "concurrency",
];

/// The core's only dependency and its condition: the model checker in place of the core's atomics.
const MODELS: (&str, &str) = ("loom", "cfg(loom)");

const CORE_DISALLOWED_METHODS: [&str; 3] =
    ["std::time::Instant::now", "std::time::SystemTime::now", "std::thread::sleep"];

/// Checks the core's fence: no dependency, no `std`, no clock, no float, and independent
/// algorithms.
pub(super) fn core(files: &[File], metadata: &Metadata, report: &mut Report) {
    core_manifest(files, metadata, report);
    let (mut sources, mut algorithms) = (0, 0);
    for file in files {
        let Some(inner) = file.rust_below(&format!("{CORE}/src")) else { continue };
        sources += 1;
        let code = code_only(&file.text);
        for word in CORE_NEVER {
            forbid(report, &file.path, &code, word, "the core's fence");
        }
        if !CORE_FLOAT_FILES.contains(&inner) {
            forbid(report, &file.path, &code, "f64", "only the core's float files may");
        }
        // The module is `gcra` for `gcra.rs` and for `gcra/state.rs`.
        let module = inner.trim_end_matches(".rs").split('/').next().unwrap_or_default();
        if ALGORITHMS.contains(&module) {
            algorithms += 1;
            forbid_imports(report, &file.path, &code, module, &["clock", "concurrent"]);
        }
        if module == "concurrent" {
            lock_free_forms(report, file, inner, &code);
        } else {
            forbid_atomics(report, &file.path, &code);
        }
    }
    if sources == 0 {
        report.error(format!("{CORE}/src holds no Rust file"));
    }
    Report::checked(&format!("the core's fence: {sources} files, {algorithms} of algorithms"));
}

/// Checks a file of lock-free states: it may import only its own algorithm, and takes its atomics
/// from the module in which the model checker can replace them.
fn lock_free_forms(report: &mut Report, file: &File, inner: &str, code: &str) {
    if inner != "concurrent/sync.rs" {
        forbid_atomics(report, &file.path, code);
    }
    // The algorithm is `gcra` for `concurrent/gcra.rs` and for `concurrent/gcra/ring.rs`. The
    // files `policies.rs` and `any_policy.rs` map all policies to their lock-free states.
    let lock_free = inner.trim_end_matches(".rs").split('/').nth(1).unwrap_or_default();
    if !["policies", "any_policy"].contains(&lock_free) {
        forbid_imports(report, &file.path, code, lock_free, &["clock"]);
    }
}

/// Reports imports of algorithms other than `own`, and of the modules in `besides`.
fn forbid_imports(report: &mut Report, path: &str, code: &str, own: &str, besides: &[&str]) {
    for other in ALGORITHMS.iter().chain(besides).filter(|&&other| other != own) {
        for at in imports_of(code, other) {
            report.error(format!("{path}:{}: imports `{other}`", line_of(code, at)));
        }
    }
}

fn forbid_atomics(report: &mut Report, path: &str, code: &str) {
    for word in ["sync::atomic", "core::sync", "loom"] {
        forbid(report, path, code, word, "atomics are named in concurrent/sync.rs");
    }
}

/// Foreign runtimes and observers, and the one file that may name each. Tokio's clock, its
/// streams of bytes and its choice of threads are three separate matters.
const RUNTIMES: &[(&str, &str)] = &[
    ("tokio::runtime", "future/tokio.rs"),
    ("tokio::time", "future/tokio.rs"),
    ("async_io::Timer", "future/async_io.rs"),
    ("tokio::io", "gate/tokio.rs"),
    ("tokio::sync", "wait/blocking.rs"),
    ("futures_io::", "gate/futures.rs"),
    ("futures_core::", "gate/stream.rs"),
    ("futures_sink::", "gate/sink.rs"),
    ("rayon::iter", "gate/rayon.rs"),
    ("rayon::prelude", "gate/rayon.rs"),
    ("metrics::", "stats/publish.rs"),
    ("tracing::", "stats/events.rs"),
];

/// The files in which waiters are woken. The model checker replaces what `sync.rs` gives them.
const WAITING: [&str; 5] =
    ["shared.rs", "section.rs", "future/driver.rs", "wait/cancel_token.rs", "wait/listeners.rs"];

/// Checks that in `rategate` clocks are read and threads wait only in the files made for that,
/// and that each foreign runtime is named in one file.
pub(super) fn clocks_and_waits(files: &[File], report: &mut Report) {
    let mut sources = 0;
    for file in files {
        let Some(inner) = file.rust_below(LIBRARY_SOURCES) else { continue };
        sources += 1;
        let in_clock = inner.starts_with("clock/") || inner == "future/tokio.rs";
        let in_wait = inner.starts_with("wait/");
        let code = code_only(&file.text);
        if !in_clock {
            for word in ["Instant::now", "SystemTime::now"] {
                forbid(report, &file.path, &code, word, "clocks are read in clock/");
            }
        }
        if !in_clock && !in_wait {
            for word in ["thread::sleep", "park_timeout", "wait_timeout", "wait_timeout_while"] {
                forbid(report, &file.path, &code, word, "waits are made in wait/");
            }
        }
    }
    for file in files {
        let Some(inner) = file.rust_below(LIBRARY_SOURCES) else { continue };
        let code = code_only(&file.text);
        for (word, its_own) in RUNTIMES {
            if inner != *its_own {
                forbid(report, &file.path, &code, word, &format!("it is named in {its_own}"));
            }
        }
        if WAITING.contains(&inner) {
            waiting(report, file, &code);
        }
    }
    Report::checked(&format!("where `rategate` reads clocks and waits: {sources} files"));
}

/// Reports waits that the model checker cannot see. An `Arc` may be the standard library's.
fn waiting(report: &mut Report, file: &File, code: &str) {
    for statement in code.split(';').filter(|statement| statement.contains("std::sync")) {
        for word in ["atomic", "Mutex", "MutexGuard", "Condvar", "RwLock", "mpsc"] {
            if find_word(statement, word).next().is_some() {
                let path = &file.path;
                report.error(format!("{path}: names std's `{word}` (it is taken from sync.rs)"));
            }
        }
    }
}

/// Checks that the oldest supported compiler is named once, in the root manifest.
pub(super) fn oldest_compiler(files: &[File], metadata: &Metadata, report: &mut Report) {
    let mut manifests = 0;
    for file in files {
        if file.path != "Cargo.toml" && !file.path.ends_with("/Cargo.toml") {
            continue;
        }
        manifests += 1;
        let literal =
            file.text.lines().any(|line| line.trim_start().starts_with("rust-version = \""));
        if literal != (file.path == "Cargo.toml") {
            let complaint =
                "`rust-version` must be written out in the root manifest, and only there";
            report.error(format!("{}: {complaint}", file.path));
        }
    }
    for package in metadata.workspace_packages() {
        let inherits = std::fs::read_to_string(&package.manifest_path)
            .is_ok_and(|text| text.lines().any(|line| line == "rust-version.workspace = true"));
        if !inherits {
            report.error(format!("{} lacks `rust-version.workspace = true`", package.name));
        }
    }
    Report::checked(&format!("the oldest compiler is named once: {manifests} manifests"));
}

fn core_manifest(files: &[File], metadata: &Metadata, report: &mut Report) {
    let text_of = |path: &str| {
        let path = format!("{CORE}/{path}");
        files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str())
    };
    for package in metadata.workspace_packages() {
        if *package.name == "rategate-core" {
            let needs = package.dependencies.iter();
            for dependency in needs.filter(|need| need.kind != DependencyKind::Development) {
                let target = dependency.target.as_ref().map(ToString::to_string);
                if dependency.name == MODELS.0 && target.as_deref() == Some(MODELS.1) {
                    continue;
                }
                report.error(format!(
                    "rategate-core depends on {}; it must have no dependencies",
                    dependency.name
                ));
            }
        }
    }
    if !code_only(text_of("src/lib.rs")).contains("#![no_std]") {
        report.error(format!("{CORE}/src/lib.rs lacks `#![no_std]`"));
    }
    let clippy: toml::Table = text_of("clippy.toml").parse().unwrap_or_default();
    let banned = clippy.get("disallowed-methods").and_then(toml::Value::as_array);
    let banned: Vec<&str> = banned.into_iter().flatten().filter_map(method_path).collect();
    for method in CORE_DISALLOWED_METHODS {
        if !banned.contains(&method) {
            report.error(format!("{CORE}/clippy.toml does not disallow `{method}`"));
        }
    }
}

/// Returns the path of an entry. Clippy accepts `"path"` as well as `{ path = "path", … }`.
fn method_path(entry: &toml::Value) -> Option<&str> {
    entry.as_str().or_else(|| entry.get("path")?.as_str())
}

const PROTOCOL: &str = "crates/rategate-protocol";

/// Words that no source file of the codecs may use outside comments.
const PROTOCOL_NEVER: [&str; 8] = [
    "tokio",
    "std::net",
    "std::io",
    "std::fs",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "async",
];

/// The dependencies that the codecs may have. None of them does IO.
const PROTOCOL_NEEDS: [&str; 5] = ["bytes", "itoa", "memchr", "smallvec", "thiserror"];

/// Checks the fence of the codecs: no runtime, socket, file, thread or clock.
pub(super) fn protocol(files: &[File], metadata: &Metadata, report: &mut Report) {
    let mut sources = 0;
    for file in files {
        let Some(_) = file.rust_below(&format!("{PROTOCOL}/src")) else { continue };
        sources += 1;
        let code = code_only(&file.text);
        for word in PROTOCOL_NEVER {
            forbid(report, &file.path, &code, word, "codecs have no IO");
        }
    }
    if sources == 0 {
        report.error(format!("{PROTOCOL}/src holds no Rust file"));
    }
    let packages = metadata.workspace_packages();
    for package in packages.iter().filter(|package| *package.name == "rategate-protocol") {
        for need in package.dependencies.iter().filter(|it| it.kind != DependencyKind::Development)
        {
            if !PROTOCOL_NEEDS.contains(&need.name.as_str()) {
                report.error(format!("rategate-protocol depends on {}", need.name));
            }
        }
    }
    Report::checked(&format!("the codecs' fence: {sources} files without IO"));
}

fn forbid(report: &mut Report, path: &str, code: &str, word: &str, why: &str) {
    for at in find_word(code, word) {
        report.error(format!("{path}:{}: names `{word}` ({why})", line_of(code, at)));
    }
}

/// Returns where `code` imports the module `other` of its own crate, by `crate::other` or
/// `crate::{…, other}`.
fn imports_of(code: &str, other: &str) -> Vec<usize> {
    let starts = ["crate::", "super::"]
        .into_iter()
        .flat_map(|start| find_word(code, start).map(move |at| at + start.len()));
    starts
        .filter(|&at| {
            let path = &code[at..];
            let reach = match path.strip_prefix('{') {
                Some(group) => &group[..group.find(';').unwrap_or(group.len())],
                None => path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""),
            };
            find_word(reach, other).next().is_some()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::imports_of;

    #[test]
    fn an_import_is_found_alone_and_in_a_group() {
        assert_eq!(imports_of("use crate::gcra::Gcra;", "gcra").len(), 1);
        assert_eq!(imports_of("use crate::{rate::Rate, gcra::{Gcra, State}};", "gcra").len(), 1);
        assert_eq!(imports_of("let x = super::gcra::new();", "gcra").len(), 1);
        assert_eq!(imports_of("use crate::rate::Rate; let gcra = 1;", "gcra").len(), 0);
        assert_eq!(imports_of("use crate::gcra_like::X;", "gcra").len(), 0);
    }
}
