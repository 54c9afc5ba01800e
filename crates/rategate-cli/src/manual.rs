//! Completions and manual pages, generated from the arguments.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::builder::Resettable;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::print;

/// Prints the completion script for `shell`.
pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rategate", &mut script);
    print(script)?;
    Ok(0)
}

/// Prints the main page, or writes all of them into `dir`.
pub(crate) fn pages(dir: Option<&Path>) -> Result<u8, Failure> {
    // There is no page for "help".
    let mut main = Cli::command().disable_help_subcommand(true);
    main.build();
    let Some(dir) = dir else {
        let (_, page) = page(main).map_err(Failure::of_output)?;
        print(page)?;
        return Ok(0);
    };
    write_all(main, dir).map_err(|error| Failure::Io(format!("--dir {}", dir.display()), error))?;
    Ok(0)
}

fn write_all(main: Command, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let commands: Vec<_> = main.get_subcommands().cloned().collect();
    for command in commands.into_iter().chain([main]) {
        let (name, page) = page(command)?;
        fs::write(dir.join(name), page)?;
    }
    Ok(())
}

/// Returns the file's name, and the page. The notes after the help get sections of their own,
/// line by line.
fn page(command: Command) -> io::Result<(String, Vec<u8>)> {
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.after_help(Resettable::Reset));
    let mut page = Vec::new();
    man.render(&mut page)?;
    for note in notes.split("\n\n").filter(|note| !note.is_empty()) {
        match note.split_once(":\n") {
            Some((title, lines)) => {
                writeln!(page, ".SH \"{}\"\n.nf\n{}\n.fi", title.to_uppercase(), verbatim(lines))?;
            }
            None => writeln!(page, ".PP\n{}", verbatim(note))?,
        }
    }
    Ok((man.get_filename(), page))
}

/// Escapes text so that roff prints it unchanged.
fn verbatim(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('`', "\\(ga");
    let lines = escaped.lines().map(|line| match line.chars().next() {
        Some('.' | '\'') => format!("\\&{line}"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}
