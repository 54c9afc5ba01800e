//! The pictures of the guides, drawn by the simulator: `![…](pictures/NAME.svg)` in a file of docs/
//! is the scenario `testdata/scenarios/NAME.toml`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

const FOLDER: &str = "docs/pictures";

/// Draws every picture that a guide shows.
pub(crate) fn draw(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join(FOLDER))?;
    for name in shown(root)? {
        fs::write(root.join(FOLDER).join(format!("{name}.svg")), drawing(root, &name)?)?;
        println!("drew {FOLDER}/{name}.svg");
    }
    Ok(())
}

/// Fails unless every picture that a guide shows is what the simulator draws today, and no other
/// lies beside them.
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

fn drawing(root: &Path, name: &str) -> Result<String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let scenario = format!("testdata/scenarios/{name}.toml");
    let arguments = ["run", "--quiet", "--bin", "rategate", "--", "simulate", "--format", "svg"];
    let output = Command::new(program).current_dir(root).args(arguments).arg(&scenario).output();
    let output = output.context("start cargo")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{scenario} does not pass: {complaint}");
    Ok(String::from_utf8(output.stdout)?)
}
