//! Completions and manual pages, generated from the arguments themselves.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::failure::Failure;

/// Prints the completion script for `shell`.
pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rategate", &mut script);
    print(&script)
}

/// Prints the main page, or writes all of them into `dir`.
pub(crate) fn pages(dir: Option<&Path>) -> Result<u8, Failure> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        Man::new(Cli::command()).render(&mut page).map_err(Failure::of_output)?;
        return print(&page);
    };
    let written = fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), dir));
    written.map_err(|error| Failure::Io(format!("--dir {}", dir.display()), error))?;
    Ok(0)
}

fn print(text: &[u8]) -> Result<u8, Failure> {
    let mut stdout = io::stdout();
    stdout.write_all(text).and_then(|()| stdout.flush()).map_err(Failure::of_output)?;
    Ok(0)
}
