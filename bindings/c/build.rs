//! Gives the shared library its name for the dynamic linker.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let part = |name: &str| env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    // Before 1.0 a minor version may break what was compiled against another.
    let (major, minor) = (part("MAJOR"), part("MINOR"));
    let version = if major == "0" { format!("0.{minor}") } else { major };
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system != "macos" && system != "windows" {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librategate.so.{version}");
    }
}
