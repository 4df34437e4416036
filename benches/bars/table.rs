//! What was measured, as a table.

use std::fmt;
use std::time::Duration;

/// One figure and its bar.
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// What came out.
    pub(crate) figure: String,
    /// What the machine can do at all, measured beside it.
    pub(crate) bare: String,
    /// The figure against that.
    pub(crate) ratio: String,
    /// What is asked.
    pub(crate) bar: String,
    /// Whether it is reached; none where nothing is asked.
    pub(crate) met: Option<bool>,
}

/// Rows in the order they were measured.
#[derive(Default)]
pub(crate) struct Table(Vec<Row>);

impl Table {
    pub(crate) fn add(&mut self, row: Row) {
        self.0.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | figure | bare limit | ratio | bar | |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for row in &self.0 {
            let verdict = match row.met {
                Some(true) => "met",
                Some(false) => "**missed**",
                None => "",
            };
            let Row {
                what,
                figure,
                bare,
                ratio,
                bar,
                ..
            } = row;
            writeln!(
                f,
                "| {what} | {figure} | {bare} | {ratio} | {bar} | {verdict} |"
            )?;
        }
        Ok(())
    }
}

/// The middle one.
pub(crate) fn median(times: &mut [Duration]) -> Duration {
    percentile(times, 50)
}

/// The one that so many of a hundred stay below.
pub(crate) fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    let at = times.len() * percent / 100;
    times
        .get(at.min(times.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// Milliseconds with two digits.
pub(crate) fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

/// A rate with its thousands apart.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many a second.
pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
