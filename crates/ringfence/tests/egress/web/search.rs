//! Searches: recorded provider responses, a key that is sent only to its provider, and a real SearXNG.

use super::{answer, with_head};
use crate::{client::*, egress::World};
use std::{
    path::Path,
    process::{Command, Stdio},
};

const KEY: &str = "K3yOfTheSt0ry-brave";

fn serve(world: &World, providers: &str) -> Server {
    world.serve([
        ("RINGFENCE_TOOLSETS", "web,observe"),
        ("RINGFENCE_WEB_SEARCH", providers),
        ("RINGFENCE_VAULT_STORE", "env"),
        ("RINGFENCE_VAULT_ALLOW", "default/BRAVE"),
        ("RINGFENCE_SECRET_DEFAULT_BRAVE", KEY),
    ])
}

/// Returns the error message of a search that no provider answered.
fn search_error(server: &mut Server) -> String {
    let error = server.call_error("web_search", json!({"query": "x"}), "page_unavailable");
    text_of(&error["message"]).to_owned()
}

fn outcomes(found: &Value) -> Vec<String> {
    let tried = found["tried"].as_array().unwrap().iter();
    tried
        .map(|one| format!("{} {}", text_of(&one["provider"]), text_of(&one["outcome"])))
        .collect()
}

/// claim: [WEB-7]
#[test]
fn search_providers_are_tried_in_order_and_each_outcome_is_reported() {
    let Some(world) = World::enter() else { return };
    let blocked = "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    world.page("duck.pages.test/html", blocked);
    let silent = json!({"results": [], "unresponsive_engines": [["google", "CAPTCHA"]]});
    world.page(
        "searx.pages.test/search",
        answer("application/json", silent.to_string()),
    );
    let found = json!({"query": {}, "web": {"results": [
        {"url": "https://a.test/", "title": "The <strong>first</strong>", "description": format!("words {KEY}"), "page_age": "2025-01-02"},
        {"url": "https://a.test", "title": "again"},
        {"url": "javascript:alert(1)", "title": "no"},
        {"url": "https://b.test/", "title": "The second"},
    ]}});
    world.page(
        "brave.pages.test/res/v1/web/search",
        answer("application/json", found.to_string()),
    );
    let providers = "duckduckgo=http://duck.pages.test/;searxng=http://searx.pages.test/;brave=http://brave.pages.test/ key BRAVE";
    let mut server = serve(&world, providers);
    let said = server.call("web_search", json!({"query": "a harbour", "recency": "week"}));
    let facts = &said["structuredContent"];
    assert_eq!(
        outcomes(facts),
        [
            "duckduckgo provider_blocked",
            "searxng provider_blocked",
            "brave ok"
        ],
        "{said}"
    );
    assert_eq!(facts["provider"], "brave");
    assert_eq!(
        texts_of(&facts["results"], "url"),
        ["https://a.test/", "https://b.test/"]
    );
    assert_contains(
        said.to_string(),
        ["The first", "2025-01-02", text_of(&facts["mark"])],
    );
    // The provider repeats the key, and the result does not contain it.
    assert!(!said.to_string().contains(KEY), "{said}");
    let contacts = world.contacts();
    assert!(
        contacts
            .iter()
            .any(|contact| contact.contains("/res/v1/web/search?q=a+harbour&count=10&freshness=pw")),
        "{contacts:?}"
    );
    // A provider that refused is skipped for a while, and results are cached.
    let again = server.facts("web_search", json!({"query": "another harbour"}));
    assert_eq!(
        outcomes(&again),
        ["duckduckgo backing_off", "searxng backing_off", "brave ok"],
        "{again}"
    );
    let cached = server.facts("web_search", json!({"query": "another harbour"}));
    assert_eq!(cached["cached"], true);
    let record = server
        .call("audit_execution", json!({"limit": 20, "detail": true}))
        .to_string();
    assert_contains(&record, ["web.searched"]);
    assert_lacks(&record, [KEY]);
}

/// claim: [WEB-7]
#[test]
fn a_search_key_is_sent_only_to_its_provider() {
    let Some(world) = World::enter() else { return };
    // A provider that redirects requests, and with them the key, to another host.
    world.page(
        "brave.pages.test/res/v1/web/search",
        super::redirect_to("http://other.test/echo"),
    );
    let mut server = serve(
        &world,
        "brave=http://brave.pages.test/ key BRAVE;tavily=http://brave.pages.test/ key ABSENT",
    );
    assert_contains(
        search_error(&mut server),
        [
            "no search provider has answered",
            "brave: provider_changed",
            "tavily: key_missing",
        ],
    );
    let contacts = world.contacts();
    assert!(
        contacts
            .iter()
            .any(|contact| contact.contains("brave.pages.test")),
        "{contacts:?}"
    );
    assert!(
        !contacts
            .iter()
            .any(|contact| contact.contains("other.test") || contact.contains("93.184.216.35")),
        "{contacts:?}"
    );
    for (head, outcome) in [
        ("HTTP/1.1 429 Too Many Requests", "quota"),
        ("HTTP/1.1 401 Unauthorized", "key_refused"),
        ("HTTP/1.1 503 Unavailable", "unreachable"),
    ] {
        let answer = format!("{head}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        world.page("brave.pages.test/res/v1/web/search", answer);
        let mut server = serve(&world, "brave=http://brave.pages.test/ key BRAVE");
        assert_contains(search_error(&mut server), [&format!("brave: {outcome}")]);
    }
    // The control: the provider answers a search that carries the key.
    world.page(
        "brave.pages.test/res/v1/web/search",
        with_head("Content-Type: application/json", r#"{"query":{}}"#),
    );
    let mut server = serve(&world, "brave=http://brave.pages.test/ key BRAVE");
    let found = server.facts("web_search", json!({"query": "x"}));
    assert_eq!(outcomes(&found), ["brave no_results"], "{found}");
}

#[test]
fn a_real_searxng_instance_answers_a_search() {
    let Some(world) = World::enter() else { return };
    if !has_capability("searx", || {
        Path::new("/usr/lib/python3/dist-packages/searx/webapp.py").is_file()
    }) {
        return;
    }
    let answer_of_engine =
        json!([{"url": "https://found.test/a", "title": "Found a harbour", "content": "by the engine"}]);
    world.page(
        "good.test/engine",
        answer("application/json", answer_of_engine.to_string()),
    );
    let file = world.directory.join("searx.yml");
    std::fs::write(&file, include_str!("searx.yml")).unwrap();
    // serve_searx.py resolves the host name of the engine to its address in the test internet.
    let mut searx = Command::new("/usr/bin/python3")
        .args(["-c", include_str!("serve_searx.py")])
        .env("SEARX_SETTINGS_PATH", &file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually(|| std::net::TcpStream::connect("127.0.0.1:8888").is_ok());
    let mut server = serve(&world, "searxng=http://127.0.0.1:8888/");
    let found = server.facts("web_search", json!({"query": "harbour"}));
    drop(searx.kill());
    drop(searx.wait());
    assert_eq!(outcomes(&found), ["searxng ok"], "{found}");
    assert_contains(
        found.to_string(),
        ["https://found.test/a", "Found a harbour", "by the engine"],
    );
}
