//! The package for Node: builds it, and tries it as it is once installed.

use std::path::{Path, PathBuf};

use anyhow::Result;
use xshell::cmd;

use crate::tools::Workspace;
use crate::{conformance, pack, pictures, valgrind};

pub(crate) const FOLDER: &str = "bindings/node";

/// The options of the compiler, as a strict user sets them.
const COMPILER: &str = "--noEmit --strict --exactOptionalPropertyTypes --target es2022 \
     --lib es2022,esnext.disposable --module nodenext --types node --skipLibCheck";

/// Builds the package and runs its tests. Unless it is `quick`, also under later versions of Node
/// and under valgrind.
pub(crate) fn run(at: &Workspace, quick: bool) -> Result<()> {
    pictures::tapes(at, "node")?;
    let folder = install(at, false)?;
    let tests = test_files(at, &folder)?;
    let _folder = at.push_dir(&folder);
    types(at)?;
    test(at, Path::new("node"), &tests)?;
    programs(at)?;
    if quick || !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(());
    }
    let runtimes = folder.join("runtimes");
    at.npm(&runtimes, "node-runtimes")?;
    for name in ["node22", "node24"] {
        test(at, &runtimes.join("node_modules").join(name).join("bin/node"), &tests)?;
    }
    // Each file alone, as they would run beside each other.
    for file in tests {
        println!("node: {} under valgrind", file.display());
        valgrind::run(at, Path::new("node"), "rategate.node", "napi_register_module_v1", |node| {
            node.env("RATEGATE_TAPES", at.target.join(pictures::tapes_of("node")))
                .arg("--expose-gc")
                .arg(file)
        })?;
    }
    Ok(())
}

/// Times the package beside others.
pub(crate) fn bench(at: &Workspace) -> Result<()> {
    let rivals = install(at, true)?.join("rivals");
    at.npm(&rivals, "node-rivals")?;
    // There it finds the others, and ours in the folder above.
    pack::copy(at, &at.root.join(FOLDER).join("bench"), &rivals.join("bench"))?;
    let _folder = at.push_dir(rivals);
    Ok(cmd!(at, "node --expose-gc bench/main.js").run()?)
}

/// Builds the module, and puts it with the files of the package where npm would. Returns the folder
/// that has the tests beside it.
fn install(at: &Workspace, optimized: bool) -> Result<PathBuf> {
    let folder = at.target.join("node");
    at.npm(&folder, "node-tests")?;
    let built = if optimized {
        at.cargo("build --package rategate-node --release").run()?;
        at.target.join("release")
    } else {
        at.built()?
    };
    let installed = at.emptied("node/node_modules/rategate")?;
    pack::stage(at, &installed)?;
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let module = built.join(format!("{prefix}rategate_node{suffix}"));
    at.copy_file(module, installed.join("rategate.node"))?;
    for name in ["test", "examples"] {
        at.remove_path(folder.join(name))?;
        pack::copy(at, &at.root.join(FOLDER).join(name), &folder.join(name))?;
    }
    Ok(folder)
}

/// Checks the types, of both kinds of modules, on programs that use all of them, and on the samples
/// of the README, each as a module of its own.
fn types(at: &Workspace) -> Result<()> {
    let compile = |words: &str| -> Result<()> {
        let words = COMPILER.split_whitespace().chain(words.split_whitespace());
        Ok(cmd!(at, "node node_modules/typescript/bin/tsc {words...}").quiet().run()?)
    };
    compile("false test/types.mts test/types.cts")?;
    // The frameworks' own declarations have errors under these options.
    compile("true test/integrations.mts")?;
    let samples = blocks(at, "node_modules/rategate/README.md")?;
    let mut files = "true test/readme.d.ts".to_owned();
    for (sample, number) in samples.iter().zip(0..) {
        let path = format!("test/readme-{number}.mts");
        // An export makes it a module.
        at.write_file(&path, format!("{sample}\nexport {{}}\n"))?;
        files = format!("{files} {path}");
    }
    compile(&files)
}

/// Runs the programs of the guide.
fn programs(at: &Workspace) -> Result<()> {
    let guide = at.root.join("docs/guides/node.md");
    for (program, number) in blocks(at, guide)?.iter().zip(1..) {
        // That folder says that they are modules.
        let path = format!("test/guide-{number}.js");
        at.write_file(&path, program)?;
        cmd!(at, "node {path}").run()?;
    }
    Ok(())
}

/// Returns the blocks of JavaScript of a page.
fn blocks(at: &Workspace, page: impl AsRef<Path>) -> Result<Vec<String>> {
    let text = at.read_file(page)?;
    let blocks = text.split("```js\n").skip(1).filter_map(|rest| rest.split("```").next());
    Ok(blocks.map(str::to_owned).collect())
}

fn test(at: &Workspace, node: &Path, files: &[PathBuf]) -> Result<()> {
    let flags = ["--expose-gc", "--test", "--test-timeout=120000", "--test-reporter=spec"];
    let run = cmd!(at, "{node} {flags...} {files...}").quiet();
    let run = run.env("RATEGATE_TAPES", at.target.join(pictures::tapes_of("node")));
    Ok(run.env(conformance::RECORDS, conformance::folder(at)?).run()?)
}

/// Returns the files with tests, in order.
fn test_files(at: &Workspace, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = at.read_dir(folder.join("test"))?;
    files.retain(|file| file.to_string_lossy().ends_with(".test.js"));
    Ok(files)
}
