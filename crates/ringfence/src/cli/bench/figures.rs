//! Results of a measurement, and their text.

use ringfence_types::Phases;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Document {
    /// Processor model, number of cores and kernel version.
    #[serde(default)]
    pub(super) machine: String,
    pub(super) lines: Vec<Line>,
    #[serde(default)]
    pub(super) throughput: Vec<Throughput>,
    /// Phases of the measured warm Python calls, one entry per call.
    #[serde(default)]
    pub(super) phases: Vec<Phases>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) reference: Option<String>,
    pub(super) samples_ms: Vec<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Throughput {
    pub(super) concurrency: usize,
    pub(super) calls_per_second: f64,
}

impl Line {
    pub(super) fn new(name: &str, reference: Option<&str>, samples_ms: Vec<f64>) -> Self {
        Self {
            name: name.to_owned(),
            reference: reference.map(str::to_owned),
            samples_ms,
        }
    }

    /// Percentile by nearest rank: the smallest measurement that at least `percent` percent do not exceed.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.samples_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * percent)
            .div_ceil(100)
            .clamp(1, sorted.len().max(1));
        sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
    }
}

impl Document {
    /// Checks an untrusted document: every line has measurements, and all are positive, finite times.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.lines.is_empty() {
            return Err("it has no lines".to_owned());
        }
        let is_time = |time: &f64| time.is_finite() && *time > 0.0;
        let is_wrong = |line: &&Line| line.samples_ms.is_empty() || !line.samples_ms.iter().all(is_time);
        match self.lines.iter().find(is_wrong) {
            Some(line) => Err(format!("`{}` has no measurements, or wrong ones", line.name)),
            None => Ok(()),
        }
    }

    pub(super) fn ratio(&self, line: &Line) -> Option<f64> {
        let mut others = self.lines.iter();
        let reference = others.find(|other| Some(&other.name) == line.reference.as_ref())?;
        Some(line.percentile(50) / reference.percentile(50))
    }

    pub(super) fn as_text(&self) -> String {
        let widths = self.lines.iter().map(|line| line.name.chars().count());
        let width = widths.max().unwrap_or(0);
        let mut text = format!(
            "{}\n{:width$}  {:>6} {:>8} {:>8} {:>8}  {:>6}\n",
            self.machine, "", "runs", "p50 ms", "p90 ms", "p99 ms", "x bare"
        );
        for line in &self.lines {
            let [p50, p90, p99] = [50, 90, 99].map(|percent| line.percentile(percent));
            let ratio = self.ratio(line);
            let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            text += &format!(
                "{:width$}  {:>6} {p50:>8.2} {p90:>8.2} {p99:>8.2}  {ratio:>6}\n",
                line.name,
                line.samples_ms.len()
            );
        }
        for entry in &self.throughput {
            text += &format!(
                "{:>3} at once: {:>6.0} calls/s\n",
                entry.concurrency, entry.calls_per_second
            );
        }
        if !self.phases.is_empty() {
            let median = |of: fn(&Phases) -> f64| {
                Line::new("", None, self.phases.iter().map(of).collect()).percentile(50)
            };
            text += &format!(
                "time of a Python call by phase (p50 ms): queued {:.2}, claimed {:.2}, run until all processes have ended {:.2}, files {:.2}\n",
                median(|p| p.queued_ms),
                median(|p| p.start_ms),
                median(|p| p.run_ms),
                median(|p| p.finish_ms)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_nearest_rank_and_ratios_use_medians() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let long = Line::new("a", None, hundred);
        assert_eq!(
            [50, 90, 99].map(|percent| long.percentile(percent)),
            [50.0, 90.0, 99.0]
        );
        let document = Document {
            lines: vec![
                Line::new("bare", None, vec![10.0]),
                Line::new("ours", Some("bare"), vec![2.0, 3.0, 9.0]),
            ],
            ..Document::default()
        };
        assert_eq!(document.ratio(&document.lines[1]), Some(0.3));
        assert_eq!(document.ratio(&document.lines[0]), None);
        assert!(document.as_text().contains("0.30"), "{}", document.as_text());
    }

    #[test]
    fn documents_without_valid_measurements_are_rejected() {
        let check = |samples_ms: Vec<f64>, expect: bool| {
            let document = Document {
                lines: vec![Line::new("a", None, samples_ms)],
                ..Document::default()
            };
            assert_eq!(document.check().is_ok(), expect, "{document:?}");
        };
        assert!(Document::default().check().is_err());
        check(vec![1.0], true);
        check(vec![], false);
        check(vec![1.0, f64::NAN], false);
        check(vec![0.0], false);
    }
}
