//! The report of a run, as text, as JSON, and as a picture.

use std::fmt::Write as _;

use rategate_core::span;
use serde::Serialize;

use super::{Measure, Measured, Numbers, Percent, Run, ServerFile};

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct ServerReport {
    /// The title of the file.
    pub title: Option<String>,
    /// Each measure.
    pub measures: Vec<MeasureReport>,
    /// The goals that are missed.
    pub mismatches: Vec<String>,
    #[serde(skip)]
    pub(super) run: Run,
}

/// The numbers of a measure.
#[derive(Clone, Debug, Serialize)]
pub struct MeasureReport {
    /// Its time.
    #[serde(flatten)]
    pub measure: Measure,
    /// Its calls.
    #[serde(flatten)]
    pub measured: Measured,
    /// Its results as numbers that can be compared.
    #[serde(flatten)]
    pub numbers: Numbers,
}

impl ServerFile {
    /// Runs the file, and compares what comes of it with its goals.
    #[must_use]
    pub fn report(&self) -> ServerReport {
        let run = self.run();
        let with_goals = self.goals.iter().zip(&run.measured).enumerate();
        let missed = |(at, (goal, measured)): (usize, (&super::Goal, &Measured))| {
            let missed = goal.missed_by(&measured.numbers()).into_iter();
            missed.map(move |why| format!("measure {}: {why}", at.saturating_add(1)))
        };
        let mismatches = with_goals.flat_map(missed).collect();
        let of = |(&measure, measured): (&Measure, &Measured)| {
            let numbers = measured.numbers();
            MeasureReport { measure, measured: measured.clone(), numbers }
        };
        let measures = self.setup.measures.iter().zip(&run.measured).map(of).collect();
        ServerReport { title: self.title.clone(), measures, mismatches, run }
    }
}

impl ServerReport {
    /// Returns `true` if all goals are met.
    #[must_use]
    pub const fn passed(&self) -> bool {
        self.mismatches.is_empty()
    }

    /// Returns the report for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if let Some(title) = &self.title {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{title}\n");
        }
        for measure in &self.measures {
            let MeasureReport { measure, measured, numbers } = measure;
            let (from, to) = (span::Text(measure.from_ns), span::Text(measure.to_ns));
            let Numbers { goodput_per_mille, p99_ns, jain_per_mille, shed_per_mille, .. } =
                *numbers;
            let (goodput, shed) = (Percent(goodput_per_mille), Percent(shed_per_mille));
            let p99 = span::Text(p99_ns);
            let Measured { made, sent, refused, late, .. } = measured;
            let served = measured.served.iter().copied().fold(0, u64::saturating_add);
            let _ = writeln!(
                text,
                "{from} to {to}: {made} calls, {sent} sent, {served} served in time, {refused} \
                 refused, {late} too late\n  goodput {goodput}, shed {shed}, 99 of 100 within {p99}"
            );
            if measured.served.len() > 1 {
                let (whole, part) = (jain_per_mille / 1_000, jain_per_mille % 1_000);
                let _ = writeln!(text, "  Jain's index of the clients {whole}.{part:03}");
            }
        }
        for mismatch in &self.mismatches {
            let _ = writeln!(text, "missed: {mismatch}");
        }
        text
    }

    /// Returns the report for programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }
}
