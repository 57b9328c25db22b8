//! OAuth access tokens of an external issuer: lifetime, scopes and principals.

use crate::client::*;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    time::{Duration, Instant, SystemTime},
};

const RESOURCE: &str = "https://mcp.example.com/mcp";
const ISSUER: &str = "https://idp.example.com";
const ALL_TENANTS: &str = "tenant=*: {} {}";

/// An issuer with one key, whose JWKS is served on a port of this host.
struct Issuer {
    key: EcdsaKeyPair,
    jwks_url: String,
}

impl Issuer {
    fn start() -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        let key = key.unwrap();
        let point = key.public_key().as_ref();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let jwk = json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k",
            "x": part(&point[1..33]), "y": part(&point[33..])});
        let body = json!({"keys": [jwk]}).to_string();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let jwks_url = format!("http://{}/jwks", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                drop(stream.read(&mut [0; 4096]));
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                drop(stream.write_all((head + &body).as_bytes()));
            }
        });
        Self { key, jwks_url }
    }

    /// Returns a token with this scope that expires in so many seconds.
    fn token(&self, scope: &str, seconds: i64) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let expires = i64::try_from(now.as_secs()).unwrap() + seconds;
        let claims = json!({"iss": ISSUER, "aud": RESOURCE, "sub": "s", "tenant": "team", "scope": scope, "exp": expires});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "ES256", "typ": "at+jwt", "kid": "k"});
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn server(&self, rule: &str) -> HttpServer {
        let yaml = format!(
            "http:\n  public_url: https://mcp.example.com\n  oauth_issuer: {ISSUER}\n  oauth_jwks_url: {}\n  oauth_principals: ['{rule}']\n",
            self.jwks_url
        );
        let scratch = TempDir::new("oauth");
        let config = scratch.file("config.yaml", &yaml);
        let mut command = HttpServer::command(&["--config", &config]);
        command.env("SANDBOXMCP_HOST_ACCESS", "on");
        HttpServer::from_command(command)
    }
}

/// claim: [HTTP-9]
#[test]
fn an_event_stream_ends_with_its_access_token_and_a_new_token_continues_the_session() {
    let issuer = Issuer::start();
    let server = issuer.server(ALL_TENANTS);
    let long = issuer.token("ringfence:call", 300);
    let mut client = server.initialized_client_with(&long);
    // A clock skew of ten seconds is allowed.
    let short = issuer.token("ringfence:call", -6);
    let begun = Instant::now();
    let mut stays = client.open("/mcp");
    client.token = Some(short);
    let mut ends = client.open("/mcp");
    let mut text = String::new();
    ends.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 200") && text.ends_with("0\r\n\r\n"),
        "{text}"
    );
    let took = begun.elapsed();
    assert!(
        took > Duration::from_secs(2) && took < Duration::from_secs(15),
        "{took:?}"
    );
    // Expiry times are whole seconds.
    eventually(|| client.rpc_reply("ping", json!({})).status == 401);
    client.token = Some(long);
    assert!(
        client.rpc("ping", json!({}))["result"].is_object(),
        "the session goes on"
    );
    stays.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut rest = Vec::new();
    let waits = stays.read_to_end(&mut rest).unwrap_err();
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock, "it is open");
}

/// claim: [HTTP-9]
#[test]
fn a_toolset_scope_covers_no_other_toolset_and_the_challenge_names_both() {
    let issuer = Issuer::start();
    let server = issuer.server(ALL_TENANTS);
    let mut client = server.initialized_client_with(&issuer.token("openid ringfence:execute", 300));
    assert_eq!(client.run(json!({"code": "print(1)"}))["stdout"], "1\n");
    let listed = client.rpc("tools/list", json!({})).to_string();
    assert!(listed.contains("vault_list"), "tools of the principal are listed");
    let beyond = [
        (
            "tools/call",
            json!({"name": "vault_list", "arguments": {}}),
            "vault",
        ),
        ("resources/read", json!({"uri": "sandbox://audit"}), "observe"),
    ];
    for (method, params, toolset) in &beyond {
        let refused = client.rpc_reply(method, params.clone());
        assert_eq!(refused.status, 403, "{method}: {refused:?}");
        let challenge = refused.header("www-authenticate").unwrap();
        let scope =
            format!(r#"error="insufficient_scope", scope="openid ringfence:execute ringfence:{toolset}""#);
        assert!(challenge.contains(&scope), "{challenge}");
        assert!(challenge.contains("resource_metadata="), "{challenge}");
    }
    let twice =
        r#"{"jsonrpc":"2.0","id":9,"method":"ping","method":"tools/call","params":{"name":"vault_list"}}"#;
    let usual = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    let session = client.session.clone().unwrap();
    let headers: Vec<_> = usual
        .into_iter()
        .chain([("Mcp-Session-Id", session.as_str())])
        .collect();
    assert_eq!(client.request("POST", "/mcp", &headers, twice).status, 400);
    client.token = Some(issuer.token("openid ringfence:execute ringfence:vault", 300));
    let (_, params, _) = &beyond[0];
    assert_eq!(
        client.rpc_reply("tools/call", params.clone()).status,
        200,
        "the step up"
    );
}

/// claim: [HOST-7]
#[test]
fn an_oauth_principal_has_host_tools_only_if_its_rule_names_the_toolset() {
    let issuer = Issuer::start();
    for (rule, has) in [(ALL_TENANTS, false), ("tenant=*: {} {} host", true)] {
        let server = issuer.server(rule);
        for scope in ["ringfence:operate", "ringfence:host"] {
            let mut client = server.initialized_client_with(&issuer.token(scope, 300));
            let called = client.call("host_exec", json!({"command": "uname"})).to_string();
            assert_eq!(called.contains("Linux"), has, "{rule} {scope}: {called}");
        }
    }
}
