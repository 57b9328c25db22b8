//! Authentication: the credentials of a request become its principal. The token file is checked on every request, so a
//! revoked token is rejected from then on; if the file cannot be read, none of its tokens is valid.

use super::{
    oauth::OAuth,
    principal::{API_TOKEN, Denied, Identity, OAUTH, Principal, SOCKET, UNAUTHENTICATED},
};
use crate::{lock::lock, settings::refusal, time};
use hyper::{HeaderMap, header::AUTHORIZATION};
use ringfence_store::{
    tokens::{self, FileVersion, PrincipalRole, TokenEntry, TokenError, Tokens},
    vault::SecretValue,
};
use ringfence_types::RequestError;
use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

const TOKEN_BYTES_MAX: usize = 8 << 10;
const API_TOKEN_BYTES_MIN: usize = 16;

/// The client of a connection, as far as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Network,
    /// A process of this user or of root, connected to the Unix socket.
    Socket,
}

pub(super) struct Authenticator {
    tokens: Tokens,
    cached: Mutex<CachedTokens>,
    api_token: Option<([u8; 32], Arc<Principal>)>,
    pub(super) oauth: Option<OAuth>,
    /// Never reset to false: revoking the last token does not open the server.
    is_required: AtomicBool,
    unauthenticated: Arc<Principal>,
    socket: Arc<Principal>,
}

#[derive(Default)]
struct CachedTokens {
    stamp: Option<FileVersion>,
    tokens: Vec<(TokenEntry, Arc<Principal>)>,
}

impl Authenticator {
    pub(super) fn open(
        state_dir: &Path,
        api_token: Option<&SecretValue>,
        oauth: Option<OAuth>,
        is_required: AtomicBool,
    ) -> Result<Self, RequestError> {
        let unreadable = |error: TokenError| {
            refusal(
                format!("the tokens cannot be read: {error}."),
                "Restore the file, or remove it and make the tokens again.",
            )
        };
        if let Some(reason) = api_token.and_then(|token| token_fault(token.expose())) {
            return Err(refusal(
                format!("SANDBOX_API_TOKEN {reason}."),
                "Make a long random one, as `openssl rand -hex 32` does.",
            ));
        }
        let caller = |name: &str| Arc::new(Principal::with_everything(name, PrincipalRole::Caller));
        let hashed = |token: &SecretValue| (tokens::hash(token.expose()), caller(API_TOKEN));
        let authenticator = Self {
            tokens: Tokens::open(state_dir).map_err(unreadable)?,
            cached: Mutex::default(),
            api_token: api_token.map(hashed),
            oauth,
            is_required,
            unauthenticated: caller(UNAUTHENTICATED),
            socket: Arc::new(Principal::with_everything(SOCKET, PrincipalRole::Operator)),
        };
        if authenticator.api_token.is_some() || authenticator.oauth.is_some() {
            authenticator.is_required.store(true, Ordering::Relaxed);
        }
        // A damaged file is reported at startup, where the operator sees it.
        authenticator.tokens.read().map_err(unreadable)?;
        drop(authenticator.current_tokens());
        Ok(authenticator)
    }

    pub(super) fn is_required(&self) -> bool {
        drop(self.current_tokens());
        self.is_required.load(Ordering::Relaxed)
    }

    pub(super) async fn identify(&self, headers: &HeaderMap, peer: Peer) -> Result<Identity, Denied> {
        let principal = match (bearer(headers)?, peer) {
            (Some(token), _) => match (self.find_principal(token), &self.oauth) {
                (Err(Denied::Invalid), Some(oauth)) => return oauth.identify(token).await,
                (known, _) => known?,
            },
            (None, Peer::Socket) => self.socket.clone(),
            (None, Peer::Network) if !self.is_required() => self.unauthenticated.clone(),
            (None, Peer::Network) => return Err(Denied::Missing),
        };
        Ok(Identity {
            principal,
            expires_unix_ms: None,
            scope: None,
        })
    }

    pub(super) fn is_still_valid(&self, principal: &Principal) -> bool {
        if *principal == *self.unauthenticated {
            return !self.is_required();
        }
        // A signed token is valid until it expires; that is checked on each request, and ends each stream.
        if principal.name.starts_with(OAUTH) {
            return true;
        }
        let now = time::now_milliseconds();
        let is_live = |entry: &TokenEntry| entry.expires_unix_ms.is_none_or(|expires| expires > now);
        let others = self.api_token.iter().map(|(_, principal)| principal);
        let mut fixed = others.chain([&self.socket]);
        fixed.any(|known| **known == *principal)
            || self
                .current_tokens()
                .tokens
                .iter()
                .any(|(entry, known)| **known == *principal && is_live(entry))
    }

    fn find_principal(&self, token: &str) -> Result<Arc<Principal>, Denied> {
        let presented = tokens::hash(token);
        let cached = self.current_tokens();
        let entries = cached.tokens.iter().map(|(entry, _)| entry);
        let found = tokens::find(entries, &presented, time::now_milliseconds());
        let found = found.and_then(|index| cached.tokens.get(index));
        let is_api_token = |(hash, _): &&(_, _)| tokens::is_same(hash, &presented);
        let by_variable = self.api_token.as_ref().filter(is_api_token);
        let by_file = found.map(|(_, principal)| principal);
        let known = by_file.or(by_variable.map(|(_, principal)| principal));
        known.cloned().ok_or(Denied::Invalid)
    }

    /// Returns the tokens, read again if the file has changed.
    fn current_tokens(&self) -> std::sync::MutexGuard<'_, CachedTokens> {
        let mut cached = lock(&self.cached);
        let stamp = self.tokens.stamp();
        if stamp.as_ref().is_ok_and(|stamp| *stamp == cached.stamp) {
            return cached;
        }
        // Even if reading fails: a file was there, or something is in its place.
        self.is_required.store(true, Ordering::Relaxed);
        let tokens = match &stamp {
            Ok(_) => self.tokens.read().map(Option::unwrap_or_default),
            Err(error) => Err(TokenError::Damaged(error.to_string())),
        };
        let tokens = tokens.unwrap_or_else(|error| {
            tracing::error!(%error, "no token is accepted: the token file cannot be read");
            Vec::new()
        });
        *cached = CachedTokens {
            stamp: stamp.unwrap_or_default(),
            tokens: tokens.into_iter().filter_map(with_principal).collect(),
        };
        cached
    }
}

/// Pairs an entry with its principal; an entry that this version does not understand is dropped and logged.
fn with_principal(entry: TokenEntry) -> Option<(TokenEntry, Arc<Principal>)> {
    match Principal::of_token(&entry) {
        Ok(principal) => Some((entry, principal.into())),
        Err(reason) => {
            tracing::error!(principal = entry.name.as_str(), reason, "a token is not accepted");
            None
        }
    }
}

/// `b64token` (RFC 6750, section 2.1).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

/// Returns the reason why a client cannot send this text as a token.
pub(super) fn token_fault(token: &str) -> Option<String> {
    if token.len() < API_TOKEN_BYTES_MIN {
        return Some(format!("has less than {API_TOKEN_BYTES_MIN} characters"));
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Some(format!("has more than {TOKEN_BYTES_MAX} characters"));
    }
    let is_good = token.bytes().all(is_token_byte);
    (!is_good).then(|| {
        "has characters that a request cannot carry: letters, digits and `-._~+/=` are allowed".to_owned()
    })
}

/// Reads the bearer token; more than one `Authorization` header, another scheme or a malformed token is invalid.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Denied> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return match headers.contains_key(AUTHORIZATION) {
            true => Err(Denied::Invalid),
            false => Ok(None),
        };
    };
    let text = value.to_str().map_err(|_| Denied::Invalid)?;
    let (scheme, token) = text.split_once(' ').ok_or(Denied::Invalid)?;
    let token = token.trim_matches(' ');
    let is_good = scheme.eq_ignore_ascii_case("bearer")
        && (1..=TOKEN_BYTES_MAX).contains(&token.len())
        && token.bytes().all(is_token_byte);
    if is_good {
        Ok(Some(token))
    } else {
        Err(Denied::Invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::principal;
    use hyper::header::HeaderValue;
    use std::{fs, path::PathBuf};

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn request_has_at_most_one_bearer_token() {
        let read = |values: &[&str]| bearer(&headers(values)).map(|token| token.map(str::to_owned));
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["Bearer abc.-_~+/="]), Ok(Some("abc.-_~+/=".to_owned())));
        assert_eq!(read(&["bEARER abc"]), Ok(Some("abc".to_owned())));
        let long = format!("Bearer {}", "x".repeat(TOKEN_BYTES_MAX + 1));
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Basic abc",
            "Bearer a b",
            "Bearer a,b",
            "Bearer \u{e9}",
            &long,
        ] {
            assert_eq!(read(&[bad]), Err(Denied::Invalid), "{bad}");
        }
        assert_eq!(read(&["Bearer a", "Bearer a"]), Err(Denied::Invalid));
    }

    fn identify(
        authenticator: &Authenticator,
        values: &[&str],
        peer: Peer,
    ) -> Result<Arc<Principal>, Denied> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(authenticator.identify(&headers(values), peer));
        found.map(|identity| identity.principal)
    }

    struct State(PathBuf);

    impl Drop for State {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn state(name: &str) -> State {
        let path = std::env::temp_dir().join(format!("ringfence-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        State(path)
    }

    fn entry(name: &str, expires_unix_ms: Option<u64>) -> TokenEntry {
        principal::tests::entry(name, PrincipalRole::Caller, expires_unix_ms)
    }

    #[test]
    fn first_token_requires_authentication_and_revoking_the_last_does_not_lift_it() {
        let state = state("closes");
        let authenticator = Authenticator::open(&state.0, None, None, AtomicBool::new(false)).unwrap();
        let name = |authenticator: &Authenticator, values: &[&str], peer| {
            let found = identify(authenticator, values, peer);
            found.map(|principal| principal.name.to_string())
        };
        assert_eq!(
            name(&authenticator, &[], Peer::Network).as_deref(),
            Ok("(unauthenticated)")
        );
        assert_eq!(
            name(&authenticator, &["Bearer x"], Peer::Network),
            Err(Denied::Invalid)
        );
        let open = identify(&authenticator, &[], Peer::Network).unwrap();
        let store = Tokens::open(&state.0).unwrap();
        let token = store.create(entry("team", None)).unwrap();
        let bearer = format!("Bearer {}", *token);
        assert_eq!(name(&authenticator, &[], Peer::Network), Err(Denied::Missing));
        assert!(!authenticator.is_still_valid(&open));
        assert_eq!(name(&authenticator, &[], Peer::Socket).as_deref(), Ok("(socket)"));
        for peer in [Peer::Network, Peer::Socket] {
            assert_eq!(name(&authenticator, &[&bearer], peer).as_deref(), Ok("team"));
        }
        let team = identify(&authenticator, &[&bearer], Peer::Network).unwrap();
        assert!(authenticator.is_still_valid(&team));
        assert!(store.revoke(&"team".to_owned().try_into().unwrap()).unwrap());
        assert_eq!(
            name(&authenticator, &[&bearer], Peer::Network),
            Err(Denied::Invalid)
        );
        assert_eq!(name(&authenticator, &[], Peer::Network), Err(Denied::Missing));
        assert!(!authenticator.is_still_valid(&team));
        store.create(entry("team", None)).unwrap();
        assert!(
            !authenticator.is_still_valid(&team),
            "another token of the same name"
        );
        assert!(store.revoke(&"team".to_owned().try_into().unwrap()).unwrap());
        let again = Authenticator::open(&state.0, None, None, AtomicBool::new(false)).unwrap();
        assert!(again.is_required(), "also after a restart");
        fs::remove_dir_all(state.0.join("access")).unwrap();
        fs::create_dir(state.0.join("access")).unwrap();
        assert_eq!(name(&authenticator, &[], Peer::Network), Err(Denied::Missing));
    }

    #[test]
    fn expired_token_and_tokens_of_a_damaged_file_are_rejected() {
        let state = state("expired");
        let store = Tokens::open(&state.0).unwrap();
        let old = store.create(entry("old", Some(2))).unwrap();
        let authenticator = Authenticator::open(&state.0, None, None, AtomicBool::new(false)).unwrap();
        let good = store.create(entry("good", None)).unwrap();
        let name = |token: &str| {
            let found = identify(&authenticator, &[&format!("Bearer {token}")], Peer::Network);
            found.map(|principal| principal.name.to_string())
        };
        assert_eq!(name(&old), Err(Denied::Invalid));
        assert_eq!(name(&good).as_deref(), Ok("good"));
        fs::write(state.0.join("access/tokens.json"), "{").unwrap();
        assert_eq!(name(&good), Err(Denied::Invalid));
        assert!(Authenticator::open(&state.0, None, None, AtomicBool::new(false)).is_err());
    }

    #[test]
    fn api_token_variable_is_accepted_as_a_token_and_an_invalid_one_is_refused() {
        let state = state("variable");
        let open = |text: &str| {
            let token = SecretValue::new(text.to_owned()).unwrap();
            Authenticator::open(&state.0, Some(&token), None, AtomicBool::new(false))
        };
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        for wrong in [
            "0123456789abcde",
            "0123456789abcdef!",
            "0123456789 abcdef",
            "0123456789abcdef\u{e9}",
            &long,
        ] {
            assert!(open(wrong).is_err(), "{wrong}");
        }
        let authenticator = open("0123456789abcdef").unwrap();
        assert!(authenticator.is_required());
        let found = identify(&authenticator, &["Bearer 0123456789abcdef"], Peer::Network).unwrap();
        assert_eq!(&*found.name, "(SANDBOX_API_TOKEN)");
        assert!(authenticator.is_still_valid(&found));
        let wrong = identify(&authenticator, &["Bearer 0123456789abcdeg"], Peer::Network);
        assert_eq!(wrong, Err(Denied::Invalid));
    }
}
