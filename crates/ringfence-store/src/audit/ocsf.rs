//! A record as an event of the Open Cybersecurity Schema Framework, version 1.3 (schema.ocsf.io).

use super::{Action, Outcome, Record};
use crate::digest::to_hex;
use serde_json::{Value, json};

const OCSF_VERSION: &str = "1.3.0";

impl Record {
    /// Returns the event. Fields that the schema lacks are under `unmapped`.
    pub fn to_ocsf(&self) -> Value {
        let (class_uid, activity_id, activity_name) = kind(self.action.parse().ok());
        let (class_name, category_uid, category_name) = match class_uid {
            1007 => ("Process Activity", 1, "System Activity"),
            6002 => ("Application Lifecycle", 6, "Application Activity"),
            _ => ("API Activity", 6, "Application Activity"),
        };
        let (status_id, status) = self.status();
        let (severity_id, severity) = self.severity();
        let mut event = json!({
            "metadata": {
                "version": OCSF_VERSION,
                "product": product(),
                "uid": self.seq.to_string(),
            },
            "time": self.time_us.div_euclid(1000),
            "category_uid": category_uid,
            "category_name": category_name,
            "class_uid": class_uid,
            "class_name": class_name,
            "activity_id": activity_id,
            "activity_name": activity_name,
            "type_uid": class_uid * 100 + activity_id,
            "type_name": format!("{class_name}: {}", activity_name),
            "severity_id": severity_id,
            "severity": severity,
            "status_id": status_id,
            "status": status,
            "status_code": self.outcome,
            "message": self.action,
            "actor": {
                "app_name": "Ringfence",
                "user": {"name": self.caller, "org": {"name": self.namespace}},
            },
            "unmapped": {
                "server_id": self.server_id,
                "action": self.action,
                "outcome": self.outcome,
                "namespace": self.namespace,
                "execution_id": self.execution_id,
                "details": self.details_value(),
                "hash": to_hex(&self.hash),
                "prev_hash": to_hex(&self.prev_hash),
                "signature": to_hex(&self.signature),
            },
        });
        // Further fields that the class requires.
        match class_uid {
            1007 => {
                let execution = self.execution_id.as_deref().unwrap_or("none");
                event["device"] = json!({"type_id": 0, "type": "Unknown", "name": self.server_id});
                event["process"] = json!({"name": "sandboxed program", "uid": execution});
            }
            6002 => event["app"] = product(),
            _ => {
                let service = json!({"name": "Ringfence", "uid": self.server_id});
                event["api"] = json!({"operation": self.action, "service": service});
                event["src_endpoint"] = json!({"name": self.caller});
            }
        }
        event
    }

    fn status(&self) -> (u64, &'static str) {
        match self.outcome.parse() {
            Ok(Outcome::Ok) => (1, "Success"),
            Ok(Outcome::Failed | Outcome::Denied | Outcome::Lost) => (2, "Failure"),
            Ok(Outcome::Pending) => (99, "Pending"),
            Err(_) => (0, "Unknown"),
        }
    }

    fn severity(&self) -> (u64, &'static str) {
        if self.action == Action::AuditBegan.as_str() && self.details_value()["reason"] != "new" {
            return (4, "High");
        }
        match self.outcome.parse() {
            Ok(Outcome::Ok | Outcome::Pending) => (1, "Informational"),
            Ok(Outcome::Failed | Outcome::Lost) => (2, "Low"),
            Ok(Outcome::Denied) => (3, "Medium"),
            Err(_) => (0, "Unknown"),
        }
    }

    /// Returns the details; an edited text that is not JSON becomes a string.
    fn details_value(&self) -> Value {
        serde_json::from_str(&self.details).unwrap_or_else(|_| Value::from(self.details.as_str()))
    }
}

fn product() -> Value {
    json!({"name": "Ringfence", "vendor_name": "Ringfence", "version": env!("CARGO_PKG_VERSION")})
}

/// Returns class, activity and its name, by group and verb of the action; a word of a later version is an API call.
fn kind(action: Option<Action>) -> (u64, u64, &'static str) {
    const PROCESS: u64 = 1007;
    const APPLICATION: u64 = 6002;
    const API: u64 = 6003;
    match action.and_then(|action| action.as_str().split_once('.')) {
        Some(("execution", "started" | "refused") | ("session", "created") | ("host", "executed")) => {
            (PROCESS, 1, "Launch")
        }
        Some(("execution", _) | ("session", "killed")) => (PROCESS, 2, "Terminate"),
        Some(("server", "started")) => (APPLICATION, 3, "Start"),
        Some(("server", _)) => (APPLICATION, 4, "Stop"),
        Some(("package", _)) => (APPLICATION, 1, "Install"),
        Some((_, "began" | "created" | "requested")) => (API, 1, "Create"),
        Some((_, "accessed" | "browsed" | "fetched" | "read" | "searched" | "validated")) => (API, 2, "Read"),
        Some((_, "deleted" | "removed" | "revoked")) => (API, 4, "Delete"),
        Some(("tool", _)) | None => (API, 99, "Other"),
        Some(_) => (API, 3, "Update"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(action: &str, outcome: &str, details: &str) -> Value {
        Record {
            seq: 7,
            time_us: 1_700_000_000_123_456,
            server_id: "s".to_owned(),
            action: action.to_owned(),
            outcome: outcome.to_owned(),
            namespace: "default".to_owned(),
            execution_id: Some("e".to_owned()),
            caller: "c".to_owned(),
            details: details.to_owned(),
            prev_hash: [0; 32],
            hash: [1; 32],
            signature: [2; 64],
        }
        .to_ocsf()
    }

    #[test]
    fn every_action_has_its_class() {
        for &action in Action::ALL {
            let expect = match action.as_str() {
                "execution.started" | "execution.refused" | "session.created" | "host.executed" => 100_701,
                "execution.completed" | "execution.failed" | "execution.timeout" | "session.killed" => {
                    100_702
                }
                "package.installed" => 600_201,
                "server.started" => 600_203,
                "server.stopped" => 600_204,
                "audit.began" | "snapshot.created" | "approval.requested" | "token.created" => 600_301,
                "vault.accessed" | "artifact.read" | "file.read" | "host.read" | "code.validated"
                | "data.validated" | "web.searched" | "web.fetched" | "web.browsed" => 600_302,
                "session.bridged"
                | "vault.changed"
                | "limits.changed"
                | "config.changed"
                | "file.put"
                | "host.written"
                | "snapshot.restored"
                | "workspace.committed"
                | "audit.archived"
                | "approval.decided" => 600_303,
                "snapshot.deleted" | "audit.removed" | "token.revoked" => 600_304,
                "tool.called" => 600_399,
                other => panic!("{other} has no class"),
            };
            let event = event(action.as_str(), "ok", "{}");
            assert_eq!(event["type_uid"], expect, "{action}");
            assert_eq!(event["class_uid"].as_u64().unwrap(), expect / 100);
            assert_eq!(event["category_uid"].as_u64().unwrap(), expect / 100_000);
        }
    }

    #[test]
    fn event_has_all_fields_that_its_class_requires() {
        let required = |action: &str, names: &[&str]| {
            let event = event(action, "ok", "{}");
            let common = [
                "metadata",
                "time",
                "category_uid",
                "class_uid",
                "activity_id",
                "type_uid",
                "severity_id",
            ];
            for name in common.iter().chain(names) {
                assert!(!event[name].is_null(), "{action} lacks {name}");
            }
        };
        required("execution.started", &["actor", "device", "process"]);
        required("server.started", &["app"]);
        required("vault.accessed", &["actor", "api", "src_endpoint"]);
        let event = event("tool.called", "ok", r#"{"tool":"t"}"#);
        assert_eq!(event["time"], 1_700_000_000_123i64);
        assert_eq!(event["metadata"]["uid"], "7");
        assert_eq!(event["metadata"]["product"]["name"], "Ringfence");
        assert_eq!(event["unmapped"]["details"]["tool"], "t");
        assert_eq!(event["unmapped"]["hash"], "01".repeat(32));
    }

    #[test]
    fn denials_and_chain_breaks_have_higher_severity() {
        let check = |action, outcome, details, severity: u64, status: u64| {
            let event = event(action, outcome, details);
            assert_eq!(
                (&event["severity_id"], &event["status_id"]),
                (&severity.into(), &status.into())
            );
        };
        check("tool.called", "ok", "{}", 1, 1);
        check("execution.started", "pending", "{}", 1, 99);
        check("execution.failed", "failed", "{}", 2, 2);
        check("execution.refused", "denied", "{}", 3, 2);
        check("audit.began", "ok", r#"{"reason":"new"}"#, 1, 1);
        check("audit.began", "ok", r#"{"reason":"damaged"}"#, 4, 1);
        check("audit.began", "ok", "no JSON", 4, 1);
        check("later.word", "later", "{}", 0, 0);
    }
}
