//! A flood of refused calls costs a server little and must not fill the record: the first refusals of a period are on
//! record one by one, those beyond are counted, and one record has their number.

use super::{Note, Record};
use crate::{caller::OURS, sync::lock};
use ringfence_store::audit::{Action, Outcome};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
    time::Duration,
};

/// Period over which refusals are counted.
const PERIOD: Duration = Duration::from_secs(10);
/// Refusals of one namespace in one period that have a record of their own.
const OWN_MAX: u64 = 100;
/// Refusals of all namespaces in one period that have a record of their own.
const ALL_MAX: u64 = 1000;

#[derive(Default)]
pub(crate) struct Refusals(Mutex<Period>);

#[derive(Default)]
struct Period {
    is_open: bool,
    written: u64,
    own: HashMap<String, u64>,
    /// Those that were only counted, by what was refused and why.
    counted: BTreeMap<String, u64>,
}

impl Refusals {
    /// True: it is counted, and needs no record of its own.
    pub(crate) fn counts(&self, record: &Record, note: &Note<'_>) -> bool {
        let mut period = lock(&self.0);
        if !period.is_open {
            period.is_open = true;
            let record = record.clone();
            tokio::spawn(async move {
                tokio::time::sleep(PERIOD).await;
                record.flush_refusals();
            });
        }
        // After the last one that is written, no further namespace is remembered.
        if period.written < ALL_MAX {
            let own = period.own.entry(note.namespace.to_owned()).or_default();
            *own += 1;
            if *own <= OWN_MAX {
                period.written += 1;
                return false;
            }
        }
        let code = note.details["code"].as_str().unwrap_or("unknown");
        let kind = format!("{} {code}", note.action);
        *period.counted.entry(kind).or_default() += 1;
        true
    }

    /// Ends the period. What was counted in it goes on record.
    pub(crate) fn flush(&self, record: &Record) {
        let Period { counted, .. } = std::mem::take(&mut *lock(&self.0));
        let number: u64 = counted.values().sum();
        if number == 0 {
            return;
        }
        let details = json!({"refusals_counted": number, "by_kind": counted, "period_s": PERIOD.as_secs()});
        record.note_unwaited(Note::of(&OURS, "", Action::ToolCalled, details).ended(Outcome::Denied));
    }
}
