//! The rules for the files that other programs read. Whatever starts rategate starts it with few
//! rights, and finds the same ports, paths and signals everywhere.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// The ports of RESP, HTTP and gRPC.
const PORTS: [u64; 3] = [6380, 8080, 8081];

/// The settings that the unit must have, each on a line of its own.
const UNIT: &[&str] = &[
    "CapabilityBoundingSet=",
    "DynamicUser=yes",
    "ExecReload=/bin/kill -HUP $MAINPID",
    "ExecStart=/usr/bin/rategate serve --config /etc/rategate/rategate.toml",
    "KillSignal=SIGTERM",
    "MemoryDenyWriteExecute=yes",
    "NoNewPrivileges=yes",
    "PrivateDevices=yes",
    "ProtectHome=yes",
    "ProtectSystem=strict",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "StateDirectory=rategate",
    "SystemCallFilter=@system-service",
];

/// Returns the paths of all manifests, sorted by name.
pub(super) fn manifests(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    paths.sort();
    Ok(paths)
}

/// Returns the broken rules, a line each.
pub(super) fn broken(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("packaging");
    let read =
        |path: PathBuf| std::fs::read_to_string(&path).with_context(|| path.display().to_string());
    let mut broken = Vec::new();
    unit(&read(folder.join("systemd").join("rategate.service"))?, &mut broken);
    let oldest = read(root.join("Cargo.toml"))?;
    dockerfile(&read(folder.join("docker").join("Dockerfile"))?, &oldest, &mut broken);
    let manifests = manifests(&folder.join("kubernetes"))?;
    let mut resources = Vec::new();
    for path in &manifests {
        let text = read(path.clone())?;
        let value: Value =
            serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        resources
            .push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), value));
    }
    kubernetes(&resources, &mut broken);
    let workflow = read(root.join(".github").join("workflows").join("packages.yml"))?;
    let workflow = serde_saphyr::from_str(&workflow).context("packages.yml")?;
    super::recipe::check(&workflow, &mut broken);
    Ok(broken)
}

fn unit(text: &str, broken: &mut Vec<String>) {
    let missing = UNIT.iter().filter(|line| !text.lines().any(|found| found == **line));
    broken.extend(missing.map(|line| format!("rategate.service: the line `{line}` is missing")));
}

/// Checks for two stages, of which the last has no compiler and no root, and for a compiler that
/// is not too old.
fn dockerfile(text: &str, workspace: &str, broken: &mut Vec<String>) {
    let mut rule = |holds: bool, what: &str| {
        if !holds {
            broken.push(format!("Dockerfile: {what}"));
        }
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let images: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("FROM ")).collect();
    rule(images.len() > 1, "a single stage leaves the compiler in the image");
    rule(images.iter().all(|image| image.contains(':')), "an image without a version");
    rule(!images.iter().any(|image| image.contains(":latest")), "an image tagged `latest`");
    let last = lines.iter().rposition(|line| line.starts_with("FROM ")).unwrap_or_default();
    let user = lines[last..].iter().find_map(|line| line.strip_prefix("USER "));
    let id = user.and_then(|user| user.split(':').next()?.parse::<u32>().ok());
    rule(id.is_some_and(|id| id > 0), "USER of the last stage is not a number above 0");
    for port in PORTS {
        let exposed = lines.iter().filter_map(|line| line.strip_prefix("EXPOSE "));
        let port = port.to_string();
        rule(
            exposed.flat_map(str::split_whitespace).any(|word| word == port),
            "EXPOSE lacks a port",
        );
    }
    let secrets = ["TOKEN", "PASSWORD", "SECRET"];
    let set = |line: &&&str| line.starts_with("ENV ") || line.starts_with("ARG ");
    let is_secret = |line: &&str| secrets.iter().any(|word| line.to_uppercase().contains(word));
    rule(!lines.iter().filter(set).any(is_secret), "a secret in a layer");
    rule(lines.contains(&"STOPSIGNAL SIGTERM"), "STOPSIGNAL is not SIGTERM");
    let shell = |line: &&&str| line.starts_with("ENTRYPOINT ") || line.starts_with("CMD ");
    rule(
        lines.iter().filter(shell).all(|line| line.contains(" [")),
        "a shell between signals and the program",
    );
    let version = |text: &str| {
        let mut components = text.split('.').map(|component| component.parse::<u32>().ok());
        Some((components.next()??, components.next()??))
    };
    let oldest = workspace.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    let oldest = oldest.and_then(|rest| version(rest.trim_end_matches('"')));
    let compiler = images.iter().find_map(|image| image.strip_prefix("rust:"));
    let compiler = compiler.and_then(|rest| version(rest.split('-').next()?));
    rule(compiler.is_some() && oldest <= compiler, "a compiler older than rust-version");
}

/// Checks that each kind of resource exists, and that the pod has no more rights than its work
/// needs.
fn kubernetes(resources: &[(String, Value)], broken: &mut Vec<String>) {
    let mut rule = |holds: bool, file: &str, what: &str| {
        if !holds {
            broken.push(format!("{file}: {what}"));
        }
    };
    let of = |kind: &str| {
        resources.iter().find(|(_, value)| value["kind"] == kind).map(|(_, value)| value)
    };
    for kind in ["ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"] {
        rule(of(kind).is_some(), "kubernetes", &format!("a {kind} is missing"));
    }
    let nothing = Value::Null;
    let listed = &of("Kustomization").unwrap_or(&nothing)["resources"];
    for (file, value) in resources.iter().filter(|(_, value)| value["kind"] != "Kustomization") {
        let is_listed =
            listed.as_array().is_some_and(|all| all.iter().any(|name| name == file.as_str()));
        rule(is_listed, file, "kustomization.yaml does not list it");
        rule(value["kind"] != "Secret", file, "a Secret must not be in the repository");
    }
    let deployment = of("Deployment").unwrap_or(&nothing);
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for (at, wanted) in [
        (&pod["automountServiceAccountToken"], Value::from(false)),
        (&pod["securityContext"]["runAsNonRoot"], Value::from(true)),
        (&pod["securityContext"]["seccompProfile"]["type"], Value::from("RuntimeDefault")),
        (&container["securityContext"]["allowPrivilegeEscalation"], Value::from(false)),
        (&container["securityContext"]["readOnlyRootFilesystem"], Value::from(true)),
        (&container["securityContext"]["capabilities"]["drop"][0], Value::from("ALL")),
        (&container["readinessProbe"]["httpGet"]["path"], Value::from("/readyz")),
        (&container["livenessProbe"]["httpGet"]["path"], Value::from("/healthz")),
    ] {
        rule(*at == wanted, "deployment.yaml", &format!("found {at}, expected {wanted}"));
    }
    rule(
        container["resources"]["limits"]["memory"].is_string(),
        "deployment.yaml",
        "memory without a limit",
    );
    let is_pinned = container["image"]
        .as_str()
        .is_some_and(|image| image.contains(':') && !image.ends_with(":latest"));
    rule(is_pinned, "deployment.yaml", "an image without a version");
    let ports = |list: &Value, name: &str| -> Vec<u64> {
        list.as_array().into_iter().flatten().filter_map(|port| port[name].as_u64()).collect()
    };
    rule(ports(&container["ports"], "containerPort") == PORTS, "deployment.yaml", "other ports");
    let service = of("Service").unwrap_or(&nothing);
    rule(ports(&service["spec"]["ports"], "port") == PORTS, "service.yaml", "other ports");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let budget = of("PodDisruptionBudget").unwrap_or(&nothing);
    let policy = of("NetworkPolicy").unwrap_or(&nothing);
    for (file, selector) in [
        ("deployment.yaml", &deployment["spec"]["selector"]["matchLabels"]),
        ("service.yaml", &service["spec"]["selector"]),
        ("poddisruptionbudget.yaml", &budget["spec"]["selector"]["matchLabels"]),
        ("networkpolicy.yaml", &policy["spec"]["podSelector"]["matchLabels"]),
    ] {
        rule(
            selector == labels && !labels.is_null(),
            file,
            "its selector does not match the pod's labels",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{dockerfile, unit};

    #[test]
    fn a_root_user_a_shell_and_a_secret_are_found() {
        let text = "FROM rust:1.80-slim AS build\nENV API_TOKEN=x\n\
            FROM debian:latest\nUSER root\nCMD rategate serve\n";
        let mut broken = Vec::new();
        dockerfile(text, "rust-version = \"1.88\"", &mut broken);
        for component in ["USER", "shell", "secret", "latest", "SIGTERM", "EXPOSE", "older"] {
            assert!(
                broken.iter().any(|line| line.contains(component)),
                "{component} in {broken:?}"
            );
        }
    }

    #[test]
    fn a_line_that_is_commented_out_is_missing() {
        let mut broken = Vec::new();
        unit("# NoNewPrivileges=yes\n", &mut broken);
        assert!(broken.iter().any(|line| line.contains("NoNewPrivileges")), "{broken:?}");
    }
}
