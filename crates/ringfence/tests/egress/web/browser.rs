//! The browser: real Chromium in a sandbox, with pages that scripts build.

use super::{TlsHost, answer, serve};
use crate::{client::*, egress::World};
use base64::{Engine as _, engine::general_purpose::STANDARD};

const PROGRAMS: [&str; 2] = ["chromium-headless-shell", "chromium"];

/// True if this host has a browser; it must have one if `RINGFENCE_REQUIRE` names `chromium`.
pub(super) fn is_available() -> bool {
    has_capability("chromium", || {
        let path = std::env::var("PATH").unwrap_or_default();
        path.split(':').any(|dir| {
            PROGRAMS
                .iter()
                .any(|name| std::path::Path::new(dir).join(name).is_file())
        })
    })
}

/// claim: [WEB-6]
#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of requests")]
fn a_scripted_page_is_read_and_drawn_and_the_browser_ends() {
    let Some(world) = World::enter() else { return };
    if !is_available() {
        return;
    }
    let script = "<html lang=en><head><title>Made</title></head><body><main id=app></main><p style='position:absolute;left:-9999px'>\
                  ORDER</p><div class=h>HIDDEN BY CLASS</div><form hidden><input name=checkVisibility></form><p class=t>TINY<b></b></p>\
                  <p class=c>CLIP<b>PED</b></p><p class=i>INDENTED</p><p class=f>FILLED</p><p class=g>GRADIENT <b class=f>LETTERS</b></p><p class=a>ENTIRE</p>\
                  <p class='g n'>UNPAINTED</p><p class='g z'>SIZELESS</p><p class='a l'>NARROW</p><p class='a b'>BOXED</p><p class=s>SCALED<b>DOWN</b></p><link rel=stylesheet href=/style.css><script>\
                  setTimeout(() => { document.getElementById('app').innerHTML = '<h1>Made by a script</h1><p id=done>' + \
                  'The text of this page was written by a program, some time after it was loaded. '.repeat(4) + '</p>'; }, 300);\
                  console.error('an error of the page'); alert('stop'); throw new Error('thrown');</script></body></html>";
    world.page("good.test/app", answer("text/html", script));
    world.page(
        "good.test/style.css",
        answer(
            "text/css",
            ".h { visibility: hidden } .t { font-size: 1px } .c { position: absolute; clip: rect(1px, 1px, 1px, 1px) }\
             .i { text-indent: -9999px } .f { -webkit-text-fill-color: transparent } .s { transform: scale(0) }\
             .a { position: absolute; clip: rect(auto, auto, auto, auto) }\
             .g { background: linear-gradient(red, blue) text; color: transparent }\
             .n { background-image: linear-gradient(transparent, rgb(255 0 0 / 0)) } .z { background-size: 0 }\
             .l { clip: rect(0px, 5px, 9px, 5px) } .b { clip: rect(0px, 90px, 90px, 0px) }",
        ),
    );
    world.page(
        "good.test/never",
        answer(
            "text/html",
            "<p>waiting words</p><script>setInterval(() => fetch('/style.css'), 100)</script>",
        ),
    );
    let mut server = serve(&world);
    let plain = server.facts("fetch_webpage", json!({"url": "http://good.test/app"}));
    assert_eq!(plain["needs_script"], true, "{plain}");
    let wanted = json!({
        "url": "http://good.test/app", "wait_for_selector": "#done", "screenshot": true, "accessibility_tree": true,
    });
    let said = server.call("browser_fetch", wanted);
    assert_ne!(said["isError"], true, "{said}");
    let facts = &said["structuredContent"];
    let text = text_of(&facts["text"]);
    assert_contains(text, ["written by a program", "- heading \"Made by a script\""]);
    assert_contains(text, ["GRADIENT", "LETTERS", "ENTIRE", "BOXED"]);
    assert_lacks(
        text,
        [
            "HIDDEN BY CLASS",
            "TINY",
            "ORDER",
            "CLIP",
            "PED",
            "INDENTED",
            "FILLED",
            "SCALED",
            "DOWN",
            "UNPAINTED",
            "SIZELESS",
            "NARROW",
        ],
    );
    facts.assert_fields(json!({"status": 200, "title": "Made by a script", "timed_out": false}));
    assert_contains(
        facts["console_errors"].to_string(),
        ["an error of the page", "thrown"],
    );
    let picture = list_of(&said["content"])
        .iter()
        .find(|block| block["type"] == "image");
    let picture = STANDARD.decode(text_of(&picture.unwrap()["data"])).unwrap();
    assert!(
        picture.starts_with(b"\x89PNG") && picture.len() > 2000,
        "{}",
        picture.len()
    );
    assert!(descendants_with(server.child.id(), "chromium").is_empty());
    // A page that never becomes idle ends at its timeout with its current text. While it loads, the browser runs: the
    // control.
    let id = server.send_call(
        "browser_fetch",
        json!({"url": "http://good.test/never", "timeout_ms": 4000}),
    );
    let pid = server.child.id();
    eventually(|| !descendants_with(pid, "chromium").is_empty());
    server.await_response(id);
    assert!(descendants_with(pid, "chromium").is_empty());
    let never = server.facts(
        "browser_fetch",
        json!({"url": "http://good.test/never", "wait_for_selector": "#no", "timeout_ms": 2000}),
    );
    assert_eq!(never["timed_out"], true, "{never}");
    assert_contains(text_of(&never["text"]), ["waiting words"]);
    assert!(descendants_with(server.child.id(), "chromium").is_empty());
    server.call_error(
        "browser_fetch",
        json!({"url": "http://good.test/app", "wait_for_selector": "###"}),
        "invalid_argument",
    );
    for url in [
        "file:///etc/passwd",
        "chrome://version",
        "view-source:http://good.test/",
        "data:text/html,x",
    ] {
        server.call_error("browser_fetch", json!({"url": url}), "invalid_argument");
    }
}

/// claim: [WEB-6]
#[test]
fn a_page_in_the_browser_reads_no_file_of_the_host() {
    let Some(world) = World::enter() else { return };
    if !is_available() {
        return;
    }
    world.page("good.test/file", answer("text/html", "<p>start</p><iframe src='file:///etc/passwd'></iframe><script>location = 'file:///etc/passwd'</script>"));
    world.page("good.test/open", answer("text/html", "<p>start</p><script>open('file:///etc/passwd'); for (let i = 0; i < 20; i++) open('http://other.test/');</script>"));
    world.page("good.test/download", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment\r\nContent-Length: 3\r\n\r\nabc");
    let mut server = serve(&world);
    for path in ["file", "open", "download"] {
        let said = server.call(
            "browser_fetch",
            json!({"url": format!("http://good.test/{path}"), "timeout_ms": 4000}),
        );
        assert!(!said.to_string().contains("root:"), "{path}: {said}");
    }
    assert!(descendants_with(server.child.id(), "chromium").is_empty());
}

/// Chromium has its own list of authorities, and sends ECH GREASE in every handshake.
/// claim: [WEB-9]
#[test]
fn a_tls_page_is_opened_only_with_a_trusted_certificate() {
    let Some(world) = World::enter() else { return };
    if !is_available() {
        return;
    }
    let host = TlsHost::start(&world);
    let wanted = |url: &str| json!({"url": url, "timeout_ms": 20000});
    let mut server: Server = serve(&world);
    let said = server.call_error("browser_fetch", wanted("https://api.test/"), "page_unavailable");
    // The handshake reached the certificate: egress let it pass, because the ClientHello names the host.
    assert_contains(
        said.to_string(),
        [
            "does not trust its certificate",
            "ERR_CERT_AUTHORITY_INVALID",
            "egress.ca_file",
        ],
    );
    assert!(!said.to_string().contains("egress.ech"), "{said}");
    let mut server = trusting(&world, &host, "*");
    let facts = server.facts("browser_fetch", wanted("https://api.test/"));
    facts.assert_fields(json!({"status": 200, "url": "https://api.test/"}));
    assert_contains(text_of(&facts["text"]), ["s_server -quiet -www"]);
    // A certificate of another host and one that no authority has signed: egress checks them, and Chromium no longer
    // does.
    for (url, why) in [
        ("https://read.test/", "not valid for name"),
        ("https://good.test/", "it is the certificate of an authority"),
    ] {
        let refused = server.call_error("browser_fetch", wanted(url), "page_unavailable");
        assert_contains(refused.to_string(), ["egress.certificate", why]);
    }
    // Path rules apply to the decrypted requests.
    let mut server = trusting(&world, &host, "api.test/open");
    let open = server.facts("browser_fetch", wanted("https://api.test/open/a"));
    assert_contains(text_of(&open["text"]), ["s_server -quiet -www"]);
    let closed = server.call("browser_fetch", wanted("https://api.test/closed"));
    assert_contains(closed.to_string(), ["egress.request"]);
    assert!(!closed.to_string().contains("s_server -quiet -www"), "{closed}");
}

/// A server that trusts the authority of `host` in addition to those of this machine.
fn trusting(world: &World, host: &TlsHost, allow: &str) -> Server {
    world.serve([
        ("RINGFENCE_EGRESS_CA_FILE", &host.authority),
        ("RINGFENCE_WEB_ALLOW", allow),
    ])
}
