//! Approvals: operations of those that ask and of those that answer. No tool of a caller leads to the second.

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
    /// The only session that gets it; none: all of the namespace.
    pub session: Option<SessionId>,
    /// `host` or `host:port`.
    pub domain: String,
    /// Why, in at most [`crate::REASON_CHARS_MAX`] characters.
    pub reason: String,
}

/// The rule that a host, or a host and a port, means. What is wider is for the operator's configuration.
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
    /// Asks a person whether programs may reach a host, where the operator's configuration does not say yes already. It
    /// is put on record before anybody is asked.
    pub async fn request_egress(&self, caller: &Caller, wish: HostRequest) -> Result<Waiting> {
        let services = &self.services;
        let rule = egress_rule(&wish.domain)?;
        if let Some(session) = &wish.session {
            services.sessions.find(&wish.namespace, session)?;
        }
        let ask = Ask {
            subject: Subject::Egress(rule.clone()),
            namespace: wish.namespace,
            session: wish.session,
            execution: None,
            caller: caller.clone(),
            reason: wish.reason,
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
        if policy::gives(&policy.egress, &ask.namespace, &rule) {
            return services.approvals.given(&ask, Decision::by_configuration()).await;
        }
        services.approvals.ask(ask).await
    }

    /// Requests that wait for an answer, the oldest first. For the operator alone.
    pub async fn approvals(&self, caller: &Caller) -> Result<Vec<ApprovalRequest>> {
        self.note_call(caller, "", "approvals").await?;
        Ok(self.services.approvals.pending())
    }

    /// Answers a request: `digest` is that of the request which was seen. The first answer counts. For the operator
    /// alone, or a person whom the operator's client asks.
    pub async fn decide_approval(
        &self,
        by: &Caller,
        id: &str,
        digest: &str,
        answer: Answer,
    ) -> Result<Decision> {
        self.services.approvals.decide(id, digest, answer, by).await
    }

    /// Hears of requests as they come and go. For the operator alone.
    pub fn watch_approvals(&self) -> ApprovalWatch {
        self.services.approvals.watch()
    }

    /// The longest that an approval for a namespace lasts.
    pub fn approval_lasts_max(&self) -> Duration {
        self.services.approvals.settings.namespace_max
    }
}
