//! `rategate top`: a live view of a service's rules.

mod plain;
mod state;
mod view;

use std::time::{Duration, Instant};

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rategate_core::span;

use crate::failure::Failure;
use crate::output::print;
use crate::service::client::{Client, NoReplyReason, ServiceArgs, fetch};
pub(crate) use plain::printable;
use state::{Action, State};
pub(crate) use state::{Key, Overview, Row};

/// The interval of keyboard checks while idle.
const KEYBOARD_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Watch the rules of a service
///
/// A line for each rule: arrivals, grants and denials per second. The selected rule also has a
/// summary, its latest arrivals, and the top keys. The keys of the keyboard: up and down (or k and
/// j) select a rule, s sorts by the next column, r reverses the order, p pauses, q quits.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Print the table once, and exit
    #[arg(long)]
    once: bool,

    /// Print the data once, as one JSON object
    #[arg(long)]
    json: bool,

    /// Interval between updates, as in 500ms
    #[arg(long, value_name = "DUR", default_value = "1s")]
    every: String,

    #[command(flatten)]
    service: ServiceArgs,
}

/// Prints once, or shows the view until the user quits.
pub(crate) fn run(args: &TopArgs) -> Result<u8, Failure> {
    let every = match span::parse(&args.every) {
        Ok(ns) if ns >= 100_000_000 => Duration::from_nanos(ns),
        Ok(_) => {
            return Err(Failure::argument("--every", &args.every, "it must be at least 100ms"));
        }
        Err(why) => return Err(Failure::argument("--every", &args.every, why)),
    };
    let mut client = args.service.client()?;
    if args.json {
        print(format!("{}\n", fetch::raw(&mut client)?))?;
        return Ok(0);
    }
    let overview = fetch::overview(&mut client, None)?;
    if args.once {
        print(plain::table(&overview))?;
        return Ok(0);
    }
    if !std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        let hint = "the output is not a terminal; use --once or --json";
        return Err(Failure::Usage(hint.to_owned()));
    }
    let mut state = State::new(client.endpoint().to_string());
    state.take(Ok(overview));
    // Restores the terminal when it ends, in a panic too.
    let shown = ratatui::run(|terminal| show(terminal, &mut client, &mut state, every));
    shown.map_err(|error| Failure::Io("the terminal".to_owned(), error))?;
    Ok(0)
}

/// Fetches, draws, and handles the keyboard until the user quits.
fn show(
    terminal: &mut DefaultTerminal,
    client: &mut Client,
    state: &mut State,
    every: Duration,
) -> std::io::Result<()> {
    let after = |now: Instant| now.checked_add(every).unwrap_or(now);
    let mut next = after(Instant::now());
    loop {
        terminal.draw(|frame| view::draw(frame, state))?;
        let wait = next.saturating_duration_since(Instant::now()).min(KEYBOARD_POLL_INTERVAL);
        match read_key_command(wait)? {
            Some(Action::Quit) => return Ok(()),
            // Another rule is selected: its keys are needed at once.
            Some(wanted) if state.apply(wanted) => next = Instant::now(),
            Some(_) | None => {}
        }
        if Instant::now() >= next {
            if !state.is_paused() {
                state.take(refresh(client, state.chosen()));
            }
            next = after(Instant::now());
        }
    }
}

fn refresh(client: &mut Client, chosen: Option<&str>) -> Result<Overview, NoReplyReason> {
    fetch::overview(client, chosen).map_err(|failure| {
        // The address is in the title already.
        let (text, endpoint) = (failure.to_string(), format!("{}: ", client.endpoint()));
        NoReplyReason(text.strip_prefix(&endpoint).unwrap_or(&text).to_owned())
    })
}

/// Waits at most `wait` for a key, and returns its meaning.
fn read_key_command(wait: Duration) -> std::io::Result<Option<Action>> {
    if !event::poll(wait)? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => command_for_key(key),
        Event::Resize(..) => Some(Action::Redraw),
        _ => None,
    })
}

fn command_for_key(key: KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        // In raw mode the terminal sends no signal.
        return matches!(key.code, KeyCode::Char('c' | 'd')).then_some(Action::Quit);
    }
    Some(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Action::Quit,
        KeyCode::Up | KeyCode::Char('k') => Action::Up,
        KeyCode::Down | KeyCode::Char('j') => Action::Down,
        KeyCode::Home | KeyCode::Char('g') => Action::First,
        KeyCode::End | KeyCode::Char('G') => Action::Last,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char('r') => Action::Reverse,
        KeyCode::Char('p' | ' ') => Action::Pause,
        _ => return None,
    })
}

const EXAMPLES: &str = "\
Examples:
  rategate top                                       until q
  rategate top --once                                a table, for scripts and logs
  rategate top --server unix:/run/rategate/http.sock

Exit status:
  0    shown
  2    an argument is wrong, or no reply came";

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::{Action, command_for_key};

    #[test]
    fn keys_mean_what_the_help_says() {
        let plain = |code| command_for_key(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(plain(KeyCode::Char('q')), Some(Action::Quit));
        assert_eq!(plain(KeyCode::Char('j')), Some(Action::Down));
        assert_eq!(plain(KeyCode::Up), Some(Action::Up));
        assert_eq!(plain(KeyCode::Char('s')), Some(Action::Sort));
        assert_eq!(plain(KeyCode::Char('x')), None);
        let control = |code| command_for_key(KeyEvent::new(code, KeyModifiers::CONTROL));
        assert_eq!(control(KeyCode::Char('c')), Some(Action::Quit));
        assert_eq!(control(KeyCode::Char('s')), None);
    }
}
