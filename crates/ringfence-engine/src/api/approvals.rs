//! Approvals: operations of callers that request and of people who answer. No tool of a caller leads to the latter.

use super::Engine;
use crate::{
    approval::{Answer, ApprovalRequest, ApprovalWatch, Ask, Decision, Subject, Waiting},
    caller::Caller,
    error::{Result, sentence},
    policy,
};
use ringfence_egress::{Pattern, Rule};
use ringfence_types::{Namespace, RequestError, SessionId};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct HostRequest {
    pub namespace: Namespace,
    /// The only session that gets it; none: the whole namespace.
    pub session: Option<SessionId>,
    /// `host` or `host:port`.
    pub domain: String,
    /// The reason, in at most [`crate::REASON_CHARS_MAX`] characters.
    pub reason: String,
}

/// Parses a host, or a host and port, into a rule. Wider rules are for the operator's configuration.
pub fn egress_rule(domain: &str) -> Result<Rule> {
    let rule: Rule = domain.parse().map_err(|error: ringfence_egress::RuleError| {
        RequestError::invalid(format!("`domain`: {error}."), sentence(&error.hint()))
    })?;
    match rule.host() {
        Pattern::Exact(_) if !rule.needs_request() => Ok(rule),
        _ => Err(RequestError::invalid(
            "`domain` is not one host.",
            "Name a host, as `example.com` or `example.com:8443`; what is wider is the operator's to allow.",
        )),
    }
}

impl Engine {
    /// Asks a person to let programs reach a host, unless the configuration allows it; recorded before that.
    pub async fn request_egress(&self, caller: &Caller, request: HostRequest) -> Result<Waiting> {
        let services = &self.services;
        let rule = egress_rule(&request.domain)?;
        if let Some(session) = &request.session {
            services.sessions.find(&request.namespace, session)?;
        }
        let ask = Ask {
            subject: Subject::Egress(rule.clone()),
            namespace: request.namespace,
            session: request.session,
            execution: None,
            caller: caller.clone(),
            reason: request.reason,
            patience: None,
        };
        let policy = services.policy.current();
        let tier = policy.egress.tier;
        if !tier.has_network() {
            return Err(RequestError::unsupported(
                format!("in the tier `{tier}` programs have no egress, so no person is asked."),
                "It needs a network namespace of its own: the tier `full` has one.",
            ));
        }
        if policy::is_granted(&policy.egress, &ask.namespace, &rule) {
            let decision = Decision::by_configuration();
            return services.approvals.record_decided(&ask, decision).await;
        }
        services.approvals.ask(ask).await
    }

    /// Lists the pending requests, oldest first. For the operator alone.
    pub async fn approvals(&self, caller: &Caller) -> Result<Vec<ApprovalRequest>> {
        self.note_call(caller, "", "approvals").await?;
        Ok(self.services.approvals.pending())
    }

    /// Answers the request of this digest. The first answer counts. For the operator, or a person its client asks.
    pub async fn decide_approval(
        &self,
        by: &Caller,
        id: &str,
        digest: &str,
        answer: Answer,
    ) -> Result<Decision> {
        self.services.approvals.decide(id, digest, answer, by).await
    }

    /// Subscribes to changes of the pending requests. For the operator alone.
    pub fn watch_approvals(&self) -> ApprovalWatch {
        self.services.approvals.watch()
    }

    /// Returns the maximum duration of an approval for a namespace.
    pub fn approval_lasts_max(&self) -> Duration {
        self.services.approvals.settings.namespace_max
    }
}
