//! Access tokens of a test issuer: valid ones, and every kind of invalid one.

use super::*;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

const ISSUER: &str = "https://idp.example.com";
const RESOURCE: &str = "https://mcp.example.com/mcp";

struct Signer {
    pair: EcdsaKeyPair,
    id: &'static str,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Self { pair, id }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "x": part(&point[1..33]), "y": part(&point[33..]), "kid": self.id, "alg": "ES256", "use": "sig"})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn token(&self, change: impl FnOnce(&mut Value, &mut Value)) -> String {
        let mut header = json!({"alg": "ES256", "typ": "at+jwt", "kid": self.id});
        let mut claims = json!({
            "iss": ISSUER, "aud": RESOURCE, "sub": "machine", "scope": "openid ringfence:call", "tenant": "team-a",
            "exp": jsonwebtoken::get_current_timestamp() + 300,
        });
        change(&mut header, &mut claims);
        self.sign(&header, &claims)
    }
}

fn message(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// An issuer that serves a given response and counts its requests.
struct Issuer {
    url: String,
    answer: Arc<Mutex<Option<String>>>,
    requests: Arc<AtomicUsize>,
}

impl Issuer {
    async fn of(keys: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        let body = json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}).to_string();
        let (answer, requests) = (Arc::new(Mutex::new(Some(body))), Arc::new(AtomicUsize::new(0)));
        let (given, count) = (answer.clone(), requests.clone());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let body = given.lock().unwrap().clone();
                let mut head = [0; 1024];
                drop(stream.read(&mut head).await);
                // None: no response.
                match body {
                    Some(body) => {
                        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                        drop(stream.write_all(text.as_bytes()).await);
                    }
                    None => drop(tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(600)).await;
                        drop(stream);
                    })),
                }
            }
        });
        Self {
            url,
            answer,
            requests,
        }
    }

    fn set_answer(&self, answer: Option<String>) {
        *self.answer.lock().unwrap() = answer;
    }

    fn oauth(&self, rules: &[&str]) -> OAuth {
        OAuth::new(OAuthSettings {
            public_url: "https://mcp.example.com".to_owned(),
            issuer: ISSUER.to_owned(),
            jwks_url: self.url.clone(),
            principals: rules.iter().map(|rule| ClaimRule::read(rule).unwrap()).collect(),
        })
        .unwrap()
    }
}

#[tokio::test]
async fn valid_token_yields_the_principal_of_the_matching_rule() {
    let key = Signer::new("k1");
    let issuer = Issuer::of(&[&key]).await;
    let oauth = issuer.oauth(&["client_id=ci: ci * execute", "tenant=*: {} {},shared"]);
    let made = oauth.identify(&key.token(|_, _| {})).await.unwrap().principal;
    assert_eq!(&*made.name, "oauth:team-a");
    let names: Vec<&str> = made
        .namespaces
        .as_ref()
        .unwrap()
        .iter()
        .map(Namespace::as_str)
        .collect();
    assert_eq!(
        (names, made.role),
        (vec!["team-a", "shared"], PrincipalRole::Caller)
    );
    let token = key.token(|_, claims| {
        claims["client_id"] = json!("ci");
        claims["scope"] = json!("ringfence:operate");
        claims["aud"] = json!(["https://other.example.com", RESOURCE]);
    });
    let made = oauth.identify(&token).await.unwrap().principal;
    assert_eq!((&*made.name, made.role), ("oauth:ci", PrincipalRole::Operator));
    assert!(made.namespaces.is_none() && made.toolsets.as_ref().unwrap().len() == 1);
    assert_eq!(issuer.requests.load(Ordering::Relaxed), 1);
    for tenant in [json!("../x"), json!("a b"), json!("")] {
        let token = key.token(|_, claims| claims["tenant"] = tenant.clone());
        assert_eq!(oauth.identify(&token).await, Err(Denied::Unknown), "{tenant}");
    }
}

/// claim: [HTTP-9]
#[tokio::test]
async fn claim_of_any_json_type_is_matched_by_its_text_or_rejected() {
    let key = Signer::new("k1");
    let issuer = Issuer::of(&[&key]).await;
    let rules = [
        "groups=guests: guest g execute",
        "level=*: level-{} l",
        "tenant=*: {} {}",
        "sub=*: all *",
    ];
    let oauth = issuer.oauth(&rules);
    for (claim, value, expect) in [
        ("groups", json!(["staff", "guests"]), Some("oauth:guest")),
        ("groups", json!("guests"), Some("oauth:guest")),
        ("groups", json!(["staff", 7]), Some("oauth:team-a")),
        ("groups", json!([]), Some("oauth:team-a")),
        ("groups", Value::Null, Some("oauth:team-a")),
        ("groups", json!({"guests": true}), None),
        ("groups", json!(["guests", {"x": 1}]), None),
        ("groups", json!([["guests"]]), None),
        ("level", json!(5), Some("oauth:level-5")),
        ("level", json!(true), Some("oauth:level-true")),
        ("level", json!(["5"]), Some("oauth:level-5")),
        ("level", json!(["5", "6"]), None),
        ("level", json!(-1.5), Some("oauth:level--1.5")),
        ("tenant", Value::Null, Some("oauth:all")),
        ("tenant", json!("../x"), None),
        ("tenant", json!(""), None),
        ("tenant", json!(["team-a", "team-b"]), None),
    ] {
        let token = key.token(|_, claims| claims[claim] = value.clone());
        let made = oauth
            .identify(&token)
            .await
            .map(|made| made.principal.name.to_string());
        assert_eq!(
            made,
            expect.map(str::to_owned).ok_or(Denied::Unknown),
            "{claim}: {value}"
        );
    }
}

/// Tokens with valid claims that the issuer has not signed, or not as access tokens.
fn wrongly_signed(key: &Signer, foreign: &Signer) -> Vec<(&'static str, String)> {
    let header = |name: &str, value: Value| key.token(|header, _| header[name] = value);
    let claims = |token: &str| token.split('.').nth(1).unwrap().to_owned();
    let with_algorithm = |algorithm: &str| {
        let head =
            URL_SAFE_NO_PAD.encode(json!({"alg": algorithm, "typ": "at+jwt", "kid": "k1"}).to_string());
        format!("{head}.{}", claims(&key.token(|_, _| {})))
    };
    let confused = {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, key.pair.public_key().as_ref());
        let message = with_algorithm("HS256");
        let tag = hmac::sign(&secret, message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
    };
    let mut tampered = key.token(|_, _| {});
    tampered.replace_range(60..61, if &tampered[60..61] == "A" { "B" } else { "A" });
    vec![
        ("of a foreign key with the same id", foreign.token(|_, _| {})),
        ("alg none", with_algorithm("none") + "."),
        ("alg None", with_algorithm("None") + "."),
        ("without a signature", with_algorithm("ES256") + "."),
        ("key confusion", confused),
        ("another algorithm", header("alg", json!("RS256"))),
        ("an ID token by its type", header("typ", json!("id+jwt"))),
        ("a critical header", header("crit", json!(["b64"]))),
        ("no key id", header("kid", Value::Null)),
        ("changed", tampered),
        ("empty", "..".to_owned()),
        ("none", String::new()),
    ]
}

/// Tokens that the issuer has signed, but that are not valid for this resource now.
fn wrongly_claimed(key: &Signer) -> Vec<(&'static str, String)> {
    let now = jsonwebtoken::get_current_timestamp();
    let claim = |name: &str, value: Value| key.token(|_, claims| claims[name] = value);
    let without = |name: &str| {
        key.token(|_, claims| {
            claims.as_object_mut().unwrap().remove(name);
        })
    };
    vec![
        ("an ID token by its nonce", claim("nonce", json!("x"))),
        ("an ID token by at_hash", claim("at_hash", json!("x"))),
        ("an ID token by token_use", claim("token_use", json!("id"))),
        ("another issuer", claim("iss", json!("https://evil.example.com"))),
        (
            "the issuer with a slash",
            claim("iss", json!(format!("{ISSUER}/"))),
        ),
        (
            "another resource",
            claim("aud", json!("https://other.example.com/mcp")),
        ),
        ("the origin alone", claim("aud", json!("https://mcp.example.com"))),
        (
            "the resource with a slash",
            claim("aud", json!(format!("{RESOURCE}/"))),
        ),
        ("a client's id as audience", claim("aud", json!("machine"))),
        ("expired", claim("exp", json!(now - 60))),
        ("not yet good", claim("nbf", json!(now + 600))),
        ("an expiry in words", claim("exp", json!("tomorrow"))),
        ("no expiry", without("exp")),
        ("no audience", without("aud")),
        ("no issuer", without("iss")),
    ]
}

/// claim: [HTTP-9]
#[tokio::test]
async fn invalid_tokens_and_insufficient_scopes_are_rejected() {
    let (key, foreign) = (Signer::new("k1"), Signer::new("k1"));
    let issuer = Issuer::of(&[&key]).await;
    let oauth = issuer.oauth(&["tenant=*: {} {}"]);
    assert!(oauth.identify(&key.token(|_, _| {})).await.is_ok(), "the control");
    for (what, token) in wrongly_signed(&key, &foreign)
        .into_iter()
        .chain(wrongly_claimed(&key))
    {
        assert_eq!(oauth.identify(&token).await, Err(Denied::Invalid), "{what}");
    }
    for (scope, held) in [
        (json!("openid files:read"), vec!["openid", "files:read"]),
        (Value::Null, vec![]),
    ] {
        let token = key.token(|_, claims| claims["scope"] = scope);
        let held = held.into_iter().map(str::to_owned).collect();
        let wanted = CALL.to_owned();
        assert_eq!(oauth.identify(&token).await, Err(Denied::Scope { held, wanted }));
    }
}

#[tokio::test(start_paused = true)]
async fn rotated_key_is_fetched_and_unknown_keys_are_fetched_once_in_ten_seconds() {
    let (old, new) = (Signer::new("k1"), Signer::new("k2"));
    let issuer = Issuer::of(&[&old]).await;
    let oauth = issuer.oauth(&["tenant=*: {} {}"]);
    assert!(oauth.identify(&old.token(|_, _| {})).await.is_ok());
    for number in 0..1000 {
        let token = new.token(|header, _| header["kid"] = json!(format!("made-up-{number}")));
        assert_eq!(oauth.identify(&token).await, Err(Denied::Invalid));
    }
    assert_eq!(
        issuer.requests.load(Ordering::Relaxed),
        1,
        "a thousand unknown keys within ten seconds"
    );
    issuer.set_answer(Some(
        json!({"keys": [new.jwk(), {"kty": "strange"}, old.jwk()]}).to_string(),
    ));
    tokio::time::advance(Duration::from_secs(11)).await;
    assert!(oauth.identify(&new.token(|_, _| {})).await.is_ok());
    assert_eq!(issuer.requests.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn changed_key_with_the_same_id_is_fetched_again() {
    let (old, new) = (Signer::new("k1"), Signer::new("k1"));
    let issuer = Issuer::of(&[&old]).await;
    let oauth = issuer.oauth(&["tenant=*: {} {}"]);
    assert!(oauth.identify(&old.token(|_, _| {})).await.is_ok());
    issuer.set_answer(Some(json!({"keys": [new.jwk()]}).to_string()));
    assert_eq!(
        oauth.identify(&new.token(|_, _| {})).await,
        Err(Denied::Invalid),
        "fetched less than ten seconds ago"
    );
    tokio::time::advance(Duration::from_secs(11)).await;
    assert!(oauth.identify(&new.token(|_, _| {})).await.is_ok());
    assert_eq!(oauth.identify(&old.token(|_, _| {})).await, Err(Denied::Invalid));
    assert_eq!(issuer.requests.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn known_keys_stay_valid_while_the_issuer_fails() {
    let key = Signer::new("k1");
    let issuer = Issuer::of(&[&key]).await;
    let oauth = issuer.oauth(&["tenant=*: {} {}"]);
    assert!(oauth.identify(&key.token(|_, _| {})).await.is_ok());
    let unknown = key.token(|header, _| header["kid"] = json!("k9"));
    let huge = format!(r#"{{"keys":[],"x":"{}"}}"#, "x".repeat(1 << 20));
    for answer in [None, Some(String::new()), Some("<html>".to_owned()), Some(huge)] {
        issuer.set_answer(answer.clone());
        tokio::time::advance(Duration::from_secs(11)).await;
        let begun = tokio::time::Instant::now();
        assert_eq!(oauth.identify(&unknown).await, Err(Denied::Invalid));
        assert!(begun.elapsed() <= Duration::from_secs(6), "{answer:.20?}");
        assert!(
            oauth.identify(&key.token(|_, _| {})).await.is_ok(),
            "{answer:.20?}"
        );
    }
}

#[tokio::test]
async fn metadata_and_challenges_come_from_the_configuration_alone() {
    let issuer = Issuer::of(&[]).await;
    let oauth = issuer.oauth(&["tenant=*: {} {}"]);
    for path in [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
    ] {
        let facts: Value = serde_json::from_str(&oauth.metadata(path).unwrap()).unwrap();
        assert_eq!(facts["resource"], RESOURCE);
        assert_eq!(facts["authorization_servers"], json!([ISSUER]));
    }
    for path in [
        "/.well-known/oauth-protected-resource/",
        "/.well-known/oauth-protected-resource/mcp/",
        "/",
    ] {
        assert_eq!(oauth.metadata(path), None, "{path}");
    }
    let metadata = r#"resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp""#;
    assert!(oauth.challenge().contains(metadata));
    let held = ["openid", "offline_access", "a\"b", "a\r\nb", ""].map(str::to_owned);
    let challenge = oauth.scope_challenge(&held, CALL);
    assert!(
        challenge.contains(r#"scope="openid ringfence:call""#) && challenge.contains(metadata),
        "{challenge}"
    );
}
