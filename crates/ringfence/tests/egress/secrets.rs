//! A secret that is bound to a host: programs see only a placeholder, and the host receives the value.

use super::World;
use crate::client::*;
use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

const SECRET: &str = "Tok3n-of/the+Story=9x";

/// The host, and the requests that it prints.
struct Api {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Api {
    fn new(world: &World) -> Self {
        world.certify("DNS:api.test,DNS:read.test");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/egress/api.cjs");
        let mut process = Command::new("/usr/bin/node")
            .args([script, "93.184.216.50"])
            .arg(&world.directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "\"ready\"");
        Self { process, lines }
    }

    /// Returns the next request that the host received.
    fn next_request(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn server(world: &World, bound: &str, allow: &str) -> Server {
    world.serve([
        ("RINGFENCE_EGRESS_ALLOW", allow),
        ("RINGFENCE_EGRESS_CA_FILE", &world.file("root.pem")),
        ("RINGFENCE_EGRESS_SECRETS", bound),
        ("RINGFENCE_VAULT_STORE", "env"),
        ("RINGFENCE_SECRET_DEFAULT_TOKEN", SECRET),
    ])
}

/// Runs a program with the secret and returns its result, which must not contain the value.
fn run(server: &mut Server, language: &str, code: &str) -> Value {
    let arguments = json!({"language": language, "code": code, "secrets": ["TOKEN"], "timeout_seconds": 60});
    let done = server.run(arguments);
    assert!(!done.to_string().contains(SECRET), "{done}");
    done
}

fn denied(done: &Value) -> Vec<&str> {
    let denials = done["denials"].as_array().into_iter().flatten();
    denials.filter_map(|denial| denial["rule"].as_str()).collect()
}

const PYTHON: &str = "
import os, urllib.request
request = urllib.request.Request('https://api.test/v1?a=b', headers={'Authorization': 'Bearer ' + os.environ['TOKEN']})
answer = urllib.request.urlopen(request, timeout=10)
print(answer.headers['x-heard'], answer.read().decode())
";
const NODE: &str = "
const answer = await fetch('https://api.test/v1?a=b', {headers: {authorization: `Bearer ${process.env.TOKEN}`}});
console.log(answer.headers.get('x-heard'), await answer.text());
";
const NODE_HTTP2: &str = "
const client = require('node:http2').connect('https://api.test');
const request = client.request({':path': '/v1?a=b', authorization: `Bearer ${process.env.TOKEN}`});
request.on('response', (headers) => console.log(headers['x-heard']));
let body = '';
request.on('data', (chunk) => { body += chunk; });
request.on('end', () => { console.log(body); client.close(); });
";
const CURL: &str = "curl -sSi -H \"Authorization: Bearer $TOKEN\" 'https://api.test/v1?a=b'";
const CURL_HTTP1: &str = "curl -sSi --http1.1 -H \"Authorization: Bearer $TOKEN\" 'https://api.test/v1?a=b'";
const CURL_PROXY: &str =
    "curl -sSi -x http://198.18.0.1:3128 -H \"Authorization: Bearer $TOKEN\" 'https://api.test/v1?a=b'";

/// claim: [SEC-6]
#[test]
fn a_bound_secret_reaches_its_host_and_the_program_sees_only_a_placeholder() {
    let Some(world) = World::enter() else { return };
    let mut api = Api::new(&world);
    let mut server = server(&world, "default/TOKEN=api.test", "api.test");
    for (client, language, code, version) in [
        ("Python urllib", "python", PYTHON, "1.1"),
        ("Node fetch", "node", NODE, "1.1"),
        ("Node http2", "node", NODE_HTTP2, "2.0"),
        ("curl", "shell", CURL, "2.0"),
        ("curl --http1.1", "shell", CURL_HTTP1, "1.1"),
        ("curl, proxy", "shell", CURL_PROXY, "2.0"),
    ] {
        let done = run(&mut server, language, code);
        assert_eq!(done["success"], true, "{client}: {done}");
        let request = api.next_request();
        assert_eq!(
            request["headers"]["authorization"],
            format!("Bearer {SECRET}"),
            "{client}: {request}"
        );
        assert_fields_of(client, &request, json!({"version": version, "url": "/v1?a=b"}));
        let said = text_of(&done["stdout"]);
        let marks = said.matches("***REDACTED***").count();
        assert!(
            marks >= 5,
            "{client}: the header and four renderings in the body: {said}"
        );
        for rendering in [
            "VG9rM24tb2YvdGhlK1N0b3J5PTl4",
            "546f6b336e2d6f66",
            "Tok3n-of%2Fthe%2BStory%3D9x",
        ] {
            assert!(!said.contains(rendering), "{client}: {said}");
        }
        println!(
            "\n| {client} | HTTP/{version} | received the value | printed {marks} marks | {:?} |",
            denied(&done)
        );
    }
    npm_trusts_the_host(&mut server, &mut api);
    let placeholder = run(
        &mut server,
        "shell",
        "echo \"$TOKEN\"; cat \"$SSL_CERT_FILE\" | grep -c BEGIN; env | grep -c PRIVATE",
    );
    let said = text_of(&placeholder["stdout"]);
    assert!(
        said.starts_with("ringfence_secret_") && said.ends_with("\n0\n"),
        "{said}"
    );
    let log = server
        .rpc("resources/read", json!({"uri": "sandbox://logs"}))
        .to_string();
    assert_contains(&log, ["TOKEN", "egress.request"]);
    assert_lacks(&log, [SECRET]);
    let record = server
        .call("audit_execution", json!({"limit": 50, "detail": true}))
        .to_string();
    assert_contains(&record, ["api.test"]);
    assert_lacks(&record, [SECRET]);
}

/// Checks that npm, which reads its own setting for certificates, trusts the host. The request has no secret.
fn npm_trusts_the_host(server: &mut Server, api: &mut Api) {
    let npm = "npm ping --registry=https://api.test/ --fetch-retries=0 --no-update-notifier";
    let pinged = run(server, "shell", npm);
    assert_eq!(
        (&pinged["success"], denied(&pinged)),
        (&json!(true), Vec::new()),
        "{pinged}"
    );
    assert!(api.next_request()["url"].as_str().unwrap().starts_with("/-/ping"));
}

/// Runs shell code that must be denied by exactly this rule.
fn assert_denied(server: &mut Server, code: &str, rule: &str) {
    let done = run(server, "shell", code);
    assert_eq!(denied(&done), [rule], "{code}: {done}");
}

/// claim: [SEC-6]
#[test]
fn a_bound_secret_is_sent_only_to_its_host_and_only_in_its_header() {
    let Some(world) = World::enter() else { return };
    let mut api = Api::new(&world);
    let mut server = server(&world, "default/TOKEN=api.test", "api.test");
    let mut request_after = |server: &mut Server, code: &str| {
        let done = run(server, "shell", code);
        assert_eq!(denied(&done), Vec::<&str>::new(), "{code}: {done}");
        (text_of(&done["stdout"]).to_owned(), api.next_request())
    };
    // Foreign credentials are removed, a placeholder outside of the header stays as it is, and one inside Basic is
    // replaced.
    let (_, request) = request_after(
        &mut server,
        "curl -sS -H 'Authorization: Bearer mine' https://api.test/",
    );
    assert!(request["headers"].get("authorization").is_none(), "{request}");
    let (_, request) = request_after(
        &mut server,
        "curl -sS -H \"X-Other: $TOKEN\" -d \"$TOKEN\" \"https://api.test/$TOKEN\"",
    );
    assert!(
        text_of(&request["body"]).starts_with("ringfence_secret_"),
        "{request}"
    );
    assert!(!request.to_string().contains(SECRET), "{request}");
    let (_, request) = request_after(&mut server, "curl -sS -u \"user:$TOKEN\" https://api.test/");
    let basic = "Basic dXNlcjpUb2szbi1vZi90aGUrU3Rvcnk9OXg=";
    assert_eq!(request["headers"]["authorization"], basic, "{request}");
    // Responses in pieces, letter by letter or by range, do not contain the secret either.
    let header = "-H \"Authorization: Bearer $TOKEN\"";
    let (said, _) = request_after(&mut server, &format!("curl -sS {header} https://api.test/pieces"));
    assert_eq!(said, "heard Bearer ***REDACTED*** well");
    let (_, request) = request_after(
        &mut server,
        &format!("curl -sS -r 0-3 --compressed {header} https://api.test/"),
    );
    assert!(request["headers"].get("range").is_none(), "{request}");
    assert_eq!(request["headers"]["accept-encoding"], "identity", "{request}");
    let (said, _) = request_after(
        &mut server,
        &format!("curl -sS {header} https://api.test/large | wc -c"),
    );
    assert_eq!(said.trim(), (4 << 20).to_string());
    // Trailers are not forwarded; the body before them is.
    let (_, request) = request_after(&mut server, TRAILERS);
    request.assert_fields(json!({"body": "sent", "trailers": {}}));
    // The reason phrase of the server does not return the secret either; the header shows that the server had it.
    let (said, _) = request_after(
        &mut server,
        &format!("curl -sSi --http1.1 {header} https://api.test/reason"),
    );
    assert_eq!(said.lines().next(), Some("HTTP/1.1 200 OK"), "{said}");
    assert!(said.contains("x-heard: Bearer ***REDACTED***"), "{said}");
    println!(
        "\n| a bound secret, as it is sent | 8 shapes | the value left for its host and place alone | | |"
    );
}

/// Sends a body and trailers, one of which is a credential.
const TRAILERS: &str = r#"node -e "
const client = require('node:http2').connect('https://api.test');
const request = client.request({':path': '/trailers', ':method': 'POST'}, {waitForTrailers: true});
request.on('wantTrailers', () => request.sendTrailers({authorization: 'Bearer mine', 'x-trailer': 'a'}));
request.on('end', () => client.close()).resume();
request.end('sent');
""#;

/// claim: [SEC-6]
#[test]
fn a_connection_header_does_not_remove_a_bound_secret() {
    let Some(world) = World::enter() else { return };
    let mut api = Api::new(&world);
    let mut server = server(
        &world,
        "default/TOKEN=api.test header authorization: Bearer {}",
        "api.test",
    );
    for said in ["keep-alive", "keep-alive, authorization", "close, Authorization"] {
        let code = format!("curl -sS --http1.1 -H 'Connection: {said}' https://api.test/");
        assert_eq!(run(&mut server, "shell", &code)["success"], true, "{said}");
        let request = api.next_request();
        assert_eq!(
            request["headers"]["authorization"],
            format!("Bearer {SECRET}"),
            "{said}: {request}"
        );
    }
}

/// claim: [SEC-6]
#[test]
fn a_connection_with_mismatched_host_sni_or_certificate_gets_no_secret() {
    let Some(world) = World::enter() else { return };
    let mut api = Api::new(&world);
    let bound = "default/TOKEN=api.test;default/TOKEN=wrong.test";
    let allow = "api.test;good.test;wrong.test;GET read.test/public/";
    let mut server = server(&world, bound, allow);
    // Path rules apply inside TLS.
    let code = "curl -sS -w '%{http_code}' -o /dev/null https://read.test/public/a";
    assert_eq!(run(&mut server, "shell", code)["stdout"], "200");
    assert_eq!(api.next_request()["url"], "/public/a");
    let curl = "curl -sS -m 5 -H \"Authorization: Bearer $TOKEN\"";
    assert_denied(
        &mut server,
        "curl -sS https://read.test/private",
        "egress.request",
    );
    assert_denied(
        &mut server,
        "curl -sS -X POST https://read.test/public/a",
        "egress.request",
    );
    assert_denied(
        &mut server,
        &format!("{curl} https://api.test/packed"),
        "egress.secret",
    );
    api.next_request();
    assert_denied(
        &mut server,
        &format!("{curl} https://wrong.test/"),
        "egress.certificate",
    );
    assert_denied(
        &mut server,
        &format!("{curl} -H 'Host: good.test' https://api.test/"),
        "egress.host",
    );
    assert_denied(
        &mut server,
        &format!("{curl} --connect-to api.test:443:good.test:443 https://api.test/"),
        "egress.sni",
    );
    assert_denied(
        &mut server,
        &format!("{curl} --cacert /etc/ssl/certs/ca-certificates.crt https://api.test/"),
        "egress.certificate",
    );
    world.contacts();
    let plain = run(
        &mut server,
        "shell",
        "curl -sS -H \"Authorization: Bearer $TOKEN\" http://good.test/",
    );
    assert_eq!(plain["success"], true, "{plain}");
    println!("\n| a bound secret, mismatched connections | 7 shapes | refused, each by its rule | | |");
}

/// claim: [SEC-6]
#[test]
fn removed_binding_or_secret_reaches_no_further_request() {
    let Some(world) = World::enter() else { return };
    let mut api = Api::new(&world);
    let configure = |bound: &str| {
        let config = format!(
            "{{egress: {{allow: [api.test], secrets: [{bound}]}}, vault: {{allow: [default/TOKEN]}}}}"
        );
        std::fs::write(world.file("config.yaml"), config).unwrap();
    };
    configure("default/TOKEN=api.test");
    let mut command = world.ringfence(&["serve", "--config", &world.file("config.yaml")]);
    command
        .env("RINGFENCE_EGRESS_CA_FILE", world.file("root.pem"))
        .stderr(Stdio::null());
    let mut server = Server::from_command(command);
    let add = || run_with_stdin(world.ringfence(&["vault", "add", "TOKEN"]), SECRET);
    eventually(|| add().status.success());
    let session = server.create_session(json!({"language": "shell", "secrets": ["TOKEN"]}));
    let with_secret = "curl -sS -m 10 -H \"Authorization: $TOKEN\" https://api.test/";
    let mut has_value = |server: &mut Server| {
        let done = server.eval(&session, with_secret);
        assert_eq!(done["success"], true, "{done}");
        let is_refused = denied(&done) == ["egress.secret"];
        !is_refused && api.next_request()["headers"]["authorization"] == SECRET
    };
    assert!(has_value(&mut server));
    configure("");
    signal(server.child.id(), rustix::process::Signal::HUP);
    eventually(|| !has_value(&mut server));
    configure("default/TOKEN=api.test");
    signal(server.child.id(), rustix::process::Signal::HUP);
    eventually(|| has_value(&mut server));
    server.call_ok("vault_delete", json!({"key": "TOKEN"}));
    let done = server.eval(&session, with_secret);
    assert_eq!(denied(&done), ["egress.secret"], "{done}");
    // What an earlier request may have left there is still redacted.
    let code = format!("curl -sS -m 10 https://api.test/{SECRET} | grep -c '[*]REDACTED[*]'");
    let done = server.eval(&session, &code);
    assert_eq!(done["stdout"], "1\n", "{done}");
}

/// Makes a request whose answer does not end, and after which the host takes no more requests on its connection.
const AWAY: &str = "
const client = require('node:http2').connect('https://api.test');
const status = async (path) => {
  const [headers] = await require('node:events').once(client.request({ ':path': path }), 'response');
  return headers[':status'];
};
";

/// claim: [NET-8]
#[test]
fn replaced_http2_connections_to_a_host_count() {
    let Some(world) = World::enter() else { return };
    let _api = Api::new(&world);
    let mut server = world.serve([
        ("RINGFENCE_EGRESS_ALLOW", "api.test"),
        ("RINGFENCE_EGRESS_CA_FILE", &world.file("root.pem")),
        ("RINGFENCE_EGRESS_SECRETS", "default/TOKEN=api.test"),
        ("RINGFENCE_EGRESS_CONNECTIONS", "3"),
        ("RINGFENCE_VAULT_STORE", "env"),
        ("RINGFENCE_SECRET_DEFAULT_TOKEN", SECRET),
    ]);
    let all = "for (let i = 0; i < 6; i++) console.log(await status('/away'));\nclient.destroy();";
    let done = run(&mut server, "node", &format!("{AWAY}{all}"));
    assert_eq!(done["stdout"], "200\n200\n200\n403\n403\n403\n", "{done}");
    assert_eq!(denied(&done), ["egress.limit"]);
    // Many requests at once share the connection that replaces the first.
    let many = "console.log(await status('/away'));
        const all = await Promise.all(Array.from({ length: 8 }, () => status('/')));
        console.log(all.join(' '));\nclient.destroy();";
    let done = run(&mut server, "node", &format!("{AWAY}{many}"));
    assert_eq!(done["stdout"], "200\n200 200 200 200 200 200 200 200\n", "{done}");
}

/// Requests 4 MiB in each of eight streams of sixteen connections, and reads the responses only if `READS` is true.
const FLOOD: &str = "
const http2 = require('node:http2');
let left = 128, bytes = 0;
const clients = Array.from({ length: 16 }, () => http2.connect('https://api.test'));
await new Promise((done) => {
  for (const client of clients) for (let i = 0; i < 8; i++) {
    const stream = client.request({ ':path': '/large' });
    stream.on('response', () => { if (!READS && --left === 0) setTimeout(done, 1000); });
    if (READS) stream.on('data', (chunk) => { bytes += chunk.length; }).on('end', () => { if (--left === 0) done(); });
    else stream.pause();
  }
});
for (const client of clients) client.destroy();
console.log(bytes);
";

/// claim: [NET-8]
#[test]
fn unread_http2_responses_use_bounded_server_memory() {
    let Some(world) = World::enter() else { return };
    let _api = Api::new(&world);
    let mut server = server(&world, "default/TOKEN=api.test", "api.test");
    let pid = server.child.id();
    let peak_kib = || proc_status_kib(pid, "VmHWM");
    run(
        &mut server,
        "node",
        &FLOOD
            .replace("READS", "true")
            .replace("128", "8")
            .replace("16", "1"),
    );
    let before = peak_kib();
    let done = run(&mut server, "node", &FLOOD.replace("READS", "false"));
    assert_eq!(done["stdout"], "0\n", "{done}");
    let more = peak_kib() - before;
    // Two windows and the buffered output for each of sixteen connections.
    assert!(more < 48 << 10, "{more} KiB were kept for unread responses");
    let few = FLOOD
        .replace("READS", "true")
        .replace("128", "16")
        .replace("i < 8", "i < 1");
    let done = run(&mut server, "node", &few);
    assert_eq!(
        done["stdout"],
        format!("{}\n", 16 * (4 << 20)),
        "the control: {done}"
    );
    println!("\n| 128 unread responses of 4 MiB | {more} KiB kept | | | |");
}
