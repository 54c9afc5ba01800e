//! The pictures of the guides, drawn by the simulator. `![…](pictures/NAME.svg)` in a file of
//! docs/ is the scenario `testdata/scenarios/NAME.toml`, or one of `testdata/servers` if its name
//! begins with `server-`. The examples `fleet` and `controllers` print the tables of a page each.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::cargo::cargo;
use crate::page::Page;

const FOLDER: &str = "docs/pictures";

/// The pages whose tables examples print, between two marks.
const PAGES: [(&str, &[&str], &str); 2] =
    [("docs/distributed.md", FLEET, "tables"), ("docs/adaptive.md", CONTROLLERS, "tables")];

const FLEET: &[&str] =
    &["run", "--quiet", "--package", "rategate-testkit", "--example", "fleet", "--"];

const CONTROLLERS: &[&str] =
    &["run", "--quiet", "--package", "rategate-testkit", "--example", "controllers", "--"];

/// Draws every picture that a guide shows, and writes the tables.
pub(crate) fn draw(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join(FOLDER))?;
    for name in shown(root)? {
        fs::write(root.join(FOLDER).join(format!("{name}.svg")), drawing(root, &name)?)?;
        println!("drew {FOLDER}/{name}.svg");
    }
    for (page, example, command) in PAGES {
        fs::write(root.join(page), with_tables(root, page, example, command)?)?;
        println!("wrote the tables of {page}");
    }
    Ok(())
}

/// Fails unless every picture that a guide shows is what the simulator draws today, and the
/// folder has no others.
pub(crate) fn check(root: &Path) -> Result<()> {
    let names = shown(root)?;
    for name in &names {
        let path = format!("{FOLDER}/{name}.svg");
        let stored = fs::read_to_string(root.join(&path)).unwrap_or_default();
        ensure!(stored == drawing(root, name)?, "{path} is out of date; run cargo xtask pictures");
    }
    for entry in fs::read_dir(root.join(FOLDER)).into_iter().flatten() {
        let file = entry?.file_name().to_string_lossy().into_owned();
        let known = file.strip_suffix(".svg").is_some_and(|name| names.contains(name));
        ensure!(known, "{FOLDER}/{file} is shown by no guide");
    }
    println!("{} pictures are what the simulator draws", names.len());
    for (page, example, command) in PAGES {
        let stored = fs::read_to_string(root.join(page)).with_context(|| page.to_owned())?;
        let is_current = stored == with_tables(root, page, example, command)?;
        ensure!(is_current, "{page} is out of date; run cargo xtask pictures");
        println!("the tables of {page} are what the simulator says");
    }
    Ok(())
}

fn shown(root: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(root.join("docs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path)?;
            let pictures =
                text.split("(pictures/").skip(1).filter_map(|rest| rest.split_once(".svg)"));
            names.extend(pictures.map(|(name, _)| name.to_owned()));
        }
    }
    Ok(names)
}

/// Returns the page as it should be.
fn with_tables(root: &Path, page: &str, example: &[&str], command: &str) -> Result<String> {
    let tables = output(root, &[example, &[command]].concat())?;
    Ok(Page::read(root, page, "cargo xtask pictures")?.with(&tables))
}

fn drawing(root: &Path, name: &str) -> Result<String> {
    let scenario = match name.strip_prefix("server-") {
        Some(server) => format!("testdata/servers/{server}.toml"),
        None => format!("testdata/scenarios/{name}.toml"),
    };
    let arguments = ["run", "--quiet", "--bin", "rategate", "--", "simulate", "--format", "svg"];
    output(root, &[&arguments, &[scenario.as_str()][..]].concat())
}

/// Returns the output of cargo with these arguments.
fn output(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = cargo(root).args(arguments).output().context("start cargo")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} does not pass: {complaint}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}
