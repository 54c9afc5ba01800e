//! Drawing of the state: rules above, the selected one below, help for the keys at the bottom.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Paragraph, RenderDirection, Row, Sparkline, Table, TableState, Wrap,
};

use super::plain::printable;
use super::state::{Order, State};

/// Draws all parts, in any size of window.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let detail = if frame.area().height >= 16 { 10 } else { 0 };
    let areas = [
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(detail),
        Constraint::Length(1),
    ];
    let [head, rules, chosen, foot] = frame.area().layout(&Layout::vertical(areas));
    frame.render_widget(title(state), head);
    table(frame, state, rules);
    if detail > 0 {
        one(frame, state, chosen);
    }
    let help = " q quit   \u{2191}\u{2193} select   s sort   r reverse   p pause";
    frame.render_widget(Line::from(help).dim(), foot);
}

fn title(state: &State) -> Line<'_> {
    let mut spans =
        vec![Span::from(" rategate ").reversed(), Span::from(format!(" {}", state.endpoint))];
    if state.is_paused() {
        spans.push(Span::from("  paused").yellow());
    }
    if let Some(silence) = &state.silence {
        spans.push(Span::from(format!("  no reply: {}", printable(&silence.0))).red().bold());
    }
    Line::from(spans)
}

fn table(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let mark = if state.is_reversed { "\u{25b2}" } else { "\u{25bc}" };
    let head = |name: &str, order: Option<Order>| match order {
        Some(order) if order == state.order => format!("{name}{mark}"),
        _ => name.to_owned(),
    };
    let header = Row::new([
        head("rule", Some(Order::Name)),
        head("limit", None),
        format!("{:>12}", head("arrivals/s", Some(Order::Arrivals))),
        format!("{:>12}", head("granted/s", Some(Order::Granted))),
        format!("{:>12}", head("denied/s", Some(Order::Denied))),
    ]);
    let rows = state.overview.rules.iter().map(|row| {
        let number = |rate: u64| format!("{rate:>12}");
        let cells = [
            printable(&row.shown()),
            printable(&row.limit),
            number(row.arrivals),
            number(row.granted),
            number(row.denied),
        ];
        let denies = row.denied > 0;
        Row::new(cells).style(if denies { Style::new().fg(Color::Yellow) } else { Style::new() })
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(3),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(12),
    ];
    let table = Table::new(rows, widths)
        .header(header.style(Modifier::BOLD))
        .row_highlight_style(Modifier::REVERSED);
    let chosen = (!state.overview.rules.is_empty()).then(|| state.chosen_index());
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(chosen));
}

/// Draws the selected rule: a summary, its latest arrivals, and the top keys.
fn one(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let Some(row) = state.overview.rules.get(state.chosen_index()) else { return };
    let block = Block::bordered().title(format!(" {} ", printable(&row.shown())));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let sides = [Constraint::Percentage(50), Constraint::Length(2), Constraint::Fill(1)];
    let [left, _, right] = inner.layout(&Layout::horizontal(sides));
    let [words, bars] =
        left.layout(&Layout::vertical([Constraint::Length(3), Constraint::Fill(1)]));
    let sentence = Paragraph::new(printable(&row.sentence)).wrap(Wrap { trim: true });
    frame.render_widget(sentence, words);
    // The latest sample is at the right edge.
    let latest = state.latest(usize::from(bars.width));
    frame.render_widget(
        Sparkline::default()
            .data(latest)
            .direction(RenderDirection::RightToLeft)
            .style(Color::Cyan),
        bars,
    );

    let is_of_it = state.overview.keys_of.as_deref() == Some(row.name.as_str());
    let keys = state.overview.keys.iter().filter(|_| is_of_it).map(|key| {
        let count = |count: u64| format!("{count:>9}");
        Row::new([printable(&key.name), count(key.used), count(key.denied)])
    });
    let widths = [Constraint::Fill(1), Constraint::Length(9), Constraint::Length(9)];
    let header = Row::new(["key".to_owned(), format!("{:>9}", "used"), format!("{:>9}", "denied")]);
    frame.render_widget(Table::new(keys, widths).header(header.style(Modifier::BOLD)), right);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic in a test is a failed test")]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::draw;
    use crate::service::client::NoReplyReason;
    use crate::service::top::state::tests::overview;
    use crate::service::top::state::{Action, State};

    fn drawn(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        terminal.backend().to_string()
    }

    fn state() -> State {
        let mut state = State::new("http://127.0.0.1:8080".to_owned());
        state.take(Ok(overview()));
        state
    }

    #[test]
    fn rules_the_chosen_one_and_its_keys_are_shown() {
        let text = drawn(&state(), 100, 20);
        let at = |expected: &str| {
            text.find(expected).unwrap_or_else(|| panic!("{expected} is missing in\n{text}"))
        };
        assert!(at("denied/s\u{25bc}") < at("40") && at("40") < at("12\""), "{text}");
        for expected in
            ["http://127.0.0.1:8080", "c is busy", "user:7", "100 per second", "900", "q quit"]
        {
            at(expected);
        }
        assert!(text.contains('\u{2588}'), "bars: {text}");
        assert!(!text.contains("paused") && !text.contains("no reply"), "{text}");
    }

    #[test]
    fn keys_of_another_rule_are_not_shown_as_this_ones() {
        let mut state = state();
        state.apply(Action::Down);
        let text = drawn(&state, 100, 20);
        assert!(text.contains("b is busy") && !text.contains("user:7"), "{text}");
    }

    #[test]
    fn silence_and_a_pause_are_displayed() {
        let mut state = state();
        state.take(Err(NoReplyReason("connection refused".to_owned())));
        state.apply(Action::Pause);
        let text = drawn(&state, 100, 20);
        assert!(text.contains("no reply: connection refused") && text.contains("paused"), "{text}");
        assert!(text.contains("40"), "what was there stays: {text}");
    }

    /// The size of the window is arbitrary.
    #[test]
    fn any_size_is_drawn() {
        for (width, height) in [(1, 1), (2, 40), (10, 3), (30, 16), (300, 100)] {
            drawn(&state(), width, height);
            drawn(&State::new(String::new()), width, height);
        }
    }
}
