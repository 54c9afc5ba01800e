//! Finds circles of imports between the modules of a crate.
//!
//! Two modules are compared where their paths part: an import of `line::bounds` by
//! `ledger::promises` is an arrow from `ledger` to `line`. A module and what is inside it know
//! each other. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use petgraph::Directed;
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::GraphMap;
use proc_macro2::{TokenStream, TokenTree};

use crate::tools::Workspace;

/// The crates whose modules have no circle any more. One that comes back is an error.
const ACYCLIC: &[&str] =
    &["rategate-core", "rategate-testkit", "rategate-ffi", "rategate", "rategate-tower"];

type Path = Vec<String>;

/// Returns the circles of the crates that must have none, and prints those of the others.
pub(super) fn errors(at: &Workspace) -> Result<Vec<String>> {
    let mut errors = Vec::new();
    for package in at.metadata.workspace_packages() {
        let folder = package.manifest_path.parent().context("a manifest without a folder")?;
        let folder = folder.strip_prefix(&at.root)?.join("src/");
        let mut modules = BTreeMap::new();
        for (path, text) in at.files(".rs")? {
            if let Some(inner) = path.strip_prefix(folder.as_str()) {
                let tokens = text.parse().map_err(|error| anyhow::anyhow!("{path}: {error}"))?;
                modules.insert(module_of(inner), Module::read(tokens));
            }
        }
        let circles = circles(&modules);
        let name = package.name.as_str();
        if ACYCLIC.contains(&name) {
            errors
                .extend(circles.iter().map(|it| format!("{name}: a circle of {}", it.join(", "))));
        }
        let largest = circles.iter().map(Vec::len).max();
        let found =
            largest.map_or_else(|| "no circle".into(), |n| format!("circles, of up to {n}"));
        println!("tidy: {name}: {} modules, {found}", modules.len());
    }
    Ok(errors)
}

/// What a file imports.
#[derive(Debug, Default)]
struct Module {
    /// The paths that begin with `crate`, `self` or `super`.
    paths: BTreeSet<Path>,
    /// Where names come from that others can import from here.
    exports: BTreeMap<String, Path>,
}

/// Returns the path of the module that a file below `src` has.
fn module_of(file: &str) -> Path {
    let file = file.trim_end_matches(".rs");
    let file = file.strip_suffix("/mod").unwrap_or(file);
    let is_root = matches!(file, "lib" | "main");
    if is_root { Path::new() } else { file.split('/').map(str::to_owned).collect() }
}

impl Module {
    fn read(tokens: TokenStream) -> Self {
        let mut module = Self::default();
        module.scan(tokens, &[], false);
        module
    }

    /// Collects the paths of tokens, but those of `mod tests { … }`. In the braces of `use a::{…}`
    /// all of them come after `a`.
    fn scan(&mut self, tokens: TokenStream, before: &[String], mut is_export: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: Option<usize>, text: &str| {
            at.and_then(|at| tokens.get(at)).is_some_and(|token| token.to_string() == text)
        };
        let (mut path, mut is_public) = (before.to_vec(), false);
        for (at, token) in tokens.iter().enumerate() {
            let goes_on = is(Some(at + 1), ":") && is(Some(at + 2), ":");
            match token {
                TokenTree::Ident(word) if word == "pub" => is_public = true,
                TokenTree::Ident(word) if word == "use" => is_export = is_public,
                TokenTree::Ident(word) => {
                    is_public = false;
                    path.push(word.to_string());
                }
                TokenTree::Group(group) => {
                    let is_tests = is(at.checked_sub(2), "mod") && is(at.checked_sub(1), "tests");
                    if !is_tests {
                        self.scan(group.stream(), &path, is_export);
                    }
                    path = before.to_vec();
                }
                TokenTree::Punct(mark) => is_export &= mark.as_char() != ';',
                TokenTree::Literal(_) => {}
            }
            let is_colon = matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':');
            if path.len() > before.len() && !goes_on && !is_colon {
                self.import(std::mem::replace(&mut path, before.to_vec()), is_export);
            }
        }
    }

    fn import(&mut self, path: Path, is_export: bool) {
        if let (true, Some(name)) = (is_export, path.iter().rfind(|part| *part != "self")) {
            self.exports.insert(name.clone(), path.clone());
        }
        if matches!(path[0].as_str(), "crate" | "self" | "super") {
            self.paths.insert(path);
        }
    }
}

/// Returns the circles, those with most modules first.
fn circles(modules: &BTreeMap<Path, Module>) -> Vec<Vec<String>> {
    let mut levels: BTreeMap<&[String], GraphMap<&str, (), Directed, std::hash::RandomState>> =
        BTreeMap::new();
    let mut targets = BTreeSet::new();
    for (from, module) in modules {
        targets.extend(module.paths.iter().map(|path| (from, target(modules, from, path, 0))));
    }
    for (from, to) in &targets {
        let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
            levels.entry(&from[..shared]).or_default().add_edge(a, b, ());
        }
    }
    let mut found = Vec::new();
    for (level, graph) in &levels {
        for circle in tarjan_scc(graph).into_iter().filter(|circle| circle.len() > 1) {
            let name = |module: &&str| [level, &[(*module).to_owned()][..]].concat().join("::");
            let mut names: Vec<String> = circle.iter().map(name).collect();
            names.sort();
            found.push(names);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// Returns the module that has what a path names, also where another exports it.
fn target(modules: &BTreeMap<Path, Module>, from: &[String], path: &[String], depth: u32) -> Path {
    let mut at = from.to_vec();
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            name => {
                let inner = [&at[..], &[name.to_owned()]].concat();
                if modules.contains_key(&inner) {
                    at = inner;
                } else {
                    let exported = modules.get(&at).and_then(|module| module.exports.get(name));
                    return match exported {
                        // An export that leads to itself would never end.
                        Some(path) if depth < 8 => target(modules, &at, path, depth + 1),
                        _ => at,
                    };
                }
            }
        }
        rest = after;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, Module, circles, module_of};

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let read =
            |(file, text): &(&str, &str)| (module_of(file), Module::read(text.parse().unwrap()));
        let modules: BTreeMap<_, _> = files.iter().map(read).collect();
        circles(&modules).iter().map(|circle| circle.join(" ")).collect()
    }

    #[test]
    fn circles_are_found_where_paths_part() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use c::{C, inner::D as E};"),
            ("a.rs", "use crate::{b::B, X}; fn f() { crate::c::g() }"),
            ("b/mod.rs", "mod one; mod two; fn f() -> super::C {}"),
            ("b/one.rs", "pub(crate) fn f() { super::two::g(vec![self::x]) }"),
            ("b/two.rs", "use super::one::f; use crate::a;"),
            (
                "c/mod.rs",
                "mod inner; pub use inner::D; #[cfg(test)] mod tests { use crate::a::A; }",
            ),
            ("c/inner.rs", "use super::C;"),
        ];
        assert_eq!(found(&files), ["a b", "b::one b::two"]);
        assert!(found(&files[..2]).is_empty(), "modules that are no files are none");
    }

    #[test]
    fn an_export_is_where_it_comes_from() {
        let files = [
            ("lib.rs", "pub use a::A; pub use b::*;"),
            ("a.rs", "use crate::b::{self, B};"),
            ("b.rs", "use crate::A;"),
        ];
        assert_eq!(found(&files), ["a b"]);
    }
}
