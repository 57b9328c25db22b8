//! TLS with certificate files, and the OAuth metadata documents.

use crate::client::*;
use rcgen::{CertificateParams, KeyPair};
use rustix::process::Signal;
use std::{fs, process::Command};

/// Makes a self-signed certificate for 127.0.0.1 with this serial number, and its key; returns their paths.
fn make(scratch: &TempDir, number: u8) -> (String, String) {
    let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    parameters.serial_number = Some(vec![number].into());
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let files = (
        scratch.file("cert.pem", &certificate.pem()),
        scratch.file("key.pem", &key.serialize_pem()),
    );
    set_mode(&files.1, 0o600);
    files
}

fn command(cert: &str, key: &str) -> Command {
    let mut command = HttpServer::command(&[]);
    command.envs([("RINGFENCE_HTTP_TLS_CERT", cert), ("RINGFENCE_HTTP_TLS_KEY", key)]);
    command
}

/// Returns the answer that curl gets when it trusts only this certificate; `None` if curl fails.
fn curl(cert: &str, words: &[&str], server: &HttpServer) -> Option<String> {
    let url = format!("https://{}/healthz", server.address);
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "--cacert",
            cert,
            "--write-out",
            " %{http_version}",
        ])
        .args(words)
        .arg(url)
        .output()
        .unwrap();
    output
        .status
        .success()
        .then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn tls_uses_the_configured_files_and_rereads_them_on_sighup() {
    let scratch = TempDir::new("tls");
    let (cert, key) = make(&scratch, 1);
    let server = HttpServer::from_command(command(&cert, &key));
    assert_eq!(curl(&cert, &[], &server).as_deref(), Some("ok\n 2"), "by ALPN");
    assert_eq!(curl(&cert, &["--http1.1"], &server).as_deref(), Some("ok\n 1.1"));
    assert_eq!(
        server.client().get("/healthz").status,
        0,
        "plain text is not understood"
    );
    let old = scratch.file("old.pem", &fs::read_to_string(&cert).unwrap());
    make(&scratch, 2);
    assert!(curl(&cert, &[], &server).is_none(), "not read yet");
    signal(server.child.id(), Signal::HUP);
    eventually(|| curl(&cert, &[], &server).is_some());
    assert!(curl(&old, &[], &server).is_none());
    fs::write(&cert, "no certificate").unwrap();
    signal(server.child.id(), Signal::HUP);
    server.await_log("certificate and key stay as they are");
    let text = fs::read_to_string(&key).unwrap();
    assert!(text.contains("PRIVATE KEY"));
}

#[test]
fn a_server_with_an_unusable_certificate_or_key_does_not_start() {
    let scratch = TempDir::new("tls-bad");
    let (cert, key) = make(&scratch, 1);
    let refused = |cert: &str, key: &str, why: &str| {
        let output = command(cert, key).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{said}");
    };
    refused("/nonexistent.pem", &key, "/nonexistent.pem");
    refused(&cert, "off", "one of `http.tls_cert` and `http.tls_key`");
    let other = KeyPair::generate().unwrap().serialize_pem();
    let other = scratch.file("other.pem", &other);
    set_mode(&other, 0o600);
    refused(&cert, &other, "TLS cannot be set up");
    set_mode(&key, 0o644);
    refused(&cert, &key, "everyone may read");
}

/// claim: [HTTP-9]
#[test]
fn oauth_metadata_comes_from_the_configuration_and_not_from_the_host_header() {
    let yaml = "http:\n  public_url: https://mcp.example.com\n  oauth_issuer: https://idp.example.com\n  oauth_jwks_url: http://127.0.0.1:9/jwks\n  oauth_principals: ['tenant=*: {} {}']\n";
    let scratch = TempDir::new("oauth");
    let config = scratch.file("config.yaml", yaml);
    let server = HttpServer::start(&["--config", &config]);
    let client = server.client();
    let spoofed = [("Host", "evil.example"), ("X-Forwarded-Host", "evil.example")];
    for path in [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
    ] {
        let reply = client.request("GET", path, &spoofed, "");
        assert_eq!(reply.status, 200, "{reply:?}");
        let facts: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(facts["resource"], "https://mcp.example.com/mcp");
        assert!(!reply.body.contains("evil"));
    }
    let reply = client.post(&spoofed, &json!({}));
    assert!(reply.status == 403 && !reply.head.contains("evil"), "{reply:?}");
    let reply = client.post(&spoofed[1..], &json!({}));
    let challenge = reply.header("www-authenticate").unwrap();
    assert_eq!(reply.status, 401);
    let metadata = r#"resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp""#;
    assert!(
        challenge.contains(metadata) && challenge.contains(r#"scope="ringfence:call""#),
        "{challenge}"
    );
    let token = "eyJhbGciOiJub25lIn0.e30.";
    let reply = client.post(&[("Authorization", &format!("Bearer {token}"))], &json!({}));
    assert_eq!(reply.status, 401);
    let missing = ringfence(&["serve", "--transport", "http"])
        .env("RINGFENCE_HTTP_OAUTH_ISSUER", "https://idp.example.com")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&missing.stderr).contains("OAuth needs all of"));
}
