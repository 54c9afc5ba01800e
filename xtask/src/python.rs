//! The package for Python: builds the wheel, installs it in an environment of its own as a user
//! would, and tests it there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Cmd, cmd};

use crate::tools::{Workspace, succeeds};
use crate::{conformance, pictures, valgrind};

pub(crate) const FOLDER: &str = "bindings/python";
/// The guide, from the folder of the tests.
pub(crate) const GUIDE: &str = "../../../docs/guides/python.md";
/// The modules whose types need no package that the short form lacks.
const TYPED: &str = "-m pyrategate -m pyrategate.asgi -m pyrategate.flask -m pyrategate.pace";
/// The interpreters that one wheel is for, as far as they are on the path.
const INTERPRETERS: [&str; 4] = ["python3.10", "python3.11", "python3.12", "python3.13"];

/// Builds the wheel and tests it. The short form builds it without optimization, and tests it with
/// one interpreter.
pub(crate) fn run(at: &Workspace, is_quick: bool) -> Result<()> {
    pictures::tapes(at, "python")?;
    let wheel = wheel(at, !is_quick)?;
    let python = environment(at, "python3", "tests", &["pytest", "python-tests"], &wheel)?;
    test(at, &python)?;
    // Compares the types in the stubs with the module.
    in_tests(at, &cmd!(at, "{python} -B -m mypy.stubtest pyrategate._core"))?;
    types(at, &python, TYPED)?;
    if is_quick {
        return Ok(());
    }
    // Its own allocator would hide what is accessed after it was freed.
    valgrind::run(at, &python, "_core.abi3.so", "PyInit__core", |python| {
        let pytest = pytest(at, python).env("PYTHONMALLOC", "malloc");
        pytest.args([FOLDER, "--ignore-glob=*/integrations/*"])
    })?;
    integrations(at, &wheel)?;
    for name in INTERPRETERS {
        if succeeds(cmd!(at, "{name} --version")) {
            test(at, &environment(at, name, name, &["pytest"], &wheel)?)?;
        } else {
            println!("{name} is not on the path");
        }
    }
    Ok(())
}

/// Times the package beside others, in one run.
pub(crate) fn bench(at: &Workspace) -> Result<()> {
    let wheel = wheel(at, true)?;
    let python = environment(at, "python3", "bench", &["python-rivals"], &wheel)?;
    Ok(cmd!(at, "{python} {FOLDER}/bench/bench.py").run()?)
}

/// Builds the wheel. Returns its path.
fn wheel(at: &Workspace, optimized: bool) -> Result<PathBuf> {
    let maturin =
        at.pip("python3", &at.target.join("python/builder"), &["maturin"])?.join("maturin");
    let wheels = at.emptied("python/wheels")?;
    let profile = if optimized { "release" } else { "dev" };
    let (manifest, target) = (format!("{FOLDER}/Cargo.toml"), &at.target);
    let flags = ["--quiet", "--locked", "--profile", profile];
    cmd!(at, "{maturin} build {flags...} -m {manifest} --out {wheels} --target-dir {target}")
        .run()?;
    at.read_dir(wheels)?.pop().context("maturin wrote no wheel")
}

/// Returns the Python of an environment with these lists of packages and the wheel.
pub(crate) fn environment(
    at: &Workspace,
    python: &str,
    name: &str,
    lists: &[&str],
    wheel: &Path,
) -> Result<PathBuf> {
    let python = at.pip(python, &at.target.join("python").join(name), lists)?.join("python");
    let pip = cmd!(at, "{python} -m pip install --quiet --disable-pip-version-check --no-deps");
    pip.arg("--force-reinstall").arg(wheel).quiet().run()?;
    Ok(python)
}

/// Runs a command in the folder of the tests, not in that of the sources, which would be imported.
pub(crate) fn in_tests(at: &Workspace, command: &Cmd<'_>) -> Result<()> {
    let _folder = at.push_dir(format!("{FOLDER}/tests"));
    Ok(command.run()?)
}

/// Lets Python run pytest, which writes nothing.
pub(crate) fn pytest<'a>(at: &Workspace, python: Cmd<'a>) -> Cmd<'a> {
    let pytest = python.args(["-B", "-m", "pytest", "--quiet", "-p", "no:cacheprovider"]);
    pytest.env("RATEGATE_TAPES", at.target.join(pictures::tapes_of("python")))
}

/// Runs the tests and the examples in the documentation, of the installed package.
fn test(at: &Workspace, python: &Path) -> Result<()> {
    let tests = pytest(at, at.cmd(python)).env(conformance::RECORDS, conformance::folder(at)?);
    in_tests(at, &tests.arg("."))?;
    let examples = pytest(at, at.cmd(python));
    let examples = examples.args(["--doctest-modules", "--doctest-glob=*.md"]);
    // Those of an integration whose package is not in this environment.
    let examples = examples.arg("--doctest-ignore-import-errors");
    in_tests(at, &examples.args(["--pyargs", "pyrategate", "../README.md", GUIDE]))
}

/// Tries every integration with its package, and checks its examples and its types, also by the
/// type checker of editors.
fn integrations(at: &Workspace, wheel: &Path) -> Result<()> {
    let packages = ["pytest", "python-tests", "python-integrations"];
    let python = environment(at, "python3", "integrations", &packages, wheel)?;
    for what in [&["integrations"][..], &["--doctest-modules", "--pyargs", "pyrategate"]] {
        // Without a package a test fails here, where it is skipped elsewhere.
        in_tests(at, &pytest(at, at.cmd(&python)).env("RATEGATE_INTEGRATIONS", "1").args(what))?;
    }
    types(at, &python, "-p pyrategate")?;
    // It asks the first `python` of the path where packages are, whatever `--pythonpath` says.
    let folder = python.parent().unwrap_or(&python).display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let pyright = || cmd!(at, "{python} -m pyright").env("PATH", &path);
    in_tests(at, &pyright().args(["--verifytypes", "pyrategate", "--ignoreexternal"]))?;
    in_tests(at, &pyright().arg("../examples"))
}

/// Checks the types of some of the sources.
fn types(at: &Workspace, python: &Path, of: &str) -> Result<()> {
    let of = of.split(' ');
    in_tests(at, &cmd!(at, "{python} -B -m mypy --strict --no-incremental {of...}"))
}
