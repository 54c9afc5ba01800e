//! The rules for the workflow that builds and publishes the packages of other languages.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::pack::PLATFORMS;

/// Adds what is wrong with the workflow: it builds for every platform, runs actions of known
/// commits only, and publishes nothing that was not tried, and no commit without a tag.
pub(super) fn check(workflow: &Value, broken: &mut Vec<String>) {
    let mut rule = |holds: bool, what: &str| {
        if !holds {
            broken.push(format!("packages.yml: {what}"));
        }
    };
    let jobs = &workflow["jobs"];
    let rows = jobs["build"]["strategy"]["matrix"]["include"].as_array();
    let built: BTreeSet<_> = rows.into_iter().flatten().map(|row| row["target"].as_str()).collect();
    let platforms = PLATFORMS.iter().map(|platform| Some(platform.target)).collect();
    rule(built == platforms, "its targets are not the platforms of `cargo xtask pack`");
    let needs = |job: &Value, name: &str| match &job["needs"] {
        Value::Array(jobs) => jobs.iter().any(|job| job == name),
        job => job == name,
    };
    let complete = &jobs["complete"];
    rule(complete["if"] == "github.ref_type == 'tag'", "`complete` runs without a tag");
    rule(needs(complete, "try"), "`complete` does not need `try`");
    for job in ["build", "sources"] {
        rule(needs(&jobs["try"], job), &format!("`try` does not need `{job}`"));
    }
    for (name, job) in jobs.as_object().into_iter().flatten() {
        let publishes = job["permissions"]["id-token"] == "write";
        rule(!publishes || needs(job, "complete"), &format!("`{name}` does not need `complete`"));
        let steps = job["steps"].as_array().into_iter().flatten();
        for action in steps.filter_map(|step| step["uses"].as_str()) {
            let commit = action.rsplit_once('@').map_or("", |(_, commit)| commit);
            let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            rule(is_commit, &format!("{action} names no commit"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::check;
    use crate::pack::PLATFORMS;

    fn faults(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let rows: Vec<_> = PLATFORMS.iter().map(|at| json!({ "target": at.target })).collect();
        let action = format!("a/b@{}", "0f".repeat(20));
        let mut workflow = json!({ "jobs": {
            "build": {
                "strategy": { "matrix": { "include": rows } },
                "steps": [{ "uses": action }, { "run": "x" }],
            },
            "sources": {},
            "try": { "needs": ["build", "sources"] },
            "complete": { "needs": "try", "if": "github.ref_type == 'tag'" },
            "npm": { "needs": "complete", "permissions": { "id-token": "write" } },
        } });
        change(&mut workflow);
        let mut broken = Vec::new();
        check(&workflow, &mut broken);
        broken
    }

    #[test]
    fn a_platform_that_is_not_built_and_a_release_that_was_not_tried_are_found() {
        assert!(faults(|_| {}).is_empty());
        let changes: [(&str, &str, Value); 6] = [
            ("/jobs/build/strategy/matrix/include/0/target", "targets", json!("z80")),
            ("/jobs/build/steps/0/uses", "names no commit", json!("a/b@v1.2.3")),
            ("/jobs/try/needs", "`sources`", json!(["build"])),
            ("/jobs/complete/needs", "`try`", json!("build")),
            ("/jobs/complete/if", "without a tag", Value::Null),
            ("/jobs/npm/needs", "`complete`", json!("try")),
        ];
        for (path, words, value) in changes {
            let found = faults(|workflow| *workflow.pointer_mut(path).unwrap() = value);
            assert!(found.len() == 1 && found[0].contains(words), "{path}: {found:?}");
        }
    }
}
