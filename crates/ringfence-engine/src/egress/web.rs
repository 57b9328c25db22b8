//! The egress of the web tools: connections that the server makes itself, and those of the browser's sandbox. Both have
//! the rules of `web.allow` and what was approved for the namespace.

use super::{
    Egress, EgressLease, EgressRedactor, LeasePolicy, RuleSource,
    asking::{ApprovalScope, AskHook, Open},
    dialer, fault, options, sockets_of, unread,
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
    /// While it is held, a change of the rules reaches it.
    _terms: Arc<LeasePolicy>,
    pub(crate) connections: ClientLease,
    _asking: Open,
}

impl WebLease {
    pub(crate) fn report(&self) -> EgressReport {
        self.connections.take_report()
    }
}

impl Egress {
    /// TLS for connections of our own, which speak HTTP/1.1.
    pub(crate) async fn client_config(&self) -> Result<Arc<ClientConfig>> {
        let trust = self.trust().await?;
        let config = trust.client(vec![b"http/1.1".to_vec()]);
        config.map(Arc::new).map_err(unread)
    }

    pub(crate) fn open_web(self: &Arc<Self>, namespace: &Namespace, by: Requester) -> Result<WebLease> {
        let (terms, options, asking) = self.web_options(namespace, by);
        let connections = ClientLease::new(&self.shared_dialer()?, options);
        self.follow(&terms);
        Ok(WebLease {
            _terms: terms,
            connections,
            _asking: asking,
        })
    }

    pub(crate) fn open_browser(
        self: &Arc<Self>,
        namespace: &Namespace,
        by: Requester,
        sockets: EgressSockets,
        inspection: Option<Arc<Inspection>>,
    ) -> Result<EgressLease> {
        let (terms, options, asking) = self.web_options(namespace, by);
        let options = LeaseOptions {
            inspection,
            ..options
        };
        let lease = ringfence_egress::open(&self.shared_dialer()?, sockets_of(sockets), options);
        let lease = lease.map_err(fault)?;
        self.follow(&terms);
        Ok(EgressLease {
            terms,
            lease,
            redactor: nothing(),
            asking,
        })
    }

    /// Connections to one of the hosts that the operator has configured as search providers, which may be private ones.
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
        let events = self.publisher("search", namespace, nothing());
        Ok(ClientLease::new(
            dialer,
            options(Purpose::Web, namespace, "search", now, events),
        ))
    }

    /// What the web tools of a namespace may reach now.
    pub(crate) fn web_rules(&self, namespace: &Namespace) -> Rules {
        self.granted(RuleSource::Web, namespace, None)
    }

    fn web_options(
        self: &Arc<Self>,
        namespace: &Namespace,
        by: Requester,
    ) -> (Arc<LeasePolicy>, LeaseOptions, Open) {
        // What was approved once is for the next run.
        let rules = self.web_rules(namespace);
        let terms = Arc::new(LeasePolicy {
            source: RuleSource::Web,
            namespace: namespace.clone(),
            session: None,
            asked: AllowedDomains::Granted,
            own: Mutex::default(),
            rules: watch::Sender::new(Arc::new(rules)),
        });
        let id = by.execution_id.clone().unwrap_or_default();
        let asking = ApprovalScope::new(self, &terms, nothing());
        if let OnDenied::Ask(patience) = self.policy.current().web.on_denied {
            asking.begin(by, patience);
        }
        let events = self.publisher(&id, namespace, nothing());
        let options = LeaseOptions {
            approval: Some(Arc::new(AskHook(asking.clone()))),
            ..options(Purpose::Web, namespace, &id, terms.rules.subscribe(), events)
        };
        (terms, options, Open(asking))
    }
}

/// No secret is in what these connections carry.
fn nothing() -> EgressRedactor {
    EgressRedactor::of(&SecretLease {
        secrets: Vec::new(),
        redactor: Redactor::none(),
        inspection: None,
    })
}
