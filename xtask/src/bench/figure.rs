//! Formats one cell of a table: a figure with its name, or a goal.

use serde_json::Value;

/// Formats `gcra 31 ns`, with calls per second where threads contend, or how well a rate was kept.
pub(super) fn figure(row: &Value, who: &str) -> String {
    let figure = &row[who];
    let name = figure["name"].as_str().unwrap_or_default();
    if let Some(achieved) = figure["achieved"].as_f64() {
        let late = match (figure["late_p50_ns"].as_f64(), figure["late_p90_ns"].as_f64()) {
            (Some(half), Some(max)) => format!(", late {}/{}", span(half), span(max)),
            _ => String::new(),
        };
        let cpu = figure["cpu"].as_f64().unwrap_or(f64::NAN);
        return format!("{name} {achieved:.4}{late}, CPU {cpu:.2}");
    }
    if let Some(took_s) = figure["took"].as_f64() {
        let order = match figure["out_of_order"].as_u64() {
            Some(0) => "in order".to_owned(),
            Some(displaced) => format!("up to {displaced} places out of order"),
            None => "order not known".to_owned(),
        };
        let bytes = figure["bytes"].as_f64();
        let bytes = bytes.map_or_else(String::new, |bytes| format!(", {bytes:.0} bytes each"));
        return format!("{name} {took_s:.2} s, {order}{bytes}");
    }
    if let Some(shown) = of_keys(figure) {
        return format!("{name} {shown}");
    }
    let Some(ns) = figure["ns"].as_f64() else { return "–".to_owned() };
    let together = match (row["threads"].as_u64(), figure["per_s"].as_f64()) {
        (Some(2..), Some(per_s)) => format!(", {:.1} M/s", per_s / 1e6),
        _ => String::new(),
    };
    let broken = broken(row, who).map_or_else(String::new, |note| format!(" ({note})"));
    format!("{name} {ns:.1} ns{together}{broken}")
}

/// Returns a note if calls were granted or denied against the path's name: such a figure is not
/// valid.
fn broken(row: &Value, who: &str) -> Option<String> {
    let granted = row[who]["granted"].as_f64()?;
    let denying = row["path"].as_str().is_some_and(|path| path.contains("denied"));
    // The machine's own steps always succeed.
    let expected = if denying && who != "floor" { 0.0 } else { 1.0 };
    ((granted - expected).abs() > 0.001).then(|| format!("{:.0} % granted", granted * 100.0))
}

pub(super) fn span(ns: f64) -> String {
    if ns < 1e3 {
        format!("{ns:.0} ns")
    } else if ns < 1e6 {
        format!("{:.0} µs", ns / 1e3)
    } else if ns < 1e9 {
        format!("{:.1} ms", ns / 1e6)
    } else {
        format!("{:.2} s", ns / 1e9)
    }
}

/// Formats the figures of keyed tables other than time.
fn of_keys(figure: &Value) -> Option<String> {
    if let Some(times) = figure["times"].as_f64() {
        return Some(format!("{times:.2} times"));
    }
    if let Some(bytes) = figure["bytes_each"].as_f64() {
        return Some(format!("{bytes:.1} bytes each"));
    }
    if let Some(bytes) = figure["bytes"].as_f64() {
        return Some(size(bytes));
    }
    if let (Some(slowest), Some(max)) =
        (figure["longest_ns"].as_f64(), figure["p99999_ns"].as_f64())
    {
        return Some(format!("{}, 99.999 % within {}", span(slowest), span(max)));
    }
    figure["kept"].as_u64().map(|survivors| format!("{survivors} of {}", figure["of"]))
}

/// Formats `≤ 0.20, met`, or the value by which the goal is missed.
pub(super) fn goal(goal: &Value) -> String {
    let Some(measured) = goal["measured"].as_f64() else { return "–".to_owned() };
    let unit = goal["unit"].as_str().unwrap_or_default();
    let shown = |number: f64| match unit {
        "" => format!("{number:.2}"),
        "ns beyond" => format!("{} beyond", span(number)),
        _ => amount(number, unit),
    };
    let (sign, bound, met) = match (goal["most"].as_f64(), goal["least"].as_f64()) {
        (Some(max), _) => ("≤", max, measured <= max),
        (None, Some(min)) => ("≥", min, measured >= min),
        (None, None) => return "–".to_owned(),
    };
    if met {
        format!("{sign} {}, met", shown(bound))
    } else {
        format!("{sign} {}, missed: {}", shown(bound), shown(measured))
    }
}

/// Formats a number with its unit.
pub(super) fn amount(number: f64, unit: &str) -> String {
    match unit {
        "ns" => span(number),
        "bytes" => size(number),
        "/s" if number >= 1e6 => format!("{:.2} M/s", number / 1e6),
        "/s" => format!("{:.1} k/s", number / 1e3),
        "" => format!("{number:.1}"),
        "ratio" => format!("{number:.2}"),
        "keys" | "permits" => format!("{number:.0} {unit}"),
        _ => format!("{number:.1} {unit}"),
    }
}

fn size(bytes: f64) -> String {
    if bytes.abs() < 1e4 { format!("{bytes:.0} bytes") } else { format!("{:.1} MB", bytes / 1e6) }
}
