//! The report of a sandbox's egress: which hosts were reached, with how many bytes, and what was refused. It is
//! bounded, and can be taken at any time: a connection counts as it goes, so that a session's call sees what a
//! connection of an earlier call did since.

use crate::refusal::Refusal;
use ringfence_types::Denial;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The most destinations, and the most different refusals, that have lines of their own.
pub const TOLD_MAX: usize = 64;

/// What happened since the last time somebody asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressReport {
    pub reached: Vec<Reached>,
    /// What was refused; the same thing many times is told once, with how often.
    pub denials: Vec<Denial>,
    /// What did not fit into the two lists.
    pub more: More,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    pub end: End,
    pub connections: u64,
    /// Requests that were read, where the connection was one that is read.
    pub requests: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct More {
    /// Connections to others than those that are told.
    pub connections: u64,
    /// Refusals of other kinds than those that are told.
    pub denials: u64,
}

/// One line of the report, counted into while it is read.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    pub name: String,
    pub port: u16,
    pub address: IpAddr,
}

/// A sandbox's report while it is being written.
#[derive(Debug, Default)]
pub(crate) struct Report {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: BTreeMap<End, Arc<Line>>,
    /// For all that has no line of its own.
    rest: Arc<Line>,
    /// With how often each came.
    denials: Vec<(Denial, u64)>,
    denials_untold: u64,
}

impl Report {
    /// The line that a connection to `end` counts into.
    pub(crate) fn line(&self, end: End) -> Arc<Line> {
        let mut kept = self.kept();
        if kept.lines.len() >= TOLD_MAX && !kept.lines.contains_key(&end) {
            return kept.rest.clone();
        }
        kept.lines.entry(end).or_default().clone()
    }

    /// Whether it is the first of its kind since the report was taken.
    pub(crate) fn refused(&self, refusal: &Refusal) -> bool {
        let mut kept = self.kept();
        let is_same = |(known, _): &&mut (Denial, u64)| {
            known.rule == refusal.rule.as_str() && known.what == refusal.what
        };
        if let Some((_, times)) = kept.denials.iter_mut().find(is_same) {
            *times += 1;
            return false;
        }
        if kept.denials.len() >= TOLD_MAX {
            kept.denials_untold += 1;
            return false;
        }
        kept.denials.push((refusal.denial(), 1));
        true
    }

    /// What there is since the last time.
    pub(crate) fn take(&self) -> EgressReport {
        let mut kept = self.kept();
        let mut reached = Vec::new();
        // A line stays for as long as a connection counts into it.
        kept.lines.retain(|end, line| {
            let counts = line.take();
            if counts != [0; 4] {
                let [connections, requests, bytes_out, bytes_in] = counts;
                reached.push(Reached {
                    end: end.clone(),
                    connections,
                    requests,
                    bytes_out,
                    bytes_in,
                });
            }
            Arc::strong_count(line) > 1
        });
        let [connections, ..] = kept.rest.take();
        let more = More {
            connections,
            denials: std::mem::take(&mut kept.denials_untold),
        };
        let told = kept.denials.drain(..).map(|(mut denial, times)| {
            if times > 1 {
                denial.what = format!("{} ({times} times)", denial.what);
            }
            denial
        });
        EgressReport {
            reached,
            denials: told.collect(),
            more,
        }
    }

    /// A panic while it was held cannot have left it half-written: every change is a single one.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Connections, requests, bytes out and in, which begin again.
    pub(crate) fn take(&self) -> [u64; 4] {
        [&self.connections, &self.requests, &self.bytes_out, &self.bytes_in]
            .map(|count| count.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::RefusalRule;

    fn end(name: &str) -> End {
        End {
            name: name.to_owned(),
            port: 443,
            address: IpAddr::from([93, 184, 216, 34]),
        }
    }

    #[test]
    fn a_connection_that_lives_on_is_told_with_what_it_did_since() {
        let report = Report::default();
        let line = report.line(end("api.test"));
        line.connections.fetch_add(1, Ordering::Relaxed);
        line.bytes_in.fetch_add(10, Ordering::Relaxed);
        let first = report.take();
        assert_eq!((first.reached[0].connections, first.reached[0].bytes_in), (1, 10));
        assert_eq!(report.take(), EgressReport::default(), "nothing moved");
        line.bytes_in.fetch_add(5, Ordering::Relaxed);
        drop(line);
        let second = report.take();
        assert_eq!(
            (second.reached[0].connections, second.reached[0].bytes_in),
            (0, 5)
        );
        assert_eq!(report.take(), EgressReport::default());
    }

    #[test]
    fn the_same_refusal_is_told_once_with_how_often() {
        let report = Report::default();
        let refusal = Refusal::plain(RefusalRule::Name, "evil.test", "");
        assert!(report.refused(&refusal));
        assert!(!report.refused(&refusal));
        assert_eq!(report.take().denials[0].what, "evil.test (2 times)");
        assert!(report.refused(&refusal), "a new report begins");
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let report = Report::default();
        for number in 0..100 {
            report.refused(&Refusal::plain(RefusalRule::Name, format!("h{number}.test"), ""));
            let line = report.line(end(&format!("h{number}.test")));
            line.connections.fetch_add(1, Ordering::Relaxed);
        }
        let traffic = report.take();
        assert_eq!((traffic.reached.len(), traffic.denials.len()), (64, 64));
        assert_eq!((traffic.more.connections, traffic.more.denials), (36, 36));
    }
}
