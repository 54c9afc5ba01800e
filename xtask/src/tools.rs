//! The folders that tasks work in, and the programs of others that they install there.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand};
use xshell::{Cmd, PushEnv, Shell, cmd};

/// All packages but this one, with one set of features.
pub(crate) const ALL: &str = "--workspace --exclude xtask --all-features";

/// A shell in the root of the workspace, and where cargo puts what it builds.
pub(crate) struct Workspace {
    shell: Shell,
    pub(crate) metadata: Metadata,
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    /// The packages of others, by the name of their list.
    packages: BTreeMap<String, Vec<String>>,
}

impl Deref for Workspace {
    type Target = Shell;

    fn deref(&self) -> &Shell {
        &self.shell
    }
}

impl Workspace {
    /// Finds the workspace, so that tasks run from any of its folders.
    pub(crate) fn here() -> Result<Self> {
        let metadata = MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
        let root = metadata.workspace_root.clone().into_std_path_buf();
        let target = metadata.target_directory.clone().into_std_path_buf();
        let shell = Shell::new()?;
        shell.change_dir(&root);
        let packages = toml::from_str(include_str!("../packages.toml"))?;
        Ok(Self { shell, metadata, root, target, packages })
    }

    /// Returns a command of cargo with these words.
    pub(crate) fn cargo<'a>(&'a self, words: &str) -> Cmd<'a> {
        let words = words.split_whitespace();
        cmd!(self.shell, "cargo {words...}")
    }

    /// Builds libraries, programs and examples with the features that the tests have, so that
    /// nothing is compiled twice. Returns the folder that has them.
    pub(crate) fn built(&self) -> Result<PathBuf> {
        self.cargo(&format!("build --quiet {ALL} --lib --bins --examples")).run()?;
        Ok(self.target.join("debug"))
    }

    /// Has clippy's compiler build what the workspace has, until this is dropped: what it finds
    /// fails the build, and nothing is compiled for lints alone.
    pub(crate) fn linted(&self) -> Result<[PushEnv<'_>; 2]> {
        let sysroot = cmd!(self.shell, "rustc --print sysroot").quiet().read()?;
        let clippy = Path::new(&sysroot).join("bin/clippy-driver");
        let flags = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";
        let compiler = self.shell.push_env("RUSTC_WORKSPACE_WRAPPER", clippy);
        Ok([compiler, self.shell.push_env("CLIPPY_ARGS", flags)])
    }

    /// Returns the files that git tracks or would track whose paths end so, with their paths from
    /// the root.
    pub(crate) fn files(&self, end: &str) -> Result<Vec<(String, String)>> {
        let list = cmd!(
            self.shell,
            "git -c safe.directory=* ls-files --cached --others --exclude-standard"
        );
        let list = list.quiet().read()?;
        // A tracked file may have been deleted since.
        let paths =
            list.lines().filter(|path| path.ends_with(end) && self.root.join(path).is_file());
        paths.map(|path| Ok((path.to_owned(), self.shell.read_file(path)?))).collect()
    }

    /// Installs lists of packages of PyPI into an environment of this interpreter. Returns its
    /// programs.
    pub(crate) fn pip(&self, python: &str, folder: &Path, lists: &[&str]) -> Result<PathBuf> {
        let packages: Vec<&str> =
            lists.iter().flat_map(|list| &self.packages[*list]).map(String::as_str).collect();
        let programs = folder.join(if cfg!(windows) { "Scripts" } else { "bin" });
        let pip = programs.join("pip");
        self.once(folder, &packages, || {
            cmd!(self.shell, "{python} -m venv {folder}").quiet().run()?;
            let pip = cmd!(self.shell, "{pip} install --quiet --disable-pip-version-check")
                .args(&packages);
            pip.quiet().run()
        })?;
        Ok(programs)
    }

    /// Installs a list of packages of npm. None of them runs a script of its own while it is
    /// installed.
    pub(crate) fn npm(&self, folder: &Path, list: &str) -> Result<()> {
        let packages: Vec<&str> = self.packages[list].iter().map(String::as_str).collect();
        self.once(folder, &packages, || {
            self.shell.create_dir(folder)?;
            let flags = ["--silent", "--ignore-scripts", "--no-audit", "--no-fund"];
            let npm = cmd!(self.shell, "npm install {flags...} --prefix {folder}");
            npm.args(&packages).quiet().run()
        })
    }

    /// Installs a program from its crate, with these flags. Returns its path.
    pub(crate) fn crates(&self, name: &str, version: &str, flags: &[&str]) -> Result<PathBuf> {
        let folder = self.target.join("tools").join(name);
        let exact = format!("{name}@{version}");
        self.once(&folder, &[&exact], || {
            let install = cmd!(self.shell, "cargo install --quiet --locked {exact} {flags...}");
            install.arg("--root").arg(&folder).quiet().run()
        })?;
        Ok(folder.join("bin").join(name))
    }

    /// Installs a program from a package of Debian, unless it is on the path.
    pub(crate) fn debian(&self, program: &str, package: &str) -> Result<()> {
        // Some know `--version`, some `-v`. Debian puts servers on the path of root only.
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let answers = |flag| succeeds(cmd!(self.shell, "{program} {flag}").env("PATH", &path));
        if answers("--version") || answers("-v") {
            return Ok(());
        }
        let root = cmd!(self.shell, "id -u").quiet().read().is_ok_and(|id| id == "0");
        ensure!(
            root && succeeds(cmd!(self.shell, "apt-get --version")),
            "{program} is not on the path, and only root on Debian can install it here: \
             install it by your system's package, it need not run as a service"
        );
        println!("{program} is missing: installing {package}");
        for words in ["update", &format!("install -y --no-install-recommends {package}")] {
            let words = words.split(' ');
            // The tests start their own: the package must not start a service.
            let apt = cmd!(self.shell, "apt-get -qq {words...}").env("RUNLEVEL", "1");
            apt.env("DEBIAN_FRONTEND", "noninteractive").ignore_stdout().quiet().run()?;
        }
        // Not every system honours that.
        succeeds(cmd!(self.shell, "service {package} stop"));
        Ok(())
    }

    /// Runs an installation unless a file in the folder says that it was run with these packages.
    fn once(
        &self,
        folder: &Path,
        packages: &[&str],
        install: impl FnOnce() -> xshell::Result<()>,
    ) -> Result<()> {
        let all = packages.join(" ");
        // A folder may have several of these. The names of some have a folder.
        let first = packages.first().copied().unwrap_or("nothing").replace('/', "+");
        let marker = folder.join(first);
        if self.shell.read_file(&marker).is_ok_and(|installed| installed == all) {
            return Ok(());
        }
        println!("{all}, for tests, is missing: installing it");
        install().with_context(|| all.clone())?;
        Ok(self.shell.write_file(marker, all)?)
    }

    /// Returns an empty folder below the target folder.
    pub(crate) fn emptied(&self, name: &str) -> Result<PathBuf> {
        let folder = self.target.join(name);
        self.shell.remove_path(&folder)?;
        Ok(self.shell.create_dir(folder)?)
    }
}

/// Returns `true` if the command exists and succeeds. It prints nothing.
pub(crate) fn succeeds(command: Cmd<'_>) -> bool {
    command.quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    #[test]
    fn each_package_has_its_version() {
        let lists: BTreeMap<String, Vec<String>> =
            toml::from_str(include_str!("../packages.toml")).unwrap();
        let is_exact = |package: &String| {
            package.contains("==")
                || package.rsplit_once('@').is_some_and(|(name, _)| !name.is_empty())
        };
        assert!(lists.values().all(|packages| packages.iter().all(is_exact)), "{lists:?}");
    }
}
