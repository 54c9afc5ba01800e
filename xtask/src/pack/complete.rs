//! Checks that all packages of a release are there before the first is published.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{PLATFORMS, Release, files};

/// Checks the tag, and that the packages are those of all platforms and no others.
pub(super) fn check(at: &Release) -> Result<()> {
    let tag = format!("v{}", at.version);
    let mut git = Command::new("git");
    let tags = git.current_dir(&at.root).args(["tag", "--points-at", "HEAD"]).output();
    let tags = String::from_utf8(tags.context("start git")?.stdout).context("git's output")?;
    ensure!(tags.lines().any(|line| line == tag), "this commit has no tag {tag}, but {tags:?}");
    let mut found = Vec::new();
    for folder in ["python", "npm"] {
        let paths = files(&at.packages.join(folder))?;
        found.extend(paths.iter().map(|path| file_name(path)));
    }
    let faults = faults(&at.version, &found);
    ensure!(faults.is_empty(), "the release is not complete:\n  {}", faults.join("\n  "));
    println!("{} packages of {tag}, for {} platforms", found.len(), PLATFORMS.len());
    Ok(())
}

/// Returns what is missing, and what is too many.
fn faults(version: &str, found: &[String]) -> Vec<String> {
    let needed = needed(version);
    let fits = |(start, end): &(String, String), file: &str| {
        file.starts_with(start.as_str()) && file.ends_with(end.as_str())
    };
    let missing = needed.iter().filter(|one| !found.iter().any(|file| fits(one, file)));
    let missing = missing.map(|(start, end)| format!("{start}…{end} is missing"));
    let unknown = found.iter().filter(|file| !needed.iter().any(|one| fits(one, file)));
    missing.chain(unknown.map(|file| format!("{file} belongs to no release"))).collect()
}

/// Returns how the name of each package begins and ends.
fn needed(version: &str) -> Vec<(String, String)> {
    let mut needed = vec![
        (format!("pyrategate-{version}"), ".tar.gz".to_owned()),
        (format!("rategate-{version}"), ".tgz".to_owned()),
    ];
    for platform in &PLATFORMS {
        needed.push((format!("rategate-{}-{version}", platform.npm), ".tgz".to_owned()));
        for python in ["cp310-abi3", "cp314-cp314t"] {
            let tag = platform.wheel.map(|tag| format!("{tag}.whl"));
            needed.extend(tag.map(|tag| (format!("pyrategate-{version}-{python}-"), tag)));
        }
    }
    needed
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{faults, needed};

    #[test]
    fn a_release_has_every_package_and_no_other() {
        let mut found: Vec<String> =
            needed("1.2.0").into_iter().map(|(start, end)| start + &end).collect();
        assert_eq!(found.len(), 2 + 7 + 2 * 6);
        assert!(faults("1.2.0", &found).is_empty());
        assert_eq!(faults("1.2.1", &found).len(), 2 * found.len(), "those of another version");
        let lost = found.pop().unwrap_or_default();
        assert_eq!(faults("1.2.0", &found).len(), 1, "{lost}");
        found.extend([lost, "pyrategate-1.2.0-cp310-abi3-linux_x86_64.whl".to_owned()]);
        assert_eq!(faults("1.2.0", &found).len(), 1);
    }
}
