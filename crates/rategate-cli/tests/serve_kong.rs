//! The plugin for Kong, in a Lua without Kong, before the real service.

use std::path::Path;
use std::process::Command;

use crate::common::serving::{Serving, on_path, succeeds};

#[test]
fn the_plugin_for_kong_holds_and_settles() {
    let (Some(lua), Some(_)) = (on_path("lua5.1"), on_path("curl")) else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rules = root.join("docs/guides/ai-gateways/rategate.toml");
    let serving = Serving::start(&["--config", rules.to_str().unwrap()]);
    let plugin = root.join("packaging/kong");
    let mut command = Command::new(lua);
    command.arg(plugin.join("tests/run.lua")).arg(&plugin);
    let printed = succeeds(command.arg(format!("http://{}", serving.address("http"))));
    assert!(printed.trim_end().ends_with("tests, 0 failed"), "{printed}");
}
