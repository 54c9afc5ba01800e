//! The meaning of the keyboard's keys.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The request of the user at the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    Do(Action),
}

/// A change of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Up,
    Down,
    First,
    Last,
    Sort,
    Reverse,
    Pause,
    /// The window was resized: only draw again.
    Redraw,
}

/// Waits at most `wait` for a key, and returns its meaning.
pub(super) fn wish(wait: Duration) -> io::Result<Option<Wish>> {
    if !event::poll(wait)? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => meant(key),
        Event::Resize(..) => Some(Wish::Do(Action::Redraw)),
        _ => None,
    })
}

fn meant(key: KeyEvent) -> Option<Wish> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        // In raw mode the terminal sends no signal.
        return matches!(key.code, KeyCode::Char('c' | 'd')).then_some(Wish::Quit);
    }
    Some(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Wish::Quit,
        KeyCode::Up | KeyCode::Char('k') => Wish::Do(Action::Up),
        KeyCode::Down | KeyCode::Char('j') => Wish::Do(Action::Down),
        KeyCode::Home | KeyCode::Char('g') => Wish::Do(Action::First),
        KeyCode::End | KeyCode::Char('G') => Wish::Do(Action::Last),
        KeyCode::Char('s') => Wish::Do(Action::Sort),
        KeyCode::Char('r') => Wish::Do(Action::Reverse),
        KeyCode::Char('p' | ' ') => Wish::Do(Action::Pause),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::{Action, Wish, meant};

    #[test]
    fn keys_mean_what_the_help_says() {
        let plain = |code| meant(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(plain(KeyCode::Char('q')), Some(Wish::Quit));
        assert_eq!(plain(KeyCode::Char('j')), Some(Wish::Do(Action::Down)));
        assert_eq!(plain(KeyCode::Up), Some(Wish::Do(Action::Up)));
        assert_eq!(plain(KeyCode::Char('s')), Some(Wish::Do(Action::Sort)));
        assert_eq!(plain(KeyCode::Char('x')), None);
        let control = |code| meant(KeyEvent::new(code, KeyModifiers::CONTROL));
        assert_eq!(control(KeyCode::Char('c')), Some(Wish::Quit));
        assert_eq!(control(KeyCode::Char('s')), None);
    }
}
