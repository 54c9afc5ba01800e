//! Cases of configurations, as text in `cases/`, apart from each other by empty lines.
//!
//! ```text
//! --- a title, if it needs one
//! [[rule]]
//! name = "a"
//! limit = "5/fortnight"
//!         ^ unknown unit; write s, min, h or d
//! ```
//!
//! A caret stands under the place of a problem, and behind it parts of its message and its help,
//! between semicolons. Exactly these problems are reported. `!` is one without a place, whose
//! message begins with the text. A warning says that it is one, and the file loads then.
//!
//! A file that loads has its facts behind `=>`: settings that differ from the defaults, and rules
//! in brackets, with the fields that differ from those of a rule with little in it. `=> also` has
//! some of them. `? domain key=value` asks for an explanation, which has the lines behind the bars.
//!
//! Lines below `===` precede the text of each case until the next. `@ b.yaml` begins one more file,
//! and `$` is a variable of the environment or, with dashes, a flag. No message may show a secret,
//! which is called sesame where one might.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rategate::AnyPolicy;
use rategate::policy::Windows;
use rategate_server::config::{
    ConfigError, Layers, Loaded, Problem, Settings, explain, load_text, load_with, report,
};
use rategate_server::rule::Limit;

use super::laws::hold;

/// The settings without a file, and those and the rule of [`LITTLE`].
const DEFAULTS: &str = include_str!("cases/defaults.txt");

const LITTLE: [&str; 3] = [
    "[store]\nurl = \"redis://h\"\n[snapshot]\npath = \"s\"",
    "[xds]\nserver = \"h:1\"",
    "[[rule]]\nname = \"r\"\nlimit = \"1/s\"",
];

#[test]
fn native() {
    play("native", "rules.toml");
}

#[test]
fn spans() {
    play(if cfg!(feature = "otlp") { "otlp" } else { "without_otlp" }, "rules.toml");
}

#[test]
fn envoy() {
    play("envoy", "rules.yaml");
}

#[test]
fn what_is_not_written_has_a_default() {
    let mut all = fields(&Settings::default());
    for text in LITTLE {
        let loaded = load_text("rules.toml", text).unwrap_or_else(|error| panic!("{error}"));
        let mut others = fields(&loaded.settings);
        others.retain(|field| !all.contains(field));
        all.extend(others.into_iter().chain(loaded.rules.rules.iter().flat_map(fields)));
    }
    assert_eq!(all, DEFAULTS.lines().collect::<Vec<_>>());
}

/// Plays all cases of a folder. Files without a name have this one.
fn play(folder: &str, file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/cases").join(folder);
    let mut other = String::new();
    let mut count = 0;
    for path in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(path.unwrap().path()).unwrap();
        for part in format!("\n{}", text.trim_end()).split("\n=== ").skip(1) {
            let mut cases = part.split("\n\n");
            let given: Vec<_> = cases.next().unwrap().lines().skip(1).collect();
            for case in cases {
                count += 1;
                if let Err(error) = Case::read(file, &given, case).check() {
                    other += &format!("{case}\n{error}\n\n");
                }
            }
        }
    }
    assert!(other.is_empty() && count > 0, "{other}");
}

#[derive(Default)]
struct Case<'a> {
    files: Vec<(&'a str, String)>,
    outside: Vec<(&'a str, &'a str)>,
    /// The file, line and column of each problem, and the parts of its message.
    problems: Vec<(Option<(&'a str, usize, usize)>, &'a str)>,
    facts: Option<Vec<&'a str>>,
    has_more_facts: bool,
    /// The calls to explain, with lines of their explanations.
    explained: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Case<'a> {
    fn read(file: &'a str, given: &[&'a str], text: &'a str) -> Self {
        let mut case = Self::default();
        for line in given.iter().copied().chain(text.lines()) {
            if let Some(call) = line.strip_prefix("? ") {
                case.explained.push((call, Vec::new()));
            } else if let Some(part) = line.strip_prefix("| ") {
                case.explained.last_mut().unwrap().1.push(part);
            } else if line.starts_with("=>") {
                case.has_more_facts = line.ends_with(" also");
                case.facts = Some(Vec::new());
            } else if let Some(facts) = &mut case.facts {
                facts.push(line);
            } else if let Some(name) = line.strip_prefix("@ ") {
                case.files.push((name, String::new()));
            } else if let Some(setting) = line.strip_prefix("$ ") {
                case.outside.push(setting.split_once('=').unwrap());
            } else if let Some(message) = line.strip_prefix("! ") {
                case.problems.push((None, message));
            } else if let Some(message) = line.trim_start().strip_prefix("^ ") {
                let (name, text) = case.files.last().unwrap();
                let column = line.chars().count() - message.chars().count() - 1;
                case.problems.push((Some((name, text.lines().count(), column)), message));
            } else if !line.starts_with("--- ") {
                if case.files.is_empty() {
                    case.files.push((file, String::new()));
                }
                case.files.last_mut().unwrap().1 += &format!("{line}\n");
            }
        }
        case
    }

    fn check(&self) -> Result<(), String> {
        let (outcome, folder) = self.load();
        let (loaded, problems) = match &outcome {
            Ok(loaded) => (Some(loaded), &*loaded.warnings),
            Err(error) => (None, error.problems()),
        };
        let reported = report(problems);
        if reported.contains("sesame") || !self.are_expected(problems) {
            return Err(format!("has these problems:\n{reported}"));
        }
        let Some(loaded) = loaded else { return Ok(()) };
        if let ([], [(name, text)]) = (&*self.outside, &*self.files) {
            hold(name, text);
        }
        for (call, parts) in &self.explained {
            is_explained(loaded, call, parts)?;
        }
        let mut expected = self.facts.iter().flatten().peekable();
        assert!(!self.has_more_facts || expected.peek().is_some(), "nothing is expected");
        let mut facts = facts(loaded);
        facts.extend(folder.map(|folder| format!("rules: {}", folder.display())));
        for fact in &facts {
            let is_expected = expected.next_if(|expected| *expected == fact).is_some();
            if self.facts.is_some() && !is_expected && !self.has_more_facts {
                return Err(format!("is\n{}", facts.join("\n")));
            }
        }
        expected.next().map_or(Ok(()), |one| Err(format!("lacks {one}:\n{}", facts.join("\n"))))
    }

    /// Loads the files with the environment. Returns its folder, too, if it names one.
    fn load(&self) -> (Result<Loaded, ConfigError>, Option<PathBuf>) {
        let value = |name: &str| {
            let found = self.outside.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut layers = Layers::of_variables(value);
        let folder = layers.add_envoy_env(value);
        for (name, text) in &self.outside {
            if let Some(key) = name.strip_prefix("--") {
                layers.flag(key, name, text).unwrap();
            }
        }
        assert!(!format!("{layers:?}").contains("sesame"));
        let home = tempfile::tempdir().unwrap();
        for (name, text) in &self.files {
            fs::write(home.path().join(name), text).unwrap();
        }
        let path = match &*self.files {
            [] => None,
            [(name, _)] => Some(home.path().join(name)),
            _ => Some(home.path().to_owned()),
        };
        (load_with(path.as_deref(), &layers), folder)
    }

    /// Returns `true` if the problems are those of the case.
    fn are_expected(&self, problems: &[Problem]) -> bool {
        let is = |problem: &Problem, place: Option<_>, message: &str| {
            let name = problem.file().and_then(Path::file_name).and_then(|name| name.to_str());
            let of = |name| Some((name, problem.line()?, problem.column()?));
            let kind = if problem.is_warning() { "warning: " } else { "" };
            let help = problem.help_text().unwrap_or_default();
            let whole = format!("{kind}{}; {help}", problem.message());
            let mut parts = message.split("; ").peekable();
            name.and_then(of) == place
                && (place.is_some() || whole.starts_with(*parts.peek().unwrap()))
                && parts.all(|part| whole.contains(part))
        };
        // Warnings come as they are found.
        let mut problems: Vec<_> = problems.iter().collect();
        problems.sort_by_key(|problem| (problem.file(), problem.line(), problem.column()));
        problems.len() == self.problems.len()
            && problems
                .into_iter()
                .zip(&self.problems)
                .all(|(one, (place, text))| is(one, *place, text))
    }
}

fn is_explained(loaded: &Loaded, call: &str, parts: &[&str]) -> Result<(), String> {
    let mut words = call.split(' ');
    let domain = words.next().unwrap();
    let entries: Vec<_> = words.map(|word| word.split_once('=').unwrap()).collect();
    let text = explain(&loaded.rules, domain, &entries).to_string();
    let mut rest = text.as_str();
    for part in parts {
        let found = rest.split_once(part);
        rest = found.ok_or_else(|| format!("is explained without {part}:\n{text}"))?.1;
    }
    Ok(())
}

/// Returns what a configuration says, apart from the defaults.
fn facts(loaded: &Loaded) -> Vec<String> {
    let settings = &loaded.settings;
    let is_new = |fact: &String| !DEFAULTS.lines().any(|line| line == fact);
    let mut all = fields(settings);
    all.retain(is_new);
    let server = &settings.server;
    for (name, one) in server.listeners() {
        let words = [(server.uses_tls(one), " tls"), (server.requires_token(one), " token")];
        let words: String = words.iter().filter_map(|(is, word)| is.then_some(*word)).collect();
        if !words.is_empty() {
            all.push(format!("{name} {}:{words}", one.address));
        }
    }
    let password = settings.store.as_ref().and_then(|store| store.password.as_ref());
    let secrets = server.token.iter().chain(password);
    all.extend(secrets.map(|secret| format!("secret: {}", secret.expose())));
    for rule in &loaded.rules.rules {
        all.push(format!("[{}] of {}: {}", rule.name, rule.domain, rule.display_limit));
        all.extend(rule.entries.iter().map(|one| format!("entry: {} {:?}", one.key, one.value)));
        all.push(format!("limit: {}", limit_text(&rule.limit)));
        let mut others = fields(rule);
        others.retain(|fact| {
            let (name, _) = fact.split_once([':', '.']).unwrap();
            let is_apart = ["name", "domain", "entries", "limit", "display_limit", "origin"];
            !is_apart.contains(&name) && !["schedule", "metadata"].contains(&name) && is_new(fact)
        });
        // An empty name is what Envoy's format has.
        let is_of_envoy = rule.origin.file.extension().is_some_and(|extension| extension != "toml");
        let usual = if is_of_envoy { "" } else { &rule.name };
        others.retain(|fact| *fact != format!("envoy_name: {usual:?}"));
        all.extend(others);
        all.extend(rule.schedule.iter().map(|at| {
            let days: String = at.days.map(|is| if is { 'x' } else { '-' }).iter().collect();
            let limit = limit_text(&at.limit);
            let (from, until, zone) = (at.from_s, at.until_s, &at.zone);
            format!("{days} {from}..{until} s in {zone}: {limit}, {}", at.display_limit)
        }));
        let metadata = rule.metadata.iter().map(|one| serde_json::to_string(&**one).unwrap());
        all.extend(metadata.map(|json| format!("metadata: {json}")));
    }
    all
}

fn limit_text(limit: &Limit) -> String {
    match limit {
        Limit::Policy(AnyPolicy::FixedWindow(window)) => match window.windows() {
            Windows::Even { .. } => format!("{window:?}"),
            Windows::Of(calendar) => format!("{} a {}", window.permits(), calendar.text()),
        },
        Limit::Policy(policy) => format!("{policy:?}"),
        Limit::Counted(window) => {
            format!("counts {} in {:?}", window.permits(), Duration::from_nanos(window.period_ns()))
        }
        limit => format!("{limit:?}"),
    }
}

/// Returns the fields of a structure, each in a line, and those of structures in it that are
/// called like their fields.
fn fields(of: &impl Debug) -> Vec<String> {
    let text = format!("{of:#?}");
    let lines: Vec<_> = text.lines().collect();
    let mut all = Vec::new();
    collect_fields(&lines[1..lines.len() - 1], "", &mut all);
    all
}

fn collect_fields(mut lines: &[&str], path: &str, all: &mut Vec<String>) {
    let indent = |line: &str| line.len() - line.trim_start().len();
    while let [first, rest @ ..] = lines {
        let (name, value) = first.trim().split_once(": ").unwrap();
        let opens = value.ends_with(['{', '(', '[']);
        let end = if opens {
            rest.iter().position(|line| indent(line) == indent(first)).unwrap()
        } else {
            0
        };
        let (inner, behind) = rest.split_at(end);
        lines = if opens { &behind[1..] } else { behind };
        let is_like = |line: &str| {
            let structure = line.trim().strip_suffix(" {").unwrap_or_default().to_lowercase();
            !structure.is_empty() && structure.ends_with(&name.replace('_', ""))
        };
        let below = format!("{path}{name}.");
        match inner {
            _ if is_like(value) => collect_fields(inner, &below, all),
            [one, inner @ .., _] if value == "Some(" && is_like(one) => {
                collect_fields(inner, &below, all);
            }
            _ => {
                let closing = behind.first().filter(|_| opens);
                let parts = std::iter::once(first).chain(inner).chain(closing);
                let mut text = parts.map(|line| line.trim()).collect::<Vec<_>>().join(" ");
                for (wide, narrow) in
                    [("( ", "("), ("[ ", "["), (", )", ")"), (", ]", "]"), (", }", " }")]
                {
                    text = text.replace(wide, narrow);
                }
                all.push(format!("{path}{}", text.trim_end_matches(',')));
            }
        }
    }
}
