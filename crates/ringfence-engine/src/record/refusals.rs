//! Counts refusals, so that a flood of refused calls does not fill the record. The first refusals of a period are
//! recorded one by one; further ones are counted, and one record has their number.

use super::{Note, Record};
use crate::{caller::ENGINE_CALLER, sync::lock};
use ringfence_store::audit::{Action, Outcome};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
    time::Duration,
};

const PERIOD: Duration = Duration::from_secs(10);
/// Refusals of one namespace in one period, and of all, that get their own record.
const OWN_MAX: u64 = 100;
const ALL_MAX: u64 = 1000;

#[derive(Default)]
pub(crate) struct Refusals(Mutex<Period>);

#[derive(Default)]
struct Period {
    is_open: bool,
    written: u64,
    own: HashMap<String, u64>,
    /// Refusals that were only counted, by action and error code.
    counted: BTreeMap<String, u64>,
}

impl Refusals {
    /// Counts a refusal. False if it needs its own record.
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
        // Once the limit for all is reached, no further namespace is added.
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

    /// Ends the period, and records the counts.
    pub(crate) fn flush(&self, record: &Record) {
        let Period { counted, .. } = std::mem::take(&mut *lock(&self.0));
        let sum: u64 = counted.values().sum();
        if sum > 0 {
            let details = json!({"refusals_counted": sum, "by_kind": counted, "period_s": PERIOD.as_secs()});
            let note = Note::of(&ENGINE_CALLER, "", Action::ToolCalled, details);
            record.note_unwaited(note.ended(Outcome::Denied));
        }
    }
}
