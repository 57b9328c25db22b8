//! The settings of the HTTP server.

use super::{
    Environment, Origin, Setting, expand,
    http_words::{ClaimRule, HttpAuthentication, HttpListen, PathOrOff},
    keys::Effective,
    refusal,
};
use ringfence_store::vault::SecretValue;
use ringfence_types::RequestError;
use std::{path::PathBuf, sync::Arc, time::Duration};

#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    pub(crate) listen: HttpListen,
    /// Number of sockets of a service manager, from descriptor 3 on; they replace `listen`.
    pub(crate) activated: u32,
    pub(crate) authentication: HttpAuthentication,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) body_bytes_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) idle: Duration,
    pub(crate) sessions_max: usize,
    pub(crate) session_idle: Duration,
    pub(crate) drain: Duration,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) oauth: Option<OAuthSettings>,
    /// SANDBOX_API_TOKEN.
    pub(crate) api_token: Option<Arc<SecretValue>>,
    pub(crate) token_file: Option<PathBuf>,
    /// True if clients of revision 2024-11-05 are served, too.
    pub(crate) has_sse: bool,
}

pub(super) fn meaning(environment: &Environment, settings: &Effective) -> Result<HttpSettings, RequestError> {
    let activated = environment.activated_sockets()?;
    if activated > 0 && settings.http_listen.origin != Origin::Default {
        return Err(refusal(
            format!(
                "`http.listen` ({}) is set, and the service manager gives sockets.",
                settings.http_listen.origin
            ),
            "Leave out one of them.",
        ));
    }
    Ok(HttpSettings {
        activated,
        listen: settings.http_listen.value.clone(),
        authentication: settings.http_authentication.value,
        allowed_hosts: settings
            .http_allowed_hosts
            .iter()
            .map(|host| host.0.clone())
            .collect(),
        body_bytes_max: usize::try_from(settings.http_body_mb.bytes()).unwrap_or(usize::MAX),
        connections_max: settings.http_connections.size(),
        idle: settings.http_idle_seconds.of_seconds(1),
        sessions_max: settings.http_sessions.size(),
        session_idle: settings.http_session_idle_seconds.of_seconds(1),
        drain: settings.http_drain_seconds.of_seconds(1),
        tls: tls(environment, settings)?,
        oauth: oauth(settings)?,
        api_token: environment.api_token()?,
        token_file: path(environment, &settings.http_token_file)?,
        has_sse: false,
    })
}

/// PEM files.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// The issuer of accepted access tokens, and the principals of their bearers.
#[derive(Clone, Debug)]
pub(crate) struct OAuthSettings {
    /// Origin of this server, as clients see it.
    pub(crate) public_url: String,
    pub(crate) issuer: String,
    pub(crate) jwks_url: String,
    pub(crate) principals: Vec<ClaimRule>,
}

fn path(environment: &Environment, setting: &Setting<PathOrOff>) -> Result<Option<PathBuf>, RequestError> {
    let path = setting.0.as_ref();
    path.map(|path| expand(environment, path, &setting.origin))
        .transpose()
}

fn tls(environment: &Environment, settings: &Effective) -> Result<Option<TlsFiles>, RequestError> {
    let of = |setting| path(environment, setting);
    match (of(&settings.http_tls_cert)?, of(&settings.http_tls_key)?) {
        (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert, key })),
        (None, None) => Ok(None),
        _ => Err(refusal(
            "one of `http.tls_cert` and `http.tls_key` is set, and the other is not.".to_owned(),
            "Set both, or neither.",
        )),
    }
}

fn oauth(settings: &Effective) -> Result<Option<OAuthSettings>, RequestError> {
    let urls = [
        &settings.http_public_url,
        &settings.http_oauth_issuer,
        &settings.http_oauth_jwks_url,
    ];
    let principals = settings.http_oauth_principals.to_vec();
    match urls.map(|url| Some(url.0.as_ref()?.0.clone())) {
        [Some(public_url), Some(issuer), Some(jwks_url)] if !principals.is_empty() => Ok(Some(OAuthSettings {
            public_url,
            issuer,
            jwks_url,
            principals,
        })),
        [_, None, None] if principals.is_empty() => Ok(None),
        _ => Err(refusal(
            "OAuth needs all of `http.public_url`, `http.oauth_issuer`, `http.oauth_jwks_url` and `http.oauth_principals`."
                .to_owned(),
            "Set them all, or none that begins with `oauth_`.",
        )),
    }
}
