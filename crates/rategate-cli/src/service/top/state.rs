//! The state of the view: the last known rules, their order, and the selected one.

use std::collections::{HashMap, VecDeque};

use crate::service::client::NoReplyReason;

/// The maximum number of samples in the history, which bounds the width of the chart.
const MAX_SAMPLES: usize = 300;

/// The rules at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overview {
    /// The rules, in the service's order.
    pub(crate) rules: Vec<Row>,
    /// The rule that `keys` belong to.
    pub(crate) keys_of: Option<String>,
    /// The top keys, the heaviest first.
    pub(crate) keys: Vec<Key>,
}

/// A rule and its figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Its name in Envoy's format, where that differs.
    pub(crate) given: Option<String>,
    /// The limit as it was written.
    pub(crate) limit: String,
    /// Arrivals in the newest complete second.
    pub(crate) arrivals: u64,
    pub(crate) granted: u64,
    pub(crate) denied: u64,
    /// A summary of the current traffic.
    pub(crate) sentence: String,
}

/// A top key of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) used: u64,
    pub(crate) denied: u64,
}

impl Row {
    /// Returns the name that is displayed.
    pub(crate) fn shown(&self) -> String {
        match &self.given {
            Some(given) => format!("{} ({given})", self.name),
            None => self.name.clone(),
        }
    }
}

/// The column that the rules are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Denied,
    Arrivals,
    Granted,
    Name,
}

/// A request of the user at the keyboard.
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
    Quit,
}

/// The state of the view.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The address of the service.
    pub(super) endpoint: String,
    /// The last fetched data, in the order of the view.
    pub(super) overview: Overview,
    /// The arrivals of each sample, by rule, the latest last.
    history: HashMap<String, VecDeque<u64>>,
    /// The reason why the last fetch failed.
    pub(super) silence: Option<NoReplyReason>,
    pub(super) order: Order,
    pub(super) is_reversed: bool,
    is_paused: bool,
    /// The selected rule, by name, so that it stays selected in another order.
    chosen: Option<String>,
}

impl Order {
    const fn next(self) -> Self {
        match self {
            Self::Denied => Self::Arrivals,
            Self::Arrivals => Self::Granted,
            Self::Granted => Self::Name,
            Self::Name => Self::Denied,
        }
    }
}

impl State {
    pub(super) fn new(endpoint: String) -> Self {
        Self { endpoint, ..Self::default() }
    }

    /// Stores the result of a fetch. A failed fetch keeps the old data, and is displayed.
    pub(super) fn take(&mut self, seen: Result<Overview, NoReplyReason>) {
        match seen {
            Ok(overview) => {
                self.remember(&overview);
                self.overview = overview;
                self.silence = None;
                self.sort();
            }
            Err(silence) => self.silence = Some(silence),
        }
    }

    /// Performs the action. Returns `true` if another rule is selected now.
    pub(super) fn apply(&mut self, action: Action) -> bool {
        let before = self.chosen.clone();
        let (at, last) = (self.chosen_index(), self.overview.rules.len().saturating_sub(1));
        match action {
            Action::Up => self.choose(at.saturating_sub(1)),
            Action::Down => self.choose(at.saturating_add(1).min(last)),
            Action::First => self.choose(0),
            Action::Last => self.choose(last),
            Action::Sort => self.order = self.order.next(),
            Action::Reverse => self.is_reversed = !self.is_reversed,
            Action::Pause => self.is_paused = !self.is_paused,
            Action::Redraw | Action::Quit => {}
        }
        self.sort();
        self.chosen != before
    }

    pub(super) fn chosen(&self) -> Option<&str> {
        self.chosen.as_deref()
    }

    /// Returns the index of the selected line.
    pub(super) fn chosen_index(&self) -> usize {
        let is_chosen = |row: &Row| Some(row.name.as_str()) == self.chosen();
        self.overview.rules.iter().position(is_chosen).unwrap_or(0)
    }

    pub(super) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns the last arrivals of the selected rule, the latest first.
    pub(super) fn latest(&self, max: usize) -> Vec<u64> {
        let all = self.chosen().and_then(|name| self.history.get(name));
        let all = all.into_iter().flatten().copied();
        all.rev().take(max).collect()
    }

    fn remember(&mut self, overview: &Overview) {
        self.history.retain(|name, _| overview.rules.iter().any(|row| row.name == *name));
        for row in &overview.rules {
            let samples = self.history.entry(row.name.clone()).or_default();
            if samples.len() >= MAX_SAMPLES {
                samples.pop_front();
            }
            samples.push_back(row.arrivals);
        }
    }

    fn choose(&mut self, at: usize) {
        self.chosen = self.overview.rules.get(at).map(|row| row.name.clone());
    }

    /// Sorts by the chosen column, the highest first, or names from a to z; reversed on request.
    /// Equal rows are ordered by name, so that lines do not jump.
    fn sort(&mut self) {
        let (order, is_reversed) = (self.order, self.is_reversed);
        self.overview.rules.sort_by(|one, other| {
            let by_order = match order {
                Order::Denied => other.denied.cmp(&one.denied),
                Order::Arrivals => other.arrivals.cmp(&one.arrivals),
                Order::Granted => other.granted.cmp(&one.granted),
                Order::Name => one.name.cmp(&other.name),
            };
            let by_order = if is_reversed { by_order.reverse() } else { by_order };
            by_order.then_with(|| one.name.cmp(&other.name))
        });
        let is_there = |row: &Row| Some(row.name.as_str()) == self.chosen.as_deref();
        if !self.overview.rules.iter().any(is_there) {
            self.choose(0);
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a panic in a test is a failed test")]
pub(super) mod tests {
    use super::{Action, Key, Overview, Row, State};
    use crate::service::client::NoReplyReason;

    pub(in crate::service::top) fn overview() -> Overview {
        let row = |name: &str, arrivals: u64, denied: u64| Row {
            name: name.to_owned(),
            given: None,
            limit: "100 per second".to_owned(),
            arrivals,
            granted: arrivals.saturating_sub(denied),
            denied,
            sentence: format!("{name} is busy"),
        };
        Overview {
            rules: vec![row("a", 5, 0), row("b", 900, 12), row("c", 70, 40)],
            keys_of: Some("c".to_owned()),
            keys: vec![Key { name: "user:7".to_owned(), used: 30, denied: 40 }],
        }
    }

    fn names(state: &State) -> Vec<&str> {
        state.overview.rules.iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn rules_are_sorted_by_the_chosen_column() {
        let mut state = State::new("here".to_owned());
        state.take(Ok(overview()));
        assert_eq!(names(&state), ["c", "b", "a"], "by denials");
        state.apply(Action::Sort);
        assert_eq!(names(&state), ["b", "c", "a"], "by arrivals");
        state.apply(Action::Reverse);
        assert_eq!(names(&state), ["a", "c", "b"]);
        state.apply(Action::Sort);
        state.apply(Action::Sort);
        assert_eq!(names(&state), ["c", "b", "a"], "by name, turned");
    }

    #[test]
    fn the_chosen_rule_stays_chosen_in_another_order() {
        let mut state = State::new("here".to_owned());
        state.take(Ok(overview()));
        assert_eq!(state.chosen(), Some("c"));
        assert!(state.apply(Action::Down) && state.chosen() == Some("b"));
        assert!(!state.apply(Action::Sort), "still b");
        assert_eq!((state.chosen(), state.chosen_index()), (Some("b"), 0));
        assert!(!state.apply(Action::Up), "there is none above");
        assert!(state.apply(Action::Last) && state.chosen() == Some("a"));
        let mut fewer = overview();
        fewer.rules.remove(0);
        state.take(Ok(fewer));
        assert_eq!(state.chosen(), Some("b"), "a is gone");
        state.take(Ok(Overview::default()));
        assert_eq!(state.chosen(), None);
    }

    #[test]
    fn samples_are_remembered_by_rule_and_bounded() {
        let mut state = State::new("here".to_owned());
        for sample in 0..400_u64 {
            let mut seen = overview();
            seen.rules[2].arrivals = sample;
            state.take(Ok(seen));
        }
        assert_eq!(state.chosen(), Some("c"));
        assert_eq!(state.latest(3), [399, 398, 397]);
        assert_eq!(state.latest(1000).len(), super::MAX_SAMPLES);
    }

    #[test]
    fn the_last_figures_stay_while_the_service_is_silent() {
        let mut state = State::new("here".to_owned());
        state.take(Ok(overview()));
        state.take(Err(NoReplyReason("gone".to_owned())));
        assert_eq!(state.overview.rules.len(), 3);
        assert!(state.silence.is_some());
        state.take(Ok(overview()));
        assert!(state.silence.is_none());
    }
}
