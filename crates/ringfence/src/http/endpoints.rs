//! The endpoints of all principals. An issuer of access tokens may name any number of principals, so endpoints without
//! an open request are evicted at the limit.

use super::{
    endpoint::McpEndpoint,
    principal::{OAUTH, Principal},
};
use crate::lock::lock;
use ringfence_store::tokens::PrincipalRole;
use ringfence_types::{ErrorCode, RequestError};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use tokio::sync::OwnedSemaphorePermit;

/// Endpoints by the name, role and, under access tokens, rights of the principal: their rules may give one name to
/// principals with other rights. A token of `ringfence token` replaces the one before.
type Known = HashMap<(Arc<str>, PrincipalRole, Option<String>), Arc<McpEndpoint>>;

pub(super) struct Endpoints {
    known: Mutex<Known>,
    max: usize,
}

impl Endpoints {
    pub(super) fn new(max: usize) -> Self {
        Self {
            known: Mutex::default(),
            max,
        }
    }

    /// Returns the principal's current endpoint and a permit for one request, or no permit at the limit. If what the
    /// principal may do has changed, its previous endpoint ends.
    pub(super) fn begin_request(
        &self,
        principal: &Arc<Principal>,
        make: impl FnOnce(&Arc<Principal>) -> Result<McpEndpoint, RequestError>,
    ) -> Result<(Arc<McpEndpoint>, Option<OwnedSemaphorePermit>), RequestError> {
        let mut known = lock(&self.known);
        let is_oauth = principal.name.starts_with(OAUTH);
        let rights = is_oauth.then(|| format!("{principal:?}"));
        let key = (principal.name.clone(), principal.role, rights);
        let before = known.get(&key);
        if let Some(endpoint) = before
            && *endpoint.principal == **principal
        {
            let permit = endpoint.begin_request();
            return Ok((endpoint.clone(), permit));
        }
        if before.is_none() && known.len() >= self.max {
            let mut all = known.iter();
            let unused = all.find(|(_, endpoint)| endpoint.is_unused());
            let unused = unused.map(|(key, _)| key.clone()).ok_or_else(|| {
                let message = format!("{} principals have requests in progress.", self.max);
                let hint = "Call again later, or use another server.";
                RequestError::new(ErrorCode::Busy, message, hint)
            })?;
            if let Some(unused) = known.remove(&unused) {
                unused.end();
            }
        }
        let endpoint = Arc::new(make(principal)?);
        if let Some(before) = known.insert(key, endpoint.clone()) {
            before.end();
        }
        let permit = endpoint.begin_request();
        Ok((endpoint, permit))
    }

    pub(super) fn retain(&self, is_known: impl Fn(&Principal) -> bool) {
        lock(&self.known).retain(|_, endpoint| {
            let stays = is_known(&endpoint.principal);
            if !stays {
                endpoint.end();
            }
            stays
        });
    }

    pub(super) fn end(&self) {
        self.retain(|_| false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        http::principal,
        mcp::{service::ServerFactory, tests::offer},
        settings,
    };

    fn principal(name: &str, role: PrincipalRole) -> Arc<Principal> {
        let entry = principal::tests::entry(name, role, None);
        Arc::new(Principal::of_token(&entry).unwrap())
    }

    fn make(principal: &Arc<Principal>) -> Result<McpEndpoint, RequestError> {
        let engine = tokio::sync::watch::channel(None).1;
        let factory = ServerFactory::new(principal.offer(&offer()), engine, None);
        let gone = factory.gone.clone();
        Ok(McpEndpoint::new(
            principal.clone(),
            move || factory.make(),
            gone,
            &settings::default_config()?.http,
        ))
    }

    #[tokio::test]
    async fn endpoints_differ_by_role_and_a_changed_principal_gets_a_new_one() {
        let endpoints = Endpoints::new(8);
        let of = |principal: &Arc<Principal>| endpoints.begin_request(principal, make).unwrap().0;
        let (caller, operator) = (
            principal("a", PrincipalRole::Caller),
            principal("a", PrincipalRole::Operator),
        );
        let (of_caller, of_operator) = (of(&caller), of(&operator));
        assert!(!Arc::ptr_eq(&of_caller, &of_operator));
        assert!(Arc::ptr_eq(
            &of_caller,
            &of(&principal("a", PrincipalRole::Caller))
        ));
        assert!(Arc::ptr_eq(&of_operator, &of(&operator)));
        let changed = Arc::new(Principal {
            rate_per_minute: std::num::NonZeroU32::new(1),
            ..Principal::clone(&caller)
        });
        assert!(!Arc::ptr_eq(&of_caller, &of(&changed)));
        assert!(of_caller.has_ended() && !of_operator.has_ended());
        endpoints.retain(|principal| principal.role == PrincipalRole::Caller);
        assert!(of_operator.has_ended() && !of(&changed).has_ended());
    }

    #[tokio::test]
    async fn principals_of_access_tokens_with_one_name_and_other_rights_have_their_own_endpoints() {
        let endpoints = Endpoints::new(8);
        let of = |namespace: &str| {
            let principal = Arc::new(Principal {
                name: format!("{OAUTH}staff").into(),
                token: None,
                ..Principal::clone(&principal(namespace, PrincipalRole::Caller))
            });
            endpoints.begin_request(&principal, make).unwrap().0
        };
        let (first, second) = (of("a"), of("b"));
        assert!(!Arc::ptr_eq(&first, &second) && !first.has_ended());
        assert!(Arc::ptr_eq(&first, &of("a")));
    }

    #[tokio::test]
    async fn unused_endpoint_is_evicted_and_a_used_one_is_not() {
        let endpoints = Endpoints::new(2);
        let begin = |name: &str| endpoints.begin_request(&principal(name, PrincipalRole::Caller), make);
        let (first, used) = begin("a").unwrap();
        let second = begin("b").unwrap().0;
        let (third, also_used) = begin("c").unwrap();
        assert!(second.has_ended() && !first.has_ended());
        let refused = begin("b").err().unwrap();
        assert_eq!(refused.code, ErrorCode::Busy);
        assert!(
            Arc::ptr_eq(&first, &begin("a").unwrap().0),
            "a principal that is served keeps its endpoint"
        );
        drop(used);
        begin("b").unwrap();
        assert!(first.has_ended() && !third.has_ended());
        drop(also_used);
    }
}
