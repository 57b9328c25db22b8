//! The toolsets `observe` and `vault`: what happened and happens in a namespace, what it may use, what it left, and the
//! names of its secrets. There is no tool that takes or gives a secret's value.

use super::{
    Answer, Offer,
    arguments::{Arguments, NAMESPACE, Name, invalid},
    execute_code::LIMIT_NAMES,
};
use crate::{
    moment,
    shown::{self, Shown},
};
use ringfence_engine::{Caller, Engine};
use ringfence_store::audit::{Outcome, Query};
use ringfence_types::{EnvName, LimitsRequest, Namespace, RequestError};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const ID: Name = ("request_id", &["execution_id"]);
pub(super) const KEY: Name = ("key", &[]);
pub(super) const LIMIT: Name = ("limit", &[]);
pub(super) const ACTION: Name = ("action", &[]);
pub(super) const SINCE: Name = ("since", &[]);
pub(super) const OUTCOME: Name = ("outcome", &[]);
pub(super) const BEFORE: Name = ("before", &[]);

pub(super) const RECORDS: u64 = 50;
pub(super) const RECORDS_MAX: u64 = 1000;

pub(super) type Object = Map<String, Value>;
pub(super) type Answered = Result<Answer, RequestError>;

/// One call of one of these tools.
pub(super) struct Call<'a> {
    engine: &'a Engine,
    caller: &'a Caller,
    offer: &'a Offer,
    pub(super) tool: &'static str,
    has_asked: AtomicBool,
}

impl<'a> Call<'a> {
    pub(super) fn new(engine: &'a Engine, caller: &'a Caller, offer: &'a Offer, tool: &'static str) -> Self {
        Self {
            engine,
            caller,
            offer,
            tool,
            has_asked: AtomicBool::new(false),
        }
    }

    /// Was the engine asked: it puts on record what it is asked for. What was refused before is for others to note.
    pub(super) fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    pub(super) fn engine(&self) -> &Engine {
        self.has_asked.store(true, Ordering::Relaxed);
        self.engine
    }

    pub(super) fn caller(&self) -> &Caller {
        self.caller
    }

    pub(super) fn offer(&self) -> &Offer {
        self.offer
    }

    pub(super) fn open(
        &self,
        arguments: Object,
        known: &[Name],
    ) -> Result<(Arguments, Namespace), RequestError> {
        let names = [known, &[NAMESPACE]].concat();
        let mut arguments = Arguments::open(arguments, "", &names)?;
        let namespace = arguments.namespace(self.offer.namespaces)?;
        Ok((arguments, namespace))
    }

    /// Nothing but a namespace, and on record.
    pub(super) async fn look(&self, arguments: Object) -> Result<Namespace, RequestError> {
        let (_, namespace) = self.open(arguments, &[])?;
        self.engine()
            .note_call(self.caller, namespace.as_str(), self.tool)
            .await?;
        Ok(namespace)
    }

    pub(super) async fn stats(&self, arguments: Object) -> Answered {
        let namespace = self.look(arguments).await?;
        let mut stats = self.engine().stats();
        if !self.offer.shows_others() {
            stats
                .queue
                .lines
                .retain(|line| line.namespace == namespace.as_str());
        }
        Ok(answer(shown::stats(&stats)))
    }

    pub(super) async fn metrics(&self, arguments: Object) -> Answered {
        self.look(arguments).await?;
        Ok(answer(shown::counts(&self.engine().counts())))
    }

    pub(super) async fn inspect(&self, arguments: Object) -> Answered {
        let namespace = self.look(arguments).await?;
        Ok(answer(shown::inspection(&self.engine().inspect(&namespace)?)))
    }

    pub(super) async fn set_limits(&self, arguments: Object) -> Answered {
        let known = LIMIT_NAMES.map(|name| (name, [].as_slice()));
        let (mut arguments, namespace) = self.open(arguments, &known)?;
        let [ram, cpu, timeout, processes, output, disk] = known;
        let wish = LimitsRequest {
            max_ram_mb: arguments.whole(ram)?,
            max_cpu_cores: arguments.number(cpu)?,
            timeout_ms: arguments.number(timeout)?.map(milliseconds).transpose()?,
            max_processes: arguments
                .whole(processes)?
                .map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
            max_output_bytes: arguments.whole(output)?,
            max_disk_mb: arguments.whole(disk)?,
        };
        if wish == LimitsRequest::default() {
            let names = LIMIT_NAMES.join(", ");
            return Err(invalid(
                "no limit is given.".to_owned(),
                format!("Give one or more of {names}."),
            ));
        }
        self.engine()
            .narrow_limits(self.caller, &namespace, &wish)
            .await?;
        let (defaults, caps) = self.engine().limits_of(&namespace);
        let mut shown = shown::limits(&namespace, &defaults, &caps);
        shown.text = format!("the limits of {namespace} are narrower now\n{}", shown.text);
        Ok(answer(shown))
    }

    pub(super) async fn artifacts(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) = self.open(arguments, &[ID])?;
        let id = arguments.text(ID)?.ok_or_else(|| {
            invalid(
                "`request_id` is missing.".to_owned(),
                "Give the execution_id of a result.",
            )
        })?;
        let manifest = self.engine().manifest(self.caller, &namespace, &id).await?;
        let mut text = String::new();
        for item in &manifest.artifacts {
            text += &format!(
                "{} ({}, {} bytes, sha256 {})\n",
                item.name, item.mime, item.size_bytes, item.sha256
            );
        }
        let artifacts: Vec<Value> = manifest
            .artifacts
            .iter()
            .map(|item| {
                json!({
                    "name": item.name,
                    "size_bytes": item.size_bytes,
                    "sha256": item.sha256,
                    "signature": item.signature,
                    "mime": item.mime,
                    "uri": ringfence_engine::artifact_uri(&namespace, &manifest.execution_id, &item.name),
                })
            })
            .collect();
        let structured = json!({
            "success": true,
            "execution_id": manifest.execution_id,
            "artifacts": artifacts,
            "manifest": {
                "namespace": manifest.namespace,
                "created_unix_ms": manifest.created_unix_ms,
                "public_key": manifest.public_key,
                "signature": manifest.signature,
            },
        });
        Ok(Answer::plain(text, structured))
    }

    pub(super) async fn audit(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) = self.open(arguments, &[LIMIT, ACTION, SINCE, OUTCOME, BEFORE])?;
        let limit = arguments.whole(LIMIT)?.unwrap_or(RECORDS);
        if !(1..=RECORDS_MAX).contains(&limit) {
            return Err(invalid(
                format!("limit = {limit} is outside 1..={RECORDS_MAX}."),
                "Read on with `before`.",
            ));
        }
        let word = |reason: String| invalid(format!("{reason}."), "See the tool's input schema.");
        let since = arguments.text(SINCE)?;
        let since = since.map(|text| moment::read(&text).map_err(word)).transpose()?;
        let action = arguments
            .text(ACTION)?
            .map(|text| shown::action(&text).map_err(word))
            .transpose()?;
        let outcome = arguments.text(OUTCOME)?;
        let outcome = outcome.map(|text| text.parse::<Outcome>().map_err(|reason| word(reason.to_string())));
        let query = Query {
            namespace: Some(namespace.to_string()),
            actions: action,
            outcome: outcome.transpose()?,
            since_us: since,
            before_seq: arguments
                .whole(BEFORE)?
                .map(|before| before.min(i64::MAX.unsigned_abs())),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            newest_first: true,
            ..Query::default()
        };
        let page = self.engine().audit(self.caller, query).await?;
        Ok(answer(shown::records(&page)))
    }

    pub(super) async fn vault_list(&self, arguments: Object) -> Answered {
        let (_, namespace) = self.open(arguments, &[])?;
        let secrets = self.engine().secrets(self.caller, &namespace).await?;
        Ok(answer(shown::secrets(
            &namespace,
            self.engine().stats().vault,
            &secrets,
        )))
    }

    pub(super) async fn vault_delete(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) = self.open(arguments, &[KEY])?;
        let key = arguments.text(KEY)?.ok_or_else(|| {
            invalid(
                "`key` is missing.".to_owned(),
                "Name the secret; `vault_list` has their names.",
            )
        })?;
        let key = EnvName::try_from(key)
            .map_err(|reason| invalid(format!("`key`: {reason}."), "Name a secret."))?;
        let existed = self.engine().delete_secret(self.caller, &namespace, &key).await?;
        let text = if existed { "deleted\n" } else { "there was none\n" };
        Ok(Answer::plain(
            text.to_owned(),
            json!({"success": true, "existed": existed}),
        ))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be between 0 and a year"
)]
pub(super) fn milliseconds(seconds: f64) -> Result<u64, RequestError> {
    const YEAR: f64 = 366.0 * 24.0 * 60.0 * 60.0;
    if seconds > 0.0 && seconds <= YEAR {
        Ok((seconds * 1000.0).round() as u64)
    } else {
        Err(invalid(
            format!("{seconds} seconds are no length of time."),
            "Give seconds.",
        ))
    }
}

/// What is shown, as the answer of a tool that succeeded.
pub(super) fn answer(Shown { text, mut facts }: Shown) -> Answer {
    facts["success"] = json!(true);
    Answer::plain(text, facts)
}
