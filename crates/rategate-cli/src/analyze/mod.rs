//! `rategate analyze`: replays access logs through a limit, and keeps a deny list that follows
//! them.

mod args;

use std::fmt::Display;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rategate_analyze::{
    Ahead, Analysis, DenyPublisher, Follower, Limit, ListSettings, POLL, Settings, Statuses,
};
use rategate_core::span;

use crate::args::Format;
use crate::failure::{Failure, complain};
use crate::output::{open, print_to};
use crate::pace::Stop;
use args::PolicyKind;

pub(crate) use args::AnalyzeArgs;

/// Analyzes the logs and returns the exit status.
pub(crate) fn run(args: &AnalyzeArgs) -> Result<u8, Failure> {
    let settings = settings(args)?;
    if args.follow && (args.files.is_empty() || args.files.iter().any(|file| is_stdin(file))) {
        return Err(Failure::Usage(
            "--follow needs FILEs, and not stdin, which is read to its end anyway".to_owned(),
        ));
    }
    let max_callers = settings.max_callers;
    let mut analysis = Analysis::new(settings);
    if let Some(path) = args.gate.as_deref() {
        let publisher = DenyPublisher::open(path, max_callers);
        analysis = analysis.publish_to(publisher.map_err(|error| match error.into() {
            Failure::Io(what, error) => Failure::Io(format!("--gate {what}"), error),
            other => Failure::Usage(format!("--gate {other}")),
        })?);
    }
    let status = if args.follow {
        let (stop, mut follower) = (Stop::watch()?, Follower::open(&args.files)?);
        while !stop.is_requested() {
            if !follower.poll(&mut analysis)? {
                let mut left = Some(POLL);
                let _ = stop.cancel_token().wait_on(|| left.take());
            }
        }
        follower.finish(&mut analysis)?;
        stop.interrupted_status().unwrap_or(0)
    } else {
        read_all(&args.files, &mut analysis)?;
        analysis.finish()?;
        0
    };
    let report = analysis.report();
    for skipped in &report.first_skipped {
        complain(format_args!("{}:{}: skipped: {}", skipped.file, skipped.line, skipped.why));
    }
    let output = match args.format {
        Format::Text => report.to_text(),
        Format::Json => report.to_json(),
        Format::Svg => report.to_svg(),
    };
    print_to(args.out.as_deref(), &output)?;
    Ok(status)
}

/// Converts the arguments to settings, with the checks.
fn settings(args: &AnalyzeArgs) -> Result<Settings, Failure> {
    let fail = |error| Failure::argument("LIMIT", &args.limit, error);
    if let Some(burst) = args.burst.as_deref().filter(|_| args.policy != PolicyKind::Gcra) {
        let complaint = "only a token bucket has a burst; add --policy gcra";
        return Err(Failure::argument("--burst", burst, complaint));
    }
    let limit = match args.policy {
        PolicyKind::Log => Limit::any_window(&args.limit),
        PolicyKind::Fixed => Limit::on_grid(&args.limit),
        PolicyKind::Gcra => Limit::bucket(&args.limit, args.burst.as_deref()),
    };
    let mut limit = limit.map_err(fail)?;
    for text in &args.at_most {
        let fail = |error| Failure::argument("--at-most", text, error);
        limit = limit.and_at_most(text).map_err(fail)?;
    }
    Ok(Settings {
        key: parse("--key", &args.key)?,
        group_v4: args.group_v4,
        group_v6: args.group_v6,
        dialect: args.log.into(),
        statuses: args
            .status
            .as_deref()
            .map_or(Ok(Statuses::default()), |statuses| parse("--status", statuses))?,
        max_callers: usize::try_from(args.keys).unwrap_or(usize::MAX),
        top: usize::try_from(args.top).unwrap_or(usize::MAX),
        set_aside: parse("--set-aside", &args.set_aside)?,
        spare: parse("--spare", &args.spare)?,
        list: list(args, &limit)?,
        ..Settings::new(limit)
    })
}

/// Returns the settings of a deny list. Options for one are refused without it.
fn list(args: &AnalyzeArgs, limit: &Limit) -> Result<Option<ListSettings>, Failure> {
    if args.gate.is_none() && args.delay.is_none() {
        let options = [("--hold", &args.hold), ("--ahead", &args.ahead)];
        return match options.into_iter().find(|(_, given)| given.is_some()) {
            None => Ok(None),
            Some((name, _)) => Err(Failure::Usage(format!(
                "{name} is about a deny list; add --gate FILE, or --delay DUR for the report alone"
            ))),
        };
    }
    let hold = args.hold.as_deref().map_or(Ok(limit.period()), |text| duration("--hold", text))?;
    let delay = match args.delay.as_deref() {
        Some(_) if args.follow => {
            let complaint = "is for logs that are read to their end; --follow measures the delay";
            return Err(Failure::Usage(format!("--delay {complaint}")));
        }
        Some(text) => Some(duration("--delay", text)?),
        None => (!args.follow).then_some(POLL),
    };
    let ahead = match args.ahead.as_deref() {
        None => None,
        Some("auto") if args.follow => Some(Ahead::measured(limit)),
        Some(text @ "auto") => {
            let complaint = "measured with --follow only; write a duration, as in \"2s\"";
            return Err(Failure::argument("--ahead", text, complaint));
        }
        Some(text) => {
            let ahead = Ahead::by(duration("--ahead", text)?, limit);
            Some(ahead.map_err(|error| Failure::argument("--ahead", text, error))?)
        }
    };
    Ok(Some(ListSettings { hold, ahead, delay }))
}

fn parse<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|error| Failure::argument(name, text, error))
}

fn duration(name: &str, text: &str) -> Result<Duration, Failure> {
    let ns = span::parse(text).map_err(|error| Failure::argument(name, text, error))?;
    Ok(Duration::from_nanos(ns))
}

/// Reads one file after another, with a progress bar on a terminal.
fn read_all(files: &[PathBuf], analysis: &mut Analysis) -> Result<(), Failure> {
    let stdin = [PathBuf::from("-")];
    let files = if files.is_empty() { &stdin } else { files };
    let sizes = files.iter().map(|path| {
        let about = path.metadata().ok().filter(|about| about.is_file() && !is_stdin(path));
        about.map(|about| about.len())
    });
    let (progress, template) = match sizes.sum::<Option<u64>>() {
        Some(total) => {
            (ProgressBar::new(total), "[{bar:30}] {percent} %, {bytes}, {bytes_per_sec}")
        }
        None => (ProgressBar::no_length(), "{bytes}, {bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(template).map(|style| style.progress_chars("##."));
    let progress = progress.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    for path in files {
        let (name, input): (_, Box<dyn Read>) = if is_stdin(path) {
            ("stdin".to_owned(), Box::new(io::stdin().lock()))
        } else {
            (path.display().to_string(), Box::new(open(path, "a log")?))
        };
        let read = analysis.read(&name, progress.wrap_read(input));
        read.map_err(|error| {
            progress.finish_and_clear();
            Failure::Io(name, error)
        })?;
    }
    progress.finish_and_clear();
    Ok(())
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
