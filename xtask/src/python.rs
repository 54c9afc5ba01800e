//! The package for Python: builds the wheel, installs it in an environment of its own as a user
//! would, and tests it there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::servers::packages;
use crate::valgrind::Watched;
use crate::{cargo, conformance, tapes};

pub(crate) const FOLDER: &str = "bindings/python";
/// The guide, from the folder of the tests.
pub(crate) const GUIDE: &str = "../../../docs/guides/python.md";
/// The builder of wheels, and the versions with which the tests and the bench are run.
pub(crate) const BUILDER: &[&str] = &["maturin==1.16.0"];
const TESTS: &[&str] = &["pytest==9.2.0", "mypy==2.4.1", "trio==0.35.0", "uvloop==0.23.0"];
/// The packages that the integrations of the short form are tried with, and those of the others.
const SERVERS: &[&str] =
    &["fastapi==0.165.0", "starlette==1.10.0", "uvicorn==0.54.0", "flask==3.1.3"];
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
const TYPED: &[&str] = &["pyrategate", "pyrategate.asgi", "pyrategate.flask", "pyrategate.pace"];
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
const PYRIGHT: &str = "pyright@1.1.414";
/// The packages of the demo.
const DEMO: &[&str] =
    &["aiolimiter==1.3.0", "fastapi==0.165.0", "gunicorn==23.0.0", "uvicorn==0.54.0"];
/// The interpreters that one wheel is for, as far as they are on the machine.
const INTERPRETERS: [&str; 4] = ["3.10", "3.11", "3.12", "3.13"];

/// Builds the wheel and tests it. The short form builds it without optimization, and tests it with
/// one interpreter.
pub(crate) fn run(root: &Path, target: &Path, is_quick: bool) -> Result<()> {
    let scratch = target.join("python");
    let wheel = wheel(root, target, &scratch, !is_quick)?;
    if !is_quick {
        tapes::write(root, target)?;
    }
    let needed = [TESTS, SERVERS].concat();
    let tests = environment(&scratch.join("tests"), &needed, &wheel)?;
    test(root, target, &tests)?;
    stubs(root, &tests)?;
    types(root, &tests, TYPED.iter().flat_map(|module| ["-m", module]))?;
    if is_quick {
        return Ok(());
    }
    under_valgrind(root, target, &scratch, &tests)?;
    integrations(root, &scratch, &wheel)?;
    for version in INTERPRETERS {
        match interpreter(version) {
            Some(python) => {
                let folder = scratch.join(format!("python{version}"));
                let tests = environment_of(&python, &folder, &["pytest==9.2.0"], &wheel)?;
                test(root, target, &tests)?;
            }
            None => println!("python{version} is not on this machine"),
        }
    }
    Ok(())
}

/// Installs the optimized wheel for the demo. Returns the Python that has all that the demo needs,
/// and those of each version.
pub(crate) fn installed(root: &Path, target: &Path) -> Result<(PathBuf, Vec<PathBuf>)> {
    let scratch = target.join("python");
    let wheel = wheel(root, target, &scratch, true)?;
    let python = environment(&scratch.join("demo"), DEMO, &wheel)?;
    let mut interpreters = Vec::new();
    for found in INTERPRETERS.into_iter().filter_map(interpreter) {
        let folder = scratch.join(format!("demo-{}", interpreters.len()));
        interpreters.push(environment_of(&found, &folder, &["pytest==9.2.0"], &wheel)?);
    }
    Ok((python, interpreters))
}

/// Times the package beside others, in one run.
pub(crate) fn bench(root: &Path, target: &Path) -> Result<()> {
    let scratch = target.join("python");
    let wheel = wheel(root, target, &scratch, true)?;
    let python = environment(&scratch.join("bench"), PEERS, &wheel)?;
    let mut bench = Command::new(python);
    bench.arg(root.join(FOLDER).join("bench").join("bench.py"));
    cargo::run(&mut bench, "the bench failed")
}

/// Builds the wheel. Returns its path.
fn wheel(root: &Path, target: &Path, scratch: &Path, is_release: bool) -> Result<PathBuf> {
    let builder = scratch.join("builder");
    packages::python(&builder, BUILDER)?;
    let wheels = scratch.join(if is_release { "wheels" } else { "wheels-dev" });
    if wheels.exists() {
        fs::remove_dir_all(&wheels).context("remove the wheels of another build")?;
    }
    let mut maturin = Command::new(builder.join("bin").join("maturin"));
    maturin.current_dir(root.join(FOLDER)).args(["build", "--quiet", "--locked", "--out"]);
    maturin.arg(&wheels).arg("--target-dir").arg(target);
    if is_release {
        maturin.arg("--release");
    } else {
        maturin.args(["--profile", "dev"]);
    }
    cargo::run(&mut maturin, "maturin failed")?;
    let mut built = fs::read_dir(&wheels).context("list the wheels")?;
    Ok(built.next().context("maturin wrote no wheel")?.context("list the wheels")?.path())
}

/// Returns the Python of an environment with these packages and the wheel.
fn environment(folder: &Path, needed: &[&str], wheel: &Path) -> Result<PathBuf> {
    packages::python(folder, needed)?;
    install(folder, wheel)
}

fn environment_of(python: &Path, folder: &Path, needed: &[&str], wheel: &Path) -> Result<PathBuf> {
    packages::python_of(python, folder, needed)?;
    install(folder, wheel)
}

fn install(folder: &Path, wheel: &Path) -> Result<PathBuf> {
    let python = folder.join("bin").join("python");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip.args(["--no-deps", "--force-reinstall"]).arg(wheel);
    cargo::run(&mut pip, "`pip install` of the wheel failed")?;
    Ok(python)
}

/// Runs the tests and the examples in the documentation, of the installed package.
fn test(root: &Path, target: &Path, python: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    let pytest = || {
        let mut pytest = Command::new(python);
        pytest.env("RATEGATE_TAPES", target.join("tapes"));
        // Not in the folder of the sources, which would be imported. Nothing is written here.
        pytest.current_dir(folder.join("tests")).args(["-B", "-m", "pytest", "--quiet"]);
        pytest.args(["-p", "no:cacheprovider"]);
        pytest
    };
    let mut tests = pytest();
    conformance::record(&mut tests, target)?;
    cargo::run(tests.arg("."), "the tests of the package for Python failed")?;
    let mut examples = pytest();
    examples.args(["--doctest-modules", "--doctest-glob=*.md", "--pyargs", "pyrategate"]);
    // Those of an integration whose package is not in this environment.
    examples.args(["--doctest-ignore-import-errors", "../README.md", GUIDE]);
    cargo::run(&mut examples, "an example in the documentation for Python failed")
}

/// Runs the tests of the module under valgrind, without those of other packages.
fn under_valgrind(root: &Path, target: &Path, scratch: &Path, python: &Path) -> Result<()> {
    let mut watched = Watched::new(python, scratch, "_core.abi3.so")?;
    let pytest = watched.command().current_dir(root.join(FOLDER).join("tests"));
    // Its own allocator would hide what is accessed after it was freed.
    pytest.env("PYTHONMALLOC", "malloc").env("RATEGATE_TAPES", target.join("tapes"));
    pytest.args(["-B", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "."]);
    pytest.arg("--ignore=integrations");
    watched.run("PyInit__core")
}

/// Tries every integration with its package, and checks its examples and its types.
fn integrations(root: &Path, scratch: &Path, wheel: &Path) -> Result<()> {
    let folder = scratch.join("integrations");
    let python = environment(&folder, &[TESTS, SERVERS, INTEGRATIONS].concat(), wheel)?;
    let tests = root.join(FOLDER).join("tests");
    for what in [&["integrations"][..], &["--doctest-modules", "--pyargs", "pyrategate"]] {
        let mut pytest = Command::new(&python);
        // Without a package a test fails here, where it is skipped elsewhere.
        pytest.current_dir(&tests).env("RATEGATE_INTEGRATIONS", "1");
        pytest.args(["-B", "-m", "pytest", "--quiet", "-p", "no:cacheprovider"]).args(what);
        cargo::run(&mut pytest, "the integrations for Python failed")?;
    }
    types(root, &python, ["-p", "pyrategate"])?;
    pyright(root, scratch, &python)
}

/// Checks by the type checker of editors that every public name has a type, and the examples.
fn pyright(root: &Path, scratch: &Path, python: &Path) -> Result<()> {
    let folder = scratch.join("pyright");
    packages::node(&folder, &[PYRIGHT])?;
    let examples = root.join(FOLDER).join("examples");
    // It finds the package by the first Python of the path.
    let own = python.parent().context("the environment")?.to_path_buf();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([own].into_iter().chain(std::env::split_paths(&path)))?;
    for arguments in [
        &["--verifytypes".as_ref(), "pyrategate".as_ref(), "--ignoreexternal".as_ref()][..],
        &[examples.as_os_str()],
    ] {
        let mut pyright = Command::new(folder.join("node_modules/.bin/pyright"));
        pyright.current_dir(&folder).env("PATH", &path).args(arguments);
        cargo::run(&mut pyright, "pyright finds wrong types, or names that have none")?;
    }
    Ok(())
}

/// Compares the types in the stubs with the module.
fn stubs(root: &Path, python: &Path) -> Result<()> {
    let folder = root.join(FOLDER).join("tests");
    let mut stubtest = Command::new(python);
    stubtest.current_dir(&folder).args(["-B", "-m", "mypy.stubtest", "pyrategate._core"]);
    cargo::run(&mut stubtest, "the stubs differ from the module")
}

/// Checks the types of some of the sources.
fn types<'m>(root: &Path, python: &Path, of: impl IntoIterator<Item = &'m str>) -> Result<()> {
    let mut types = Command::new(python);
    types.current_dir(root.join(FOLDER).join("tests"));
    types.args(["-B", "-m", "mypy", "--strict", "--no-incremental"]).args(of);
    cargo::run(&mut types, "the types of the package for Python are wrong")
}

/// Returns an interpreter of that version, from the path or from pyenv.
fn interpreter(version: &str) -> Option<PathBuf> {
    let name = format!("python{version}");
    let mut found = vec![PathBuf::from(&name)];
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv"));
    for folder in pyenv.into_iter().chain(home) {
        let versions = fs::read_dir(folder.join("versions")).into_iter().flatten().flatten();
        found.extend(versions.map(|version| version.path().join("bin").join(&name)));
    }
    found.into_iter().find(|python| runs(python))
}

fn runs(python: &Path) -> bool {
    let mut probe = Command::new(python);
    probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}
