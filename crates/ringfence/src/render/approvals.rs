//! Requests for approval and the decisions on them.

use super::Rendered;
use crate::time;
use ringfence_engine::{ApprovalRequest, ApprovalVerdict, Decision};
use serde_json::{Value, json};

pub(crate) fn approvals(requests: &[ApprovalRequest]) -> Rendered {
    let now = time::now_milliseconds();
    let text: Vec<String> = requests.iter().map(|request| approval(request, now)).collect();
    let text = match text.as_slice() {
        [] => "no requests are waiting\n".to_owned(),
        text => text.join("\n"),
    };
    Rendered::new(text, json!({"requests": requests}))
}

pub(crate) fn approval(request: &ApprovalRequest, now_unix_ms: u64) -> String {
    let left = time::span(request.expires_unix_ms.saturating_sub(now_unix_ms));
    let mut text = format!("{} (waits for another {left})\n", request.id);
    for line in &request.lines {
        text += &format!("  {line}\n");
    }
    text
}

pub(crate) fn decision(id: &str, decision: &Decision) -> Rendered {
    let mut facts = decision_facts(decision);
    facts["request_id"] = json!(id);
    Rendered::new(decision_words(decision) + "\n", facts)
}

pub(crate) fn host_decision(domain: &str, decision: &Decision) -> Rendered {
    let mut facts = decision_facts(decision);
    facts["domain"] = json!(domain);
    Rendered::new(format!("{domain}: {}\n", decision_words(decision)), facts)
}

/// `approved for the namespace until 2026-01-31T12:00:00Z, by cli`.
pub(crate) fn decision_words(decision: &Decision) -> String {
    let how = match (decision.verdict, decision.expires_unix_ms) {
        (ApprovalVerdict::Denied(_), _) => "denied".to_owned(),
        (ApprovalVerdict::Approved(scope), Some(end)) => {
            format!("approved for the {scope} until {}", time::write_milliseconds(end))
        }
        (ApprovalVerdict::Approved(scope), None) => format!("approved ({scope})"),
    };
    format!("{how}, by {}", decision.decided_by)
}

pub(crate) fn decision_facts(decision: &Decision) -> Value {
    json!({
        "approved": decision.is_approved(),
        "scope": decision.scope(),
        "decided_by": decision.decided_by,
        "expires_at": decision.expires_unix_ms.map(time::write_milliseconds),
    })
}
