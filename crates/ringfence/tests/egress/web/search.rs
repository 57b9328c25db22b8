//! Searches: recorded answers of the providers, a key that stays with its host, and a real SearXNG.

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

/// What is said where no provider has answered.
fn refused(server: &mut Server) -> String {
    let error = server.refuses("web_search", json!({"query": "x"}), "page_unavailable");
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
fn providers_are_asked_in_their_order_and_each_says_what_came_of_it() {
    let Some(world) = World::apart() else { return };
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
    // The provider has repeated the key; nobody hears of it.
    assert!(!said.to_string().contains(KEY), "{said}");
    let heard = world.heard();
    assert!(
        heard
            .iter()
            .any(|heard| heard.contains("/res/v1/web/search?q=a+harbour&count=10&freshness=pw")),
        "{heard:?}"
    );
    // Who refused is left alone for a while, and what was found is kept.
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
fn a_key_goes_to_its_provider_and_no_further() {
    let Some(world) = World::apart() else { return };
    // A provider that sends its askers, and their keys, elsewhere.
    world.page(
        "brave.pages.test/res/v1/web/search",
        super::leads_to("http://other.test/echo"),
    );
    let mut server = serve(
        &world,
        "brave=http://brave.pages.test/ key BRAVE;tavily=http://brave.pages.test/ key ABSENT",
    );
    assert_contains(
        refused(&mut server),
        [
            "no search provider has answered",
            "brave: provider_changed",
            "tavily: key_missing",
        ],
    );
    let heard = world.heard();
    assert!(
        heard.iter().any(|heard| heard.contains("brave.pages.test")),
        "{heard:?}"
    );
    assert!(
        !heard
            .iter()
            .any(|heard| heard.contains("other.test") || heard.contains("93.184.216.35")),
        "{heard:?}"
    );
    for (head, outcome) in [
        ("HTTP/1.1 429 Too Many Requests", "quota"),
        ("HTTP/1.1 401 Unauthorized", "key_refused"),
        ("HTTP/1.1 503 Unavailable", "unreachable"),
    ] {
        let answer = format!("{head}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        world.page("brave.pages.test/res/v1/web/search", answer);
        let mut server = serve(&world, "brave=http://brave.pages.test/ key BRAVE");
        assert_contains(refused(&mut server), [&format!("brave: {outcome}")]);
    }
    // The key is sent to the host that it is for: the control.
    world.page(
        "brave.pages.test/res/v1/web/search",
        with_head("Content-Type: application/json", r#"{"query":{}}"#),
    );
    let mut server = serve(&world, "brave=http://brave.pages.test/ key BRAVE");
    let found = server.facts("web_search", json!({"query": "x"}));
    assert_eq!(outcomes(&found), ["brave no_results"], "{found}");
}

#[test]
fn a_real_searxng_is_asked() {
    let Some(world) = World::apart() else { return };
    if !has("searx", || {
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
    // Its names are asked for where those of the test are.
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
