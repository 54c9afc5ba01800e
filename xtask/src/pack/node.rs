//! The packages of npm: one with the sources for all platforms, and one with the compiled module
//! for each. npm installs the one that fits, as an optional dependency.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::{PLATFORMS, Platform, Release, version};
use crate::cargo;
use crate::node::{FOLDER, copy};

const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Puts the files of the main package into a folder, with the manifest that it is published with.
pub(crate) fn stage(root: &Path, folder: &Path) -> Result<()> {
    let source = root.join(FOLDER);
    let mut manifest = manifest(root)?;
    let version = version(root)?;
    let modules = PLATFORMS.iter().map(|platform| (name(platform), json!(version)));
    manifest["optionalDependencies"] = Value::Object(modules.collect());
    manifest["version"] = json!(version);
    let files = manifest["files"].as_array().context("`files` of package.json")?;
    for file in files.iter().filter_map(Value::as_str).chain(["README.md"]) {
        // The licences are those of the repository.
        let from = if LICENCES.contains(&file) { root.join(file) } else { source.join(file) };
        copy(&from, &folder.join(file))?;
    }
    write(folder, "package.json", &format!("{manifest:#}\n"))
}

/// Writes the main package.
pub(super) fn pack_main(at: &Release) -> Result<()> {
    let folder = at.scratch("npm-main")?;
    stage(&at.root, &folder)?;
    pack(at, &folder)
}

/// Writes the package with the compiled module of a platform, which is in the folder `built`.
pub(super) fn pack_module(at: &Release, platform: &Platform, built: &Path) -> Result<()> {
    let folder = at.scratch(platform.npm)?;
    let module = match platform.target {
        target if target.contains("windows") => "rategate_node.dll",
        target if target.contains("apple") => "librategate_node.dylib",
        _ => "librategate_node.so",
    };
    copy(&built.join(module), &folder.join("rategate.node"))?;
    for licence in LICENCES {
        copy(&at.root.join(licence), &folder.join(licence))?;
    }
    let text = format!("The compiled module of [rategate]({URL}) for {}.\n", platform.target);
    write(&folder, "README.md", &text)?;
    let manifest = module_manifest(&manifest(&at.root)?, &at.version, platform);
    write(&folder, "package.json", &format!("{manifest:#}\n"))?;
    pack(at, &folder)
}

const URL: &str = "https://www.npmjs.com/package/rategate";

/// Returns the manifest of a platform's package.
fn module_manifest(main: &Value, version: &str, platform: &Platform) -> Value {
    let mut manifest = Map::new();
    for key in ["license", "repository", "engines"] {
        manifest.insert(key.to_owned(), main[key].clone());
    }
    let mut words = platform.npm.split('-');
    let mut only = |key: &str| {
        if let Some(word) = words.next() {
            manifest.insert(key.to_owned(), json!([word]));
        }
    };
    only("os");
    only("cpu");
    if platform.is_linux() {
        let libc = if platform.target.ends_with("-musl") { "musl" } else { "glibc" };
        manifest.insert("libc".to_owned(), json!([libc]));
    }
    manifest.insert("name".to_owned(), json!(name(platform)));
    manifest.insert("version".to_owned(), json!(version));
    let description = format!("The compiled module of rategate for {}", platform.target);
    manifest.insert("description".to_owned(), json!(description));
    manifest.insert("main".to_owned(), json!("rategate.node"));
    let files = [&["rategate.node"], &LICENCES[..]].concat();
    manifest.insert("files".to_owned(), json!(files));
    Value::Object(manifest)
}

/// Installs both packages from their files, and runs tests with them. Without the second, the
/// error names it.
pub(super) fn try_packages(at: &Release, platform: &Platform) -> Result<()> {
    let folder = at.scratch("npm")?;
    write(&folder, "package.json", "{ \"type\": \"module\" }")?;
    install(&folder, &file(at, "rategate"))?;
    let mut load = Command::new("node");
    load.current_dir(&folder).args(["--eval", "require('rategate')"]);
    let failed = load.output().context("start node")?;
    let message = String::from_utf8_lossy(&failed.stderr);
    let names = !failed.status.success() && message.contains(&name(platform));
    ensure!(names, "without its module, rategate does not name it:\n{message}");
    install(&folder, &file(at, &format!("rategate-{}", platform.npm)))?;
    copy(&at.root.join(FOLDER).join("test"), &folder.join("test"))?;
    let mut test = Command::new("node");
    test.current_dir(&folder).args(["--expose-gc", "--test", "test/limiter.test.js"]);
    cargo::run(&mut test, "the installed package for Node fails")?;
    let mut version = Command::new("node");
    version.current_dir(&folder).args(["--print", "require('rategate/package.json').version"]);
    let printed = version.output().context("start node")?.stdout;
    let printed = String::from_utf8_lossy(&printed).trim().to_owned();
    ensure!(printed == at.version, "rategate of npm says {printed}, not {}", at.version);
    Ok(())
}

/// Installs a package from its file. No other is looked for.
fn install(folder: &Path, package: &Path) -> Result<()> {
    let mut npm = npm(folder, "install");
    npm.args(["--ignore-scripts", "--no-audit", "--no-fund", "--offline", "--omit=optional"]);
    cargo::run(npm.arg(package), &format!("npm does not install {}", package.display()))
}

/// Writes the package of a folder into that of finished packages.
fn pack(at: &Release, folder: &Path) -> Result<()> {
    let packages = at.packages.join("npm");
    std::fs::create_dir_all(&packages).context("make the folder of packages")?;
    let mut npm = npm(folder, "pack");
    npm.arg("--pack-destination").arg(packages);
    cargo::run(&mut npm, "`npm pack` failed")
}

fn npm(folder: &Path, command: &str) -> Command {
    // Windows has it as a script, which a process can start by its whole name only.
    let mut npm = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
    npm.current_dir(folder).args([command, "--silent"]);
    npm
}

/// Returns the file that npm packs a package into.
fn file(at: &Release, name: &str) -> PathBuf {
    at.packages.join("npm").join(format!("{name}-{}.tgz", at.version))
}

/// Returns the name of a platform's package.
fn name(platform: &Platform) -> String {
    format!("@rategate/{}", platform.npm)
}

fn manifest(root: &Path) -> Result<Value> {
    let path = root.join(FOLDER).join("package.json");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::write(folder.join(name), text).with_context(|| format!("write {name}"))
}
