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
/// The builder of wheels.
pub(crate) const BUILDER: &[&str] = &["maturin==1.16.0"];
pub(crate) const PYTEST: &str = "pytest==9.2.0";
/// What every test needs, with the packages that the integrations of the short form are tried
/// with.
const TESTS: &[&str] = &[
    PYTEST,
    "mypy==2.4.1",
    "trio==0.35.0",
    "uvloop==0.23.0",
    "fastapi==0.165.0",
    "starlette==1.10.0",
    "uvicorn==0.54.0",
    "flask==3.1.3",
];
/// What the other integrations are tried with.
const INTEGRATIONS: &[&str] = &[
    "django==5.2.19",
    "django-types==0.24.0",
    "httpx==0.28.1",
    "httpx2==2.16.2",
    "requests==2.34.2",
    "types-requests==2.33.0.20261030",
    "aiohttp==3.14.5",
    "openai==3.57.0",
    "langchain-core==1.8.3",
    "websockets==17.4",
    "gunicorn==27.0.1",
];
/// The modules whose types need no package that the short form lacks.
const TYPED: &str = "-m pyrategate -m pyrategate.asgi -m pyrategate.flask -m pyrategate.pace";
const PEERS: &[&str] = &[
    "aiolimiter==1.3.0",
    "limits==5.8.0",
    "pyrate-limiter==4.5.1",
    "ratelimit==2.2.1",
    "token-bucket==0.4.0",
    "asyncio-throttle==1.0.2",
    "throttled-py==3.5.0",
    "redis==8.1.0",
    "slowapi==0.1.10",
    "starlette==1.10.0",
    "flask-limiter==4.1.1",
    "uvloop==0.23.0",
];
/// The interpreters that one wheel is for, as far as they are on the machine.
const INTERPRETERS: [&str; 4] = ["3.10", "3.11", "3.12", "3.13"];

/// Builds the wheel and tests it. The short form builds it without optimization, and tests it with
/// one interpreter.
pub(crate) fn run(at: &Workspace, is_quick: bool) -> Result<()> {
    pictures::tapes(at)?;
    let wheel = wheel(at, !is_quick)?;
    let python = environment(at, "python3", "tests", TESTS, &wheel)?;
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
    for version in INTERPRETERS {
        match interpreter(at, version) {
            Some(found) => test(at, &environment(at, &found, version, &[PYTEST], &wheel)?)?,
            None => println!("python{version} is not on this machine"),
        }
    }
    Ok(())
}

/// Times the package beside others, in one run.
pub(crate) fn bench(at: &Workspace) -> Result<()> {
    let wheel = wheel(at, true)?;
    let python = environment(at, "python3", "bench", PEERS, &wheel)?;
    Ok(cmd!(at, "{python} {FOLDER}/bench/bench.py").run()?)
}

/// Builds the wheel. Returns its path.
fn wheel(at: &Workspace, optimized: bool) -> Result<PathBuf> {
    let maturin = at.pip("python3", &at.target.join("python/builder"), BUILDER)?.join("maturin");
    let wheels = at.emptied("python/wheels")?;
    let profile = if optimized { "release" } else { "dev" };
    let (manifest, target) = (format!("{FOLDER}/Cargo.toml"), &at.target);
    let flags = ["--quiet", "--locked", "--profile", profile];
    cmd!(at, "{maturin} build {flags...} -m {manifest} --out {wheels} --target-dir {target}")
        .run()?;
    at.read_dir(wheels)?.pop().context("maturin wrote no wheel")
}

/// Returns the Python of an environment with these packages and the wheel.
pub(crate) fn environment(
    at: &Workspace,
    python: &str,
    name: &str,
    packages: &[&str],
    wheel: &Path,
) -> Result<PathBuf> {
    let python = at.pip(python, &at.target.join("python").join(name), packages)?.join("python");
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
    pytest.env("RATEGATE_TAPES", at.target.join("tapes"))
}

/// Runs the tests and the examples in the documentation, of the installed package.
fn test(at: &Workspace, python: &Path) -> Result<()> {
    let tests = pytest(at, at.cmd(python)).env(conformance::RECORDS, conformance::folder(at));
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
    let packages = [TESTS, INTEGRATIONS, &["pyright==1.1.414"]].concat();
    let python = environment(at, "python3", "integrations", &packages, wheel)?;
    for what in [&["integrations"][..], &["--doctest-modules", "--pyargs", "pyrategate"]] {
        // Without a package a test fails here, where it is skipped elsewhere.
        in_tests(at, &pytest(at, at.cmd(&python)).env("RATEGATE_INTEGRATIONS", "1").args(what))?;
    }
    types(at, &python, "-p pyrategate")?;
    let pyright = || cmd!(at, "{python} -m pyright --pythonpath {python}");
    in_tests(at, &pyright().args(["--verifytypes", "pyrategate", "--ignoreexternal"]))?;
    in_tests(at, &pyright().arg("../examples"))
}

/// Checks the types of some of the sources.
fn types(at: &Workspace, python: &Path, of: &str) -> Result<()> {
    let of = of.split(' ');
    in_tests(at, &cmd!(at, "{python} -B -m mypy --strict --no-incremental {of...}"))
}

/// Returns an interpreter of that version, from the path or from pyenv.
fn interpreter(at: &Workspace, version: &str) -> Option<String> {
    let name = format!("python{version}");
    let home = std::env::var("HOME").unwrap_or_default();
    let root = std::env::var("PYENV_ROOT").unwrap_or_else(|_| format!("{home}/.pyenv"));
    let versions = at.read_dir(format!("{root}/versions")).unwrap_or_default().into_iter();
    let found =
        versions.map(|folder| folder.join("bin").join(&name).to_string_lossy().into_owned());
    std::iter::once(name.clone())
        .chain(found)
        .find(|python| succeeds(cmd!(at, "{python} --version")))
}
