//! The package for C: its header, and its tests and examples with C's tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::servers::debian;
use crate::{cargo, conformance, guide, tapes};

/// The package, below the root.
pub(crate) const PACKAGE: &str = "bindings/c";
const HEADER: &str = "include/rategate.h";

/// Writes the header from the sources.
pub(crate) fn write_header(root: &Path) -> Result<()> {
    let package = root.join(PACKAGE);
    std::fs::write(package.join(HEADER), header(&package)?).context("write the header")
}

/// Fails unless the header is the one of the sources.
fn check_header(package: &Path) -> Result<()> {
    let path = package.join(HEADER);
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let is_same = kept == header(package)?;
    ensure!(is_same, "{} is not of the sources: run `cargo xtask c --write`", path.display());
    Ok(())
}

/// Returns the header of the sources.
fn header(package: &Path) -> Result<String> {
    let settings = cbindgen::Config::from_file(package.join("cbindgen.toml"));
    let settings = settings.map_err(anyhow::Error::msg).context("cbindgen.toml")?;
    let builder = cbindgen::Builder::new().with_config(settings);
    let bindings = builder.with_src(package.join("src/lib.rs")).generate().context("cbindgen")?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    Ok(with_plain_pointers(&String::from_utf8(header).context("the header")?))
}

/// Replaces the types by which the sources tell pointers apart by the pointers: cbindgen writes
/// each as a `typedef`.
fn with_plain_pointers(header: &str) -> String {
    let mut text = String::new();
    let mut pointers = Vec::new();
    for item in header.split_inclusive("\n\n") {
        let typedef = item.lines().find_map(|line| line.strip_prefix("typedef "));
        let words = typedef.and_then(|line| line.strip_suffix(';')?.rsplit_once('*'));
        match words {
            Some((pointed, name)) => pointers.push((format!("{name} "), format!("{pointed}*"))),
            None => text.push_str(item),
        }
    }
    for (name, pointer) in pointers {
        for before in ["(", " "] {
            text = text.replace(&format!("{before}{name}"), &format!("{before}{pointer}"));
        }
    }
    text
}

/// The tests, each a program.
const TESTS: [&str; 8] =
    ["limiter", "errors", "sizes", "keyed", "hub", "threads", "fork", "memory"];
const EXAMPLES: [&str; 3] = ["try", "keyed", "epoll"];
const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-D_GNU_SOURCE"];
/// The allocator's functions, in whose place the linker puts those of `tests/memory.c`.
const WRAPPED: &str =
    "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=aligned_alloc";

/// Compares the header, then compiles and runs tests and examples against the installed package.
///
/// In the long form also the libraries in release, the tests under valgrind and with sanitizers,
/// and the benchmark.
pub(crate) fn run(root: &Path, target: &Path, quick: bool) -> Result<()> {
    let package = root.join(PACKAGE);
    check_header(&package)?;
    let at = Installed::new(&package, target, if quick { "dev" } else { "release" })?;
    at.compile("g++", "tests/header.cpp", "header", &["-std=c++11"], &at.shared()?)?;
    at.start("header")?;
    for test in TESTS {
        at.compile_test(test, test, &[])?;
        at.start(test)?;
        println!("c: {test} passes");
    }
    tapes::write(root, target)?;
    at.compile_test("tapes", "tapes", &[])?;
    let mut player = Command::new(at.folder.join("tapes"));
    conformance::record(player.arg(target.join("tapes")), target)?;
    cargo::run(&mut player, "the player of tapes, for C, failed")?;
    for example in EXAMPLES {
        at.start(&at.compile_example(example)?)?;
    }
    for source in guide::programs(root, "c", &at.folder)? {
        let program = source.trim_end_matches(".c");
        let path = at.folder.join(&source);
        at.compile("gcc", &path.display().to_string(), program, &["-std=c11"], &at.shared()?)?;
        at.start(program)?;
    }
    if quick {
        return Ok(());
    }
    debian("valgrind", "valgrind")?;
    for test in TESTS {
        at.valgrind(test)?;
        // They have allocators of their own.
        if test != "memory" {
            let sanitized = format!("{test}-sanitized");
            let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
            at.compile_test(test, &sanitized, &flags)?;
            at.start(&sanitized)?;
        }
        println!("c: {test} passes under valgrind and with sanitizers");
    }
    at.compile("gcc", "bench/try.c", "bench", &["-std=c11", "-O2"], &at.shared()?)?;
    at.start("bench")
}

/// Compiles the example of an event loop. Returns the program.
pub(crate) fn epoll(root: &Path, target: &Path) -> Result<PathBuf> {
    let package = root.join(PACKAGE);
    let at = Installed::new(&package, target, "release")?;
    Ok(at.folder.join(at.compile_example("epoll")?))
}

/// The package as `make install` puts it into a folder, and programs that are compiled with it.
pub(crate) struct Installed<'p> {
    package: &'p Path,
    /// The folder of the package, below `usr`, and of the programs.
    folder: PathBuf,
}

impl<'p> Installed<'p> {
    fn new(package: &'p Path, target: &Path, profile: &str) -> Result<Self> {
        let folder = target.join("c");
        let mut make = Command::new("make");
        make.current_dir(package).arg("--silent").args(["all", "install"]);
        make.arg(format!("PROFILE={profile}")).arg(format!("TARGET={}", target.display()));
        make.arg(format!("PREFIX={}", folder.join("usr").display()));
        make.arg(format!("CARGO={}", cargo::cargo(package).get_program().display()));
        cargo::run(&mut make, "`make install` of the package for C failed")?;
        Ok(Self::at(package, folder))
    }

    /// Returns the package that was put below `usr` of a folder in another way.
    pub(crate) fn at(package: &'p Path, folder: PathBuf) -> Self {
        Self { package, folder }
    }

    /// Returns what pkg-config says of a program with the shared library.
    fn shared(&self) -> Result<Vec<String>> {
        let lib = self.folder.join("usr/lib");
        let mut flags = self.pkg_config(&[])?;
        flags.push(format!("-Wl,-rpath,{}", lib.display()));
        Ok(flags)
    }

    /// Returns what pkg-config says of a program with the static library.
    fn statically(&self) -> Result<Vec<String>> {
        let mut flags = self.pkg_config(&["--static"])?;
        for flag in &mut flags {
            if flag == "-lrategate" {
                "-l:librategate.a".clone_into(flag);
            }
        }
        Ok(flags)
    }

    fn pkg_config(&self, more: &[&str]) -> Result<Vec<String>> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.folder.join("usr/lib/pkgconfig"));
        let said = command.args(["--cflags", "--libs", "rategate"]).args(more).output();
        let said = said.context("start pkg-config")?;
        ensure!(said.status.success(), "pkg-config does not find the package for C");
        let flags = String::from_utf8(said.stdout).context("the output of pkg-config")?;
        Ok(flags.split_whitespace().map(str::to_owned).collect())
    }

    pub(crate) fn compile_test(&self, test: &str, program: &str, flags: &[&str]) -> Result<()> {
        let wrapped = if test == "memory" { &[WRAPPED][..] } else { &[] };
        let flags = [&["-std=c11", "-g"], flags, wrapped].concat();
        self.compile("gcc", &format!("tests/{test}.c"), program, &flags, &self.statically()?)
    }

    /// Compiles an example with the shared library. Returns the name of the program.
    pub(crate) fn compile_example(&self, example: &str) -> Result<String> {
        let program = format!("example-{example}");
        let source = format!("examples/{example}.c");
        self.compile("gcc", &source, &program, &["-std=c11"], &self.shared()?)?;
        Ok(program)
    }

    fn compile(
        &self,
        compiler: &str,
        source: &str,
        program: &str,
        flags: &[&str],
        libraries: &[String],
    ) -> Result<()> {
        let mut command = Command::new(compiler);
        command.current_dir(self.package).args(STRICT).args(flags).arg(source);
        command.arg("-o").arg(self.folder.join(program)).args(libraries).arg("-lpthread");
        cargo::run(&mut command, &format!("{source} does not compile"))
    }

    pub(crate) fn start(&self, program: &str) -> Result<()> {
        let mut command = Command::new(self.folder.join(program));
        cargo::run(&mut command, &format!("{program}, for C, failed"))
    }

    /// Runs a test under valgrind: no access outside of memory, and no memory that is lost.
    fn valgrind(&self, test: &str) -> Result<()> {
        let mut command = Command::new("valgrind");
        // In a child, the memory of threads that it does not have is lost.
        let leaks = if test == "fork" { "no" } else { "full" };
        command.args(["--quiet", "--error-exitcode=9"]).arg(format!("--leak-check={leaks}"));
        command.args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]);
        cargo::run(command.arg(self.folder.join(test)), &format!("{test} fails under valgrind"))
    }
}

#[cfg(test)]
mod tests {
    use super::with_plain_pointers;

    #[test]
    fn types_of_pointers_become_pointers() {
        let header = "#define ONE 1\n\n// A text.\ntypedef const char *Text;\n\n\
                      typedef struct own own;\n\nint f(Text Texts,\n      Text other);\n";
        let plain = "#define ONE 1\n\ntypedef struct own own;\n\n\
                     int f(const char *Texts,\n      const char *other);\n";
        assert_eq!(with_plain_pointers(header), plain);
    }
}
