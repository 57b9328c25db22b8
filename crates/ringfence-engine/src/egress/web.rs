//! The egress of the web tools and of the browser: the rules of `web.allow`, and those approved for the namespace.

use super::{
    Egress, EgressLease, EgressRedactor, LeasePolicy, RuleSource,
    asking::{ApprovalScope, ApprovalScopeGuard, AskHook},
    dialer, fault, inspection_error, options, sockets_of,
};
use crate::{caller::Requester, error::Result, secrets::SecretLease, settings::OnDenied};
use ringfence_egress::{
    ClientLease, Destination, EgressReport, Inspection, LeaseOptions, Purpose, Rule, Rules,
};
use ringfence_jail::EgressSockets;
use ringfence_redact::Redactor;
use ringfence_types::{AllowedDomains, Namespace};
use rustls::ClientConfig;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Connections that the server makes for one call of a web tool.
pub(crate) struct WebLease {
    /// As long as this is held, changes of the rules reach the lease.
    _policy: Arc<LeasePolicy>,
    pub(crate) connections: ClientLease,
    _approvals: ApprovalScopeGuard,
}

impl WebLease {
    pub(crate) fn report(&self) -> EgressReport {
        self.connections.take_report()
    }
}

impl Egress {
    /// Returns the TLS configuration of the server's own connections, which use HTTP/1.1.
    pub(crate) async fn client_config(&self) -> Result<Arc<ClientConfig>> {
        let trust = self.trust().await?;
        let config = trust.client(vec![b"http/1.1".to_vec()]);
        config.map(Arc::new).map_err(inspection_error)
    }

    pub(crate) fn open_web(self: &Arc<Self>, namespace: &Namespace, by: Requester) -> Result<WebLease> {
        let (policy, options, approvals) = self.web_options(namespace, by);
        let connections = ClientLease::new(&self.shared_dialer()?, options);
        self.follow(&policy);
        Ok(WebLease {
            _policy: policy,
            connections,
            _approvals: approvals,
        })
    }

    pub(crate) fn open_browser(
        self: &Arc<Self>,
        namespace: &Namespace,
        by: Requester,
        sockets: EgressSockets,
        inspection: Option<Arc<Inspection>>,
    ) -> Result<EgressLease> {
        let (policy, options, approvals) = self.web_options(namespace, by);
        let options = LeaseOptions {
            inspection,
            ..options
        };
        let lease = ringfence_egress::open(&self.shared_dialer()?, sockets_of(sockets), options);
        let lease = lease.map_err(fault)?;
        self.follow(&policy);
        Ok(EgressLease {
            policy,
            lease,
            redactor: no_redaction(),
            approvals,
        })
    }

    /// Opens connections to one of the configured search providers, whose hosts may have private addresses.
    pub(crate) fn open_provider(
        self: &Arc<Self>,
        namespace: &Namespace,
        all: &[Destination],
        to: &Destination,
    ) -> Result<ClientLease> {
        let rule = |to: &Destination| to.to_string().parse::<Rule>().ok();
        let dialer = match self.providers.get() {
            Some(dialer) => dialer,
            None => {
                let private = all
                    .iter()
                    .filter_map(rule)
                    .filter(|rule| !rule.is_network())
                    .collect();
                let made = dialer(&self.settings, private)?;
                self.providers.get_or_init(|| made)
            }
        };
        let rules = Rules::new(rule(to).into_iter().collect()).unwrap_or_default();
        let (_, now) = watch::channel(Arc::new(rules));
        let events = self.publisher("search", namespace, no_redaction());
        Ok(ClientLease::new(
            dialer,
            options(Purpose::Web, namespace, "search", now, events),
        ))
    }

    /// Returns the current rules of a namespace's web tools.
    pub(crate) fn web_rules(&self, namespace: &Namespace) -> Rules {
        self.granted(RuleSource::Web, namespace, None)
    }

    fn web_options(
        self: &Arc<Self>,
        namespace: &Namespace,
        by: Requester,
    ) -> (Arc<LeasePolicy>, LeaseOptions, ApprovalScopeGuard) {
        // An approval for a single run is for the next run of a program, not for this call.
        let rules = self.web_rules(namespace);
        let policy = Arc::new(LeasePolicy {
            source: RuleSource::Web,
            namespace: namespace.clone(),
            session: None,
            requested: AllowedDomains::Granted,
            overrides: Mutex::default(),
            rules: watch::Sender::new(Arc::new(rules)),
        });
        let id = by.execution_id.clone().unwrap_or_default();
        let scope = ApprovalScope::new(self, &policy, no_redaction());
        if let OnDenied::Ask(patience) = self.policy.current().web.on_denied {
            scope.begin(by, patience);
        }
        let events = self.publisher(&id, namespace, no_redaction());
        let options = LeaseOptions {
            approval: Some(Arc::new(AskHook(scope.clone()))),
            ..options(Purpose::Web, namespace, &id, policy.rules.subscribe(), events)
        };
        (policy, options, ApprovalScopeGuard(scope))
    }
}

/// Returns a redactor without secrets: these connections carry none.
fn no_redaction() -> EgressRedactor {
    EgressRedactor::of(&SecretLease {
        secrets: Vec::new(),
        redactor: Redactor::none(),
        inspection: None,
    })
}
