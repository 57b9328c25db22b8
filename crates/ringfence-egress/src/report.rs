//! The report of a sandbox's egress: which hosts were reached, with how many bytes, and what was refused. It is
//! bounded, and can be taken at any time: connections count while they are open, so that a call in a session sees what
//! a connection of an earlier call has done since.

use crate::refusal::Refusal;
use ringfence_types::Denial;
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum destinations, and maximum different refusals, with a line of their own.
pub const REPORT_LINES_MAX: usize = 64;

/// The egress of a sandbox since the previous report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressReport {
    /// Destinations, those with the most bytes first.
    pub reached: Vec<Reached>,
    /// Refusals; equal ones are listed once, with their number.
    pub denials: Vec<Denial>,
    /// Counts of everything that did not fit into the two lists.
    pub more: More,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    pub end: End,
    pub connections: u64,
    /// Requests that were read, on inspected connections.
    pub requests: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct More {
    /// Connections to destinations that are not listed.
    pub connections: u64,
    /// Refusals that are not listed.
    pub denials: u64,
}

/// Counters of one line of the report, which may still change while it is read.
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

#[derive(Debug, Default)]
pub(crate) struct Report {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// At most [`REPORT_LINES_MAX`], and those of open connections.
    lines: BTreeMap<End, Arc<Line>>,
    /// Connections to destinations whose line was removed.
    connections_omitted: u64,
    /// Each with its number.
    denials: Vec<(Denial, u64)>,
    denials_omitted: u64,
}

impl Report {
    pub(crate) fn line(&self, end: End) -> Arc<Line> {
        let mut state = self.state();
        let line = state.lines.entry(end).or_default().clone();
        if state.lines.len() > REPORT_LINES_MAX {
            let lines = state.lines.iter();
            let without_connection = lines.filter(|(_, line)| Arc::strong_count(line) == 1);
            let least = without_connection.min_by_key(|(_, line)| line.bytes());
            if let Some(end) = least.map(|(end, _)| end.clone())
                && let Some(least) = state.lines.remove(&end)
            {
                state.connections_omitted += least.connections.load(Ordering::Relaxed);
            }
        }
        line
    }

    /// Counts a refusal. True if it is the first of its kind since the report was taken, and has a place in the list.
    pub(crate) fn refused(&self, refusal: &Refusal) -> bool {
        let mut state = self.state();
        let is_same = |(known, _): &&mut (Denial, u64)| {
            known.rule == refusal.rule.as_str() && known.what == refusal.what
        };
        if let Some((_, times)) = state.denials.iter_mut().find(is_same) {
            *times += 1;
            return false;
        }
        if state.denials.len() >= REPORT_LINES_MAX {
            state.denials_omitted += 1;
            return false;
        }
        state.denials.push((refusal.denial(), 1));
        true
    }

    pub(crate) fn take(&self) -> EgressReport {
        let mut state = self.state();
        let mut reached = Vec::new();
        // A line stays as long as a connection is counted in it.
        state.lines.retain(|end, line| {
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
        reached.sort_by_key(|to| Reverse(to.bytes_out.saturating_add(to.bytes_in)));
        let cut = reached.drain(REPORT_LINES_MAX.min(reached.len())..);
        let connections = cut.map(|to| to.connections).sum::<u64>();
        let more = More {
            connections: connections + std::mem::take(&mut state.connections_omitted),
            denials: std::mem::take(&mut state.denials_omitted),
        };
        let listed = state.denials.drain(..).map(|(mut denial, times)| {
            if times > 1 {
                denial.what = format!("{} ({times} times)", denial.what);
            }
            denial
        });
        EgressReport {
            reached,
            denials: listed.collect(),
            more,
        }
    }

    /// Locks the report. A panic under the lock cannot leave it half-written: every change is a single step.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn bytes(&self) -> u64 {
        let [out, incoming] = [&self.bytes_out, &self.bytes_in].map(|count| count.load(Ordering::Relaxed));
        out.saturating_add(incoming)
    }

    /// Takes the connections, requests, bytes out and bytes in, and resets the counters.
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
    fn open_connection_is_reported_with_its_new_counts() {
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
    fn repeated_refusal_is_reported_once_with_its_number() {
        let report = Report::default();
        let refusal = Refusal::plain(RefusalRule::Name, "evil.test", "");
        assert!(report.refused(&refusal));
        assert!(!report.refused(&refusal));
        assert_eq!(report.take().denials[0].what, "evil.test (2 times)");
        assert!(report.refused(&refusal), "a new report begins");
    }

    #[test]
    fn entries_over_the_limit_are_counted() {
        let report = Report::default();
        for number in 0..100 {
            report.refused(&Refusal::plain(RefusalRule::Name, format!("h{number}.test"), ""));
            let line = report.line(end(&format!("h{number}.test")));
            line.connections.fetch_add(1, Ordering::Relaxed);
            if number == 99 {
                line.bytes_out.fetch_add(1, Ordering::Relaxed);
            }
        }
        let traffic = report.take();
        assert_eq!((traffic.reached.len(), traffic.denials.len()), (64, 64));
        assert_eq!(traffic.reached[0].end.name, "h99.test", "the most bytes");
        assert_eq!((traffic.more.connections, traffic.more.denials), (36, 36));
    }
}
