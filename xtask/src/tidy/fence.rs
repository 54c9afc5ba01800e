//! Rules for the sources of single crates. The core uses no clock and no float; in `rategate`,
//! clocks are read and waits made only in their own files.

use cargo_metadata::{DependencyKind, Metadata};

use super::Report;
use crate::source::{File, code_only, find_word, line_of};

const CORE: &str = "crates/rategate-core";
const CORE_SOURCES: &str = "crates/rategate-core/src";
const LIBRARY_SOURCES: &str = "crates/rategate/src";
const CODEC_SOURCES: &str = "crates/rategate-protocol/src";

/// Words that only some files of a folder may use outside comments.
struct Fence {
    folder: &'static str,
    words: &'static [&'static str],
    /// The files that may use them, and the folders, with a slash at the end.
    allowed: &'static [&'static str],
    /// The end of the message, after the allowed files.
    why: &'static str,
}

/// Words that no source file of the codecs may use outside comments.
const CODECS_NEVER: [&str; 8] = [
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
const CODECS_NEED: [&str; 7] =
    ["bytes", "itoa", "memchr", "schemars", "serde", "smallvec", "thiserror"];

/// Foreign runtimes and observers have one file each. Tokio's clock, its streams of bytes and its
/// choice of threads are three separate matters.
const FENCES: &[Fence] = &[
    Fence {
        folder: CORE_SOURCES,
        words: &["std::", "Instant", "SystemTime", "f32", "unsafe"],
        allowed: &[],
        why: "the core's fence",
    },
    Fence {
        folder: CORE_SOURCES,
        words: &["f64"],
        allowed: &["rate/float.rs", "ratio.rs", "compensation.rs"],
        why: "which convert floats into exact values, and decide nothing",
    },
    Fence {
        folder: CORE_SOURCES,
        words: &["sync::atomic", "core::sync", "loom"],
        allowed: &["concurrent/sync.rs"],
        why: "where the model checker replaces atomics",
    },
    Fence {
        folder: LIBRARY_SOURCES,
        words: &["Instant::now", "SystemTime::now"],
        allowed: &["clock/", "future/tokio.rs"],
        why: "where clocks are read",
    },
    Fence {
        folder: LIBRARY_SOURCES,
        words: &["thread::sleep", "park_timeout", "wait_timeout", "wait_timeout_while"],
        allowed: &["clock/", "future/tokio.rs", "wait/"],
        why: "where waits are made",
    },
    Fence { folder: CODEC_SOURCES, words: &CODECS_NEVER, allowed: &[], why: "codecs have no IO" },
    runtime(&["tokio::runtime", "tokio::time"], &["future/tokio.rs"]),
    runtime(&["async_io::Timer"], &["future/async_io.rs"]),
    runtime(&["tokio::io"], &["adapter/tokio.rs"]),
    runtime(&["tokio::sync"], &["wait/blocking.rs"]),
    runtime(&["futures_io::"], &["adapter/futures.rs"]),
    runtime(&["futures_core::"], &["adapter/stream.rs"]),
    runtime(&["futures_sink::"], &["adapter/sink.rs"]),
    runtime(&["rayon::iter", "rayon::prelude"], &["adapter/rayon.rs"]),
    runtime(&["metrics::"], &["stats/publish.rs"]),
    runtime(&["tracing::"], &["stats/events.rs"]),
];

const fn runtime(words: &'static [&'static str], allowed: &'static [&'static str]) -> Fence {
    Fence { folder: LIBRARY_SOURCES, words, allowed, why: "which is its one file" }
}

/// The algorithms. Each is a whole policy of its own, and must not depend on another.
const ALGORITHMS: [&str; 11] = [
    "gcra",
    "sliding_log",
    "fixed_window",
    "pacer",
    "two_timeline",
    "warm_up",
    "backfill_pool",
    "commit_log",
    "compact_log",
    "concurrency",
    "calendar",
];

/// The core's only dependency and its condition: the model checker in place of the core's atomics.
const MODELS: (&str, &str) = ("loom", "cfg(loom)");

const CORE_DISALLOWED_METHODS: [&str; 3] =
    ["std::time::Instant::now", "std::time::SystemTime::now", "std::thread::sleep"];

/// Checks who uses which word, that the core has no dependency, that its algorithms are
/// independent, and that waits of `rategate` can be modelled.
pub(super) fn check(files: &[File], metadata: &Metadata, report: &mut Report) {
    core_manifest(files, metadata, report);
    codec_dependencies(metadata, report);
    let (mut core_files, mut library_files, mut algorithm_files, mut codec_files) = (0, 0, 0, 0);
    for file in files {
        if let Some(inner) = file.rust_below(CORE_SOURCES) {
            core_files += 1;
            let code = code_only(&file.text);
            fences(report, CORE_SOURCES, file, inner, &code);
            algorithm_files += usize::from(algorithms(report, &file.path, inner, &code));
        } else if let Some(inner) = file.rust_below(LIBRARY_SOURCES) {
            library_files += 1;
            let code = code_only(&file.text);
            fences(report, LIBRARY_SOURCES, file, inner, &code);
            if WAITING.contains(&inner) {
                waiting(report, file, &code);
            }
        } else if let Some(inner) = file.rust_below(CODEC_SOURCES) {
            codec_files += 1;
            fences(report, CODEC_SOURCES, file, inner, &code_only(&file.text));
        }
    }
    if core_files == 0 || library_files == 0 || codec_files == 0 {
        report.error("the core, the library or the codecs hold no Rust file");
    }
    Report::checked(&format!(
        "fences: {core_files} files of the core, {algorithm_files} of algorithms, {library_files} of \
         the library, {codec_files} of codecs"
    ));
}

/// Reports dependencies of the codecs that may do IO.
fn codec_dependencies(metadata: &Metadata, report: &mut Report) {
    let packages = metadata.workspace_packages();
    for package in packages.iter().filter(|package| *package.name == "rategate-protocol") {
        let needs = package.dependencies.iter();
        for need in needs.filter(|it| it.kind != DependencyKind::Development) {
            if !CODECS_NEED.contains(&need.name.as_str()) {
                report.error(format!("rategate-protocol depends on {}", need.name));
            }
        }
    }
}

/// Reports the words that this file of a folder may not use.
fn fences(report: &mut Report, folder: &str, file: &File, inner: &str, code: &str) {
    let is_in = |place: &&str| inner == *place || place.ends_with('/') && inner.starts_with(*place);
    for fence in FENCES.iter().filter(|fence| fence.folder == folder) {
        if !fence.allowed.iter().any(is_in) {
            let why = [fence.allowed, &[fence.why]].concat().join(", ");
            fence.words.iter().for_each(|word| forbid(report, &file.path, code, word, &why));
        }
    }
}

/// Checks that an algorithm imports no other, and returns `true` for a file of one. A lock-free
/// state may import only its own: that of `concurrent/gcra.rs` and `concurrent/gcra/ring.rs` is
/// `gcra`.
fn algorithms(report: &mut Report, path: &str, inner: &str, code: &str) -> bool {
    let mut modules = inner.trim_end_matches(".rs").split('/');
    let module = modules.next().unwrap_or_default();
    let is_algorithm = ALGORITHMS.contains(&module);
    if is_algorithm {
        forbid_imports(report, path, code, module, &["clock", "concurrent"]);
    }
    let lock_free = modules.next().unwrap_or_default();
    // The files `policies.rs` and `any_policy.rs` map all policies to their lock-free states.
    if module == "concurrent" && !["policies", "any_policy"].contains(&lock_free) {
        forbid_imports(report, path, code, lock_free, &["clock"]);
    }
    is_algorithm
}

/// Reports imports of algorithms other than `own`, and of the modules in `besides`.
fn forbid_imports(report: &mut Report, path: &str, code: &str, own: &str, besides: &[&str]) {
    for other in ALGORITHMS.iter().chain(besides).filter(|&&other| other != own) {
        for at in imports_of(code, other) {
            report.error(format!("{path}:{}: imports `{other}`", line_of(code, at)));
        }
    }
}

/// The files in which waiters are woken. The model checker replaces what `sync.rs` gives them.
const WAITING: [&str; 10] = [
    "shared.rs",
    "shared/sections.rs",
    "shared/waiting.rs",
    "section.rs",
    "section/returns.rs",
    "section/state.rs",
    "section/woken.rs",
    "future/driver.rs",
    "wait/cancel_token.rs",
    "wait/listeners.rs",
];

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
    use super::{FENCES, File, LIBRARY_SOURCES, Report, fences, imports_of};

    #[test]
    fn a_word_is_allowed_in_its_files_only() {
        let errors = |inner: &str, code: &str| {
            let file = File { path: inner.to_owned(), text: String::new() };
            let mut report = Report::default();
            fences(&mut report, LIBRARY_SOURCES, &file, inner, code);
            report.errors
        };
        let read = "let now = Instant::now();";
        assert_eq!(
            errors("keyed/mod.rs", read),
            [
                "keyed/mod.rs:1: names `Instant::now` (clock/, future/tokio.rs, where clocks are read)"
            ]
        );
        assert!(errors("clock/system.rs", read).is_empty());
        assert_eq!(errors("adapter/tokio.rs", "use tokio::{io, time};\nuse tokio::time;").len(), 1);
        assert!(FENCES.iter().all(|fence| !fence.words.is_empty()));
    }

    #[test]
    fn an_import_is_found_alone_and_in_a_group() {
        assert_eq!(imports_of("use crate::gcra::Gcra;", "gcra").len(), 1);
        assert_eq!(imports_of("use crate::{rate::Rate, gcra::{Gcra, State}};", "gcra").len(), 1);
        assert_eq!(imports_of("let x = super::gcra::new();", "gcra").len(), 1);
        assert_eq!(imports_of("use crate::rate::Rate; let gcra = 1;", "gcra").len(), 0);
        assert_eq!(imports_of("use crate::gcra_like::X;", "gcra").len(), 0);
    }
}
