//! The toolsets `observe` and `vault`: activity, limits, artifacts and audit record of a namespace, and the names of
//! its secrets. No tool takes or returns a secret's value.

use super::{Answer, Answered, call::Call, execute_code::plain_limits, listings};
use crate::{
    api::{
        AuditExecution, GetArtifacts, GetSandboxInfo, GetSandboxMetrics, InspectState, LIMIT_NAMES,
        ListRuntimes, SandboxStats, SetResourceLimits, VaultDelete, VaultList, invalid,
    },
    render::{self, Rendered},
    time,
};
use ringfence_store::audit::Query;
use ringfence_types::{ErrorCode, Limits, LimitsRequest, Namespace, RequestError};
use serde_json::json;

const RECORDS: u64 = 50;
const RECORDS_MAX: u64 = 1000;

impl Call<'_> {
    pub(super) async fn list_runtimes(&self, _: ListRuntimes, namespace: Namespace) -> Answered {
        self.note(&namespace).await?;
        Ok(listings::runtimes(&self.engine().runtimes().await, self.offer()))
    }

    pub(super) async fn sandbox_info(&self, _: GetSandboxInfo, namespace: Namespace) -> Answered {
        self.note(&namespace).await?;
        let check = self.offer().policy.borrow().check.clone();
        let mut info = self.engine().info()?;
        [info.defaults, info.caps] = self.own_limits(&namespace);
        let hosts = self.engine().hosts_of(&namespace);
        let containers = self.engine().container_runtimes().await;
        Ok(listings::sandbox(&info, &check, &hosts, &containers))
    }

    fn own_limits(&self, namespace: &Namespace) -> [Limits; 2] {
        let (defaults, caps) = self.engine().limits_of(namespace);
        [defaults, caps].map(|limits| limits.least(&self.offer().limits.caps()))
    }

    pub(super) async fn stats(&self, _: SandboxStats, namespace: Namespace) -> Answered {
        self.note(&namespace).await?;
        let mut stats = self.engine().stats();
        if !self.offer().shows_others() {
            let lines = &mut stats.queue.lines;
            lines.retain(|line| line.namespace == namespace.as_str());
        }
        Ok(Answer::from(render::stats(&stats)))
    }

    pub(super) async fn metrics(&self, _: GetSandboxMetrics, namespace: Namespace) -> Answered {
        self.note(&namespace).await?;
        Ok(Answer::from(render::counts(&self.engine().counts())))
    }

    pub(super) async fn inspect(&self, _: InspectState, namespace: Namespace) -> Answered {
        self.note(&namespace).await?;
        let state = self.engine().inspect(&namespace)?;
        Ok(Answer::from(render::inspection(&state)))
    }

    pub(super) async fn set_limits(&self, given: SetResourceLimits, namespace: Namespace) -> Answered {
        let SetResourceLimits(given) = given;
        let request = LimitsRequest {
            timeout_ms: given
                .timeout_seconds
                .map(|seconds| milliseconds("timeout_seconds", seconds))
                .transpose()?,
            ..plain_limits(&given)
        };
        if request == LimitsRequest::default() {
            let names = LIMIT_NAMES.join(", ");
            return Err(invalid(
                "no limit is given.",
                format!("Give one or more of {names}."),
            ));
        }
        self.namespace(&namespace).set_limits(&request).await?;
        let [defaults, caps] = self.own_limits(&namespace);
        let mut rendered = render::limits(&namespace, &defaults, &caps);
        rendered.text = format!("the defaults of {namespace} are now\n{}", rendered.text);
        Ok(Answer::from(rendered))
    }

    pub(super) async fn artifacts(&self, given: GetArtifacts, namespace: Namespace) -> Answered {
        let (engine, id) = (self.engine(), &given.request_id);
        let is_own = engine.owner_of(id).is_ok_and(|owner| owner == namespace);
        let manifest = match self.namespace(&namespace).manifest(id).await {
            Err(error) if error.code == ErrorCode::NotFound && is_own => {
                let facts = json!({"execution_id": id, "artifacts": []});
                return Ok(Rendered::new("the execution has left no files\n", facts).into());
            }
            Err(error) if error.code == ErrorCode::NotFound => {
                return Err(RequestError {
                    hint: "next: list_executions {} has the ids of those that are kept".to_owned(),
                    ..error
                });
            }
            manifest => manifest?,
        };
        let total = manifest.artifacts.len();
        let from = given
            .from
            .map_or(0, |from| usize::try_from(from.0).unwrap_or(total));
        let (mut text, mut artifacts) = (String::new(), Vec::new());
        for item in manifest.artifacts.iter().skip(from) {
            let uri = ringfence_engine::artifact_uri(&namespace, &manifest.execution_id, &item.name);
            let line = format!(
                "{uri} ({}, {} bytes, sha256 {}, signature {})\n",
                item.mime, item.size_bytes, item.sha256, item.signature
            );
            // At least one is listed.
            if !text.is_empty() && text.len() + line.len() > self.offer().text_max {
                break;
            }
            text += &line;
            let mut facts = json!(item);
            facts["uri"] = json!(uri);
            artifacts.push(facts);
        }
        if artifacts.is_empty() {
            text += &format!("there are {total}, from 0 on\n");
        }
        let next = from.saturating_add(artifacts.len());
        let next = (next < total).then_some(next);
        if let Some(next) = next {
            text += &format!(
                "{total} in all; next: get_artifacts {{\"request_id\": \"{}\", \"from\": {next}}}\n",
                manifest.execution_id
            );
        }
        let structured = json!({
            "success": true,
            "execution_id": manifest.execution_id,
            "artifacts": artifacts,
            "artifacts_total": total,
            "next_from": next,
            "manifest": {
                "namespace": manifest.namespace,
                "created_unix_ms": manifest.created_unix_ms,
                "public_key": manifest.public_key,
                "signature": manifest.signature,
            },
        });
        Ok(Answer::plain(text, structured))
    }

    pub(super) async fn audit(&self, given: AuditExecution, namespace: Namespace) -> Answered {
        let limit = given.limit.map_or(RECORDS, |limit| limit.0);
        if !(1..=RECORDS_MAX).contains(&limit) {
            return Err(invalid(
                format!("limit = {limit} is outside 1..={RECORDS_MAX}."),
                "Ask for a number within, and read on with `before`.",
            ));
        }
        let word = |reason: String| invalid(format!("{reason}."), "See the tool's input schema.");
        let since = given.since.map(|text| time::read(&text).map_err(word));
        let since = since.transpose()?;
        let action = given.action.map(|text| render::action(&text).map_err(word));
        let query = Query {
            namespace: Some(namespace.to_string()),
            actions: action.transpose()?,
            outcome: given.outcome.map(|word| word.0),
            since_us: since,
            before_seq: given.before.map(|before| before.0.min(i64::MAX.unsigned_abs())),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            newest_first: true,
            ..Query::default()
        };
        let page = self.engine().audit(self.caller(), query).await?;
        let mut rendered = match given.detail {
            Some(true) => render::records(&page),
            _ => render::records_in_short(&page),
        };
        if let Some(next) = rendered.facts["next_before"].as_u64() {
            rendered.text += &format!("next: audit_execution {{\"before\": {next}}} for older ones\n");
        }
        Ok(Answer::from(rendered))
    }

    pub(super) async fn vault_list(&self, _: VaultList, namespace: Namespace) -> Answered {
        let secrets = self.namespace(&namespace).secrets().await?;
        let vault = self.engine().stats().vault;
        let mut rendered = render::secrets(&namespace, vault, &secrets);
        rendered.text += &match secrets.first() {
            Some(first) => format!(
                "next: execute_code {{\"secrets\": [\"{0}\"]}} gives a program the variable {0}\n",
                first.key.as_str()
            ),
            None => format!(
                "next: ask the operator for one, who adds it with `ringfence vault add KEY --namespace {namespace}`\n"
            ),
        };
        Ok(Answer::from(rendered))
    }

    pub(super) async fn vault_delete(&self, given: VaultDelete, namespace: Namespace) -> Answered {
        let deleted = self.namespace(&namespace).delete_secret(&given.key);
        let existed = deleted.await?;
        let text = match existed {
            true => "deleted\n",
            false => "there is no secret of this name\n",
        };
        Ok(Rendered::new(text, json!({"existed": existed})).into())
    }
}

pub(super) fn milliseconds(name: &str, seconds: f64) -> Result<u64, RequestError> {
    const YEAR: f64 = 366.0 * 24.0 * 60.0 * 60.0;
    let refusal = || {
        invalid(
            format!("{name} = {seconds} is not a length of time."),
            "Give seconds above 0.",
        )
    };
    time::milliseconds(seconds, YEAR).ok_or_else(refusal)
}
