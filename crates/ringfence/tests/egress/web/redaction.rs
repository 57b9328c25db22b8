//! A vault secret repeated by a page, a search result or an error is replaced with a mark. The same page in a namespace
//! without the secret is the control.

use super::{answer, browser::is_available, redirect_to};
use crate::{client::*, egress::World};

/// A secret with three characters that Markdown escapes.
const SECRET: &str = "K3y_of*the-st0ry[1]";
const BEGINNING: &str = "K3y";
/// A secret of several lines.
const PEM: &str = "-----BEGIN KEY-----\nK3yIIEvQIBADANBgk\nK3yiG9w0BAQEFAASC\n-----END KEY-----";
const MARK: &str = "***REDACTED***";

fn serve(world: &World) -> Server {
    world.serve([
        ("RINGFENCE_TOOLSETS", "web,observe"),
        ("RINGFENCE_WEB_ROBOTS", "false"),
        ("RINGFENCE_WEB_SEARCH", "searxng=http://searx.pages.test/"),
        ("RINGFENCE_VAULT_STORE", "env"),
        ("RINGFENCE_SECRET_DEFAULT_TOKEN", SECRET),
        ("RINGFENCE_SECRET_DEFAULT_PEM", PEM),
    ])
}

/// Returns the answer in the namespace of the secret, after the same call in another namespace has shown that the page
/// contains the secret.
#[track_caller]
fn redacted(server: &mut Server, tool: &str, wanted: Value) -> Value {
    let mut elsewhere = wanted.clone();
    elsewhere["namespace"] = json!("team-b");
    let control = server.call(tool, elsewhere);
    assert_contains(control.to_string(), [BEGINNING]);
    let said = server.call(tool, wanted);
    assert_ne!(said["isError"], true, "{said}");
    assert!(!said.to_string().contains(BEGINNING), "{said}");
    said["structuredContent"].clone()
}

/// claim: [WEB-10]
#[test]
fn a_secret_repeated_by_a_page_or_a_search_result_is_redacted() {
    let Some(world) = World::enter() else { return };
    let words = "The harbour was quiet in the morning, and the boats lay side by side. ".repeat(5);
    let page = format!(
        "<html><head><title>Boats</title><meta name=author content='{SECRET}'></head><body><article><h1>Of {SECRET}</h1>\
         <p>{words} it is <span>K3y_of*</span>the-st0ry[1], or {SECRET}</p><p>Boats need harbours, as <a href='/x?q={SECRET}'>another page says</a>, and harbours need walls against the sea.</p>\
         </article></body></html>"
    );
    // A title is cut at 300 characters, here inside the secret.
    let cut = format!(
        "<title>{}{SECRET}</title><p>{SECRET} {words}</p>",
        "T".repeat(294)
    );
    let lines = PEM.replace('\n', "<br>");
    let laid = format!(
        "<title>{PEM}</title><article><p>{words}</p><blockquote>{lines}</blockquote><ul><li><p>{PEM}</p></li></ul>\
         <ol><li>a<pre>{PEM}</pre></li></ol></article>"
    );
    let hit = |snippet: String| json!({"url": "https://a.test/", "title": format!("About {SECRET}"), "content": snippet});
    let found = json!({"results": [hit(format!("{}{SECRET}", "s".repeat(494)))]});
    for (path, body) in [
        ("page", answer("text/html", page)),
        ("cut", answer("text/html", cut)),
        ("laid", answer("text/html", laid)),
        ("text", answer("text/plain", format!("it is {SECRET} there"))),
        (
            "data",
            answer("application/json", json!({"key": SECRET}).to_string()),
        ),
        ("led", redirect_to(&format!("/text?token={SECRET}")).into_bytes()),
        (
            "away",
            redirect_to(&format!("http://10.7.7.7/{SECRET}")).into_bytes(),
        ),
    ] {
        world.page(&format!("good.test/{path}"), body);
    }
    world.page(
        "searx.pages.test/search",
        answer("application/json", found.to_string()),
    );
    let mut server = serve(&world);
    for path in ["page", "cut", "laid", "text", "data", "led"] {
        let wanted = json!({"url": format!("http://good.test/{path}")});
        let facts = redacted(&mut server, "fetch_webpage", wanted);
        assert_contains(text_of(&facts["text"]), [MARK]);
        match path {
            "page" => {
                assert_eq!(facts["title"], format!("Of {MARK}"), "{facts}");
                assert_eq!(text_of(&facts["text"]).matches(MARK).count(), 4, "{facts}");
            }
            "cut" => assert_eq!(facts["title"], "T".repeat(294), "{facts}"),
            "led" => assert_contains(text_of(&facts["url"]), ["token=", MARK]),
            _ => {}
        }
    }
    let refused = server.call("fetch_webpage", json!({"url": "http://good.test/away"}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(!refused.to_string().contains(BEGINNING), "{refused}");
    let facts = redacted(&mut server, "web_search", json!({"query": "boats"}));
    facts.assert_fields(
        json!({"results.0.title": format!("About {MARK}"), "results.0.snippet": "s".repeat(494)}),
    );
    let record = server.call("audit_execution", json!({"limit": 40, "detail": true}));
    assert!(!record.to_string().contains(BEGINNING), "{record}");
}

/// claim: [WEB-10]
#[test]
fn a_secret_repeated_by_a_page_in_the_browser_is_redacted() {
    let Some(world) = World::enter() else { return };
    if !is_available() {
        return;
    }
    let lines = PEM.replace('\n', "<br>");
    // Errors are cut at 300 characters and names in the accessibility tree at 120, here inside the secret.
    let page = format!(
        "<html><head><title>start</title></head><body><main id=app></main><script>const secret = '{SECRET}';\
         document.title = 'Of ' + secret; document.getElementById('app').innerHTML = '<p>It is ' + secret + ' there.</p><p>{lines}</p>' +\
         '<button aria-label=\"' + 'b'.repeat(115) + secret + '\">x</button><h2>Head ' + secret + '</h2>';\
         history.replaceState(null, '', '/app?token=' + secret);\
         console.error('Said ' + secret); console.error('e'.repeat(295) + secret); throw new Error(secret);</script></body></html>"
    );
    world.page("good.test/app", answer("text/html", page));
    let mut server = serve(&world);
    let wanted = json!({"url": "http://good.test/app", "accessibility_tree": true, "timeout_ms": 20000});
    let facts = redacted(&mut server, "browser_fetch", wanted);
    assert_eq!(facts["title"], format!("Of {MARK}"), "{facts}");
    assert_contains(
        text_of(&facts["text"]),
        [
            &format!("It is {MARK} there."),
            &format!("- heading \"Head {MARK}\""),
            "- button \"bbbbb",
        ],
    );
    assert_contains(
        facts["console_errors"].to_string(),
        [&format!("Said {MARK}"), "eeeee"],
    );
    assert_contains(text_of(&facts["url"]), ["token=", MARK]);
}
