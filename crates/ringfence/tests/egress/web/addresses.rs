//! Every spelling of a non-public address through every route: none reaches the machine that the test runs on, and
//! every route reaches a public host, which is the control.

use super::{answer, article, fetch, redirect_to, serve};
use crate::{client::*, egress::World};
use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The text after `http://`, up to the end of the authority.
const SPELLINGS: [&str; 62] = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "0177.0.0.1",
    "0x7f.0.0.1",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "127.0.0.1.",
    "127.0.0.2",
    "127.127.127.127",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "sub.localhost",
    "0.0.0.0",
    "0",
    "0x0",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[fc00::1]",
    "[fec0::1]",
    "[fd00:ec2::254]",
    "①②⑦.⓪.⓪.①",
    "１２７.0.0.1",
    "127。0。0。1",
    "%31%32%37.0.0.1",
    "127.0.0.1%00.good.test",
    "127.0.0.1%2f@good.test",
    "user@127.0.0.1",
    "good.test@127.0.0.1",
    "good.test:80@127.0.0.1",
    "good.test\\@127.0.0.1",
    "127.0.0.1\\@good.test",
    "127.0.0.1:80#@good.test",
    "127.0.0.1\t",
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "169.254.43518",
    "0251.0376.0251.0376",
    "[::ffff:169.254.169.254]",
    "metadata.test",
    "sneaky.test",
    "10.7.7.7",
    "167905031",
    "10.0x70707",
    "192.168.0.1",
    "100.100.100.200",
    "198.18.0.1",
    "255.255.255.255",
];

/// Listeners on loopback and private addresses of the machine, which nothing may reach.
struct Canary(Arc<AtomicUsize>);

impl Canary {
    fn plant() -> Self {
        // Two listed addresses that no interface has are added to `lo`, so that a connection to them would be counted.
        for address in ["192.168.0.1", "100.100.100.200"] {
            let done = Command::new("ip")
                .args(["address", "replace", &format!("{address}/32"), "dev", "lo"])
                .status();
            assert!(done.unwrap().success());
        }
        let contacts = Arc::new(AtomicUsize::new(0));
        let addresses = [
            "127.0.0.1",
            "127.0.0.2",
            "127.127.127.127",
            "::1",
            "192.168.0.1",
            "100.100.100.200",
        ];
        for (address, port) in addresses
            .iter()
            .flat_map(|address| [(address, 80), (address, 443)])
        {
            let listener = TcpListener::bind(SocketAddr::new(address.parse().unwrap(), port)).unwrap();
            let counter = contacts.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    counter.fetch_add(1, Ordering::SeqCst);
                    drop(stream);
                }
            });
        }
        let canary = Self(contacts);
        // The control of the canary: it counts connections that reach it.
        for address in ["127.0.0.1:80", "[::1]:443", "192.168.0.1:80"] {
            drop(TcpStream::connect(address).unwrap());
        }
        eventually(|| canary.0.load(Ordering::SeqCst) == 3);
        canary.0.store(0, Ordering::SeqCst);
        canary
    }

    /// Asserts that there was no connection to these listeners or to the private addresses of the test internet.
    /// Returns all contacts since the last call.
    fn assert_no_contact(&self, world: &World, route: &str) -> Vec<String> {
        let contacts = world.contacts();
        let private = contacts
            .iter()
            .filter(|contact| contact.starts_with("tcp 10.") || contact.starts_with("tcp 169.254."));
        let private: Vec<&String> = private.collect();
        assert!(private.is_empty(), "{route}: {private:?}");
        assert_eq!(self.0.load(Ordering::SeqCst), 0, "{route}");
        contacts
    }
}

/// Asserts that fetching each URL fails.
fn assert_all_fail(server: &mut Server, urls: impl IntoIterator<Item = String>) {
    for url in urls {
        let said = fetch(server, &url);
        assert_eq!(said["isError"], true, "{url}: {said}");
    }
}

fn reached(contacts: &[String], host: &str) -> bool {
    contacts
        .iter()
        .any(|contact| contact.starts_with("GET ") && contact.ends_with(host))
}

/// claim: [WEB-1]
#[test]
fn no_spelling_of_a_non_public_address_is_reached_by_a_fetch() {
    let Some(world) = World::enter() else { return };
    let canary = Canary::plant();
    let mut server = serve(&world);
    let direct = SPELLINGS.iter().map(|spelling| format!("http://{spelling}/"));
    assert_all_fail(&mut server, direct.clone());
    assert_all_fail(
        &mut server,
        SPELLINGS
            .iter()
            .take(20)
            .map(|spelling| format!("https://{spelling}/")),
    );
    fetch(&mut server, "http://pages.test/control");
    assert!(reached(&canary.assert_no_contact(&world, "direct"), "pages.test"));

    for (number, url) in direct.clone().enumerate() {
        world.page(&format!("r{number}.pages.test/go"), redirect_to(&url));
    }
    world.page("r.pages.test/go", redirect_to("http://pages.test/control"));
    assert_all_fail(
        &mut server,
        (0..SPELLINGS.len()).map(|number| format!("http://r{number}.pages.test/go")),
    );
    fetch(&mut server, "http://r.pages.test/go");
    let contacts = canary.assert_no_contact(&world, "redirect");
    assert!(
        reached(&contacts, " pages.test") && reached(&contacts, "r7.pages.test"),
        "{contacts:?}"
    );

    // A PDF whose links lead there: reading it dials nothing, and following the links is refused.
    let links: Vec<String> = direct.clone().collect();
    let words = links
        .iter()
        .filter(|link| link.is_ascii() && !link.contains(['\\', '(', '\t']))
        .cloned()
        .collect::<Vec<_>>();
    world.page("pages.test/paper", answer("application/pdf", pdf(&words)));
    let paper = fetch(&mut server, "http://pages.test/paper");
    let paper = text_of(&paper["structuredContent"]["text"]).to_owned();
    assert!(paper.contains("http://2130706433/"), "{paper}");
    let found: Vec<String> = paper
        .split_whitespace()
        .filter(|word| word.starts_with("http://") && !word.contains("pages.test"))
        .map(str::to_owned)
        .collect();
    assert!(found.len() >= 45, "{found:?}");
    assert_all_fail(&mut server, found);
    assert!(reached(&canary.assert_no_contact(&world, "PDF"), " pages.test"));
    println!(
        "| {} spellings | direct, redirect, PDF | 0 reached | controls reached |",
        SPELLINGS.len()
    );
}

/// claim: [WEB-1]
#[test]
fn robots_redirects_and_search_results_reach_no_non_public_address() {
    let Some(world) = World::enter() else { return };
    let canary = Canary::plant();
    let results: Vec<Value> = SPELLINGS
        .iter()
        .map(|spelling| json!({"url": format!("http://{spelling}/"), "title": "t", "content": "c"}))
        .chain([json!({"url": "http://pages.test/control", "title": "control", "content": "c"})])
        .collect();
    for (page, results) in results.chunks(15).enumerate() {
        world.page(
            &format!("s{page}.pages.test/search"),
            answer("application/json", json!({"results": results}).to_string()),
        );
    }
    let mut followed = 0;
    for page in 0..results.len().div_ceil(15) {
        let mut server = world.serve([
            (
                "RINGFENCE_WEB_SEARCH",
                &format!("searxng=http://s{page}.pages.test/"),
            ),
            ("RINGFENCE_WEB_ROBOTS", "false"),
        ]);
        let found = server.facts("web_search", json!({"query": "x", "max_results": 20}));
        for hit in found["results"].as_array().unwrap() {
            let url = text_of(&hit["url"]).to_owned();
            let said = fetch(&mut server, &url);
            assert_eq!(
                said["isError"] == true,
                !url.contains("pages.test"),
                "{url}: {said}"
            );
            followed += 1;
        }
    }
    assert!(followed >= 25, "{followed}");
    assert!(reached(
        &canary.assert_no_contact(&world, "search result"),
        " pages.test"
    ));

    for (number, spelling) in SPELLINGS.iter().enumerate() {
        world.page(
            &format!("b{number}.pages.test/robots.txt"),
            redirect_to(&format!("http://{spelling}/robots.txt")),
        );
    }
    world.page(
        "b.pages.test/robots.txt",
        redirect_to("http://pages.test/robots.txt"),
    );
    let mut server = world.serve([]);
    for number in 0..SPELLINGS.len() {
        fetch(&mut server, &format!("http://b{number}.pages.test/"));
    }
    fetch(&mut server, "http://b.pages.test/");
    let contacts = canary.assert_no_contact(&world, "robots");
    assert!(
        reached(&contacts, " pages.test") && reached(&contacts, "b7.pages.test"),
        "{contacts:?}"
    );
    println!(
        "| {} spellings | search result, robots.txt | 0 reached | controls reached |",
        SPELLINGS.len()
    );
}

/// claim: [WEB-1] [WEB-6]
#[test]
#[expect(clippy::too_many_lines, reason = "one page with every route")]
fn a_page_in_the_browser_reaches_no_non_public_address() {
    let Some(world) = World::enter() else { return };
    if !super::browser::is_available() {
        return;
    }
    let canary = Canary::plant();
    let mut server = serve(&world);
    let urls: Vec<String> = SPELLINGS
        .iter()
        .map(|spelling| format!("http://{spelling}/"))
        .collect();
    let control = "http://control.pages.test/";
    let pages = |route: &str, body: &str| {
        world.page(
            &format!("{route}.pages.test/index"),
            answer("text/html; charset=utf-8", article(route, body)),
        );
    };
    let all: Vec<&str> = urls.iter().map(String::as_str).chain([control]).collect();
    let list = json!(all);
    pages(
        "image",
        &format!(
            "<script>for (const u of {list}) {{ new Image().src = u; fetch(u).catch(() => 0); }}</script>"
        ),
    );
    pages(
        "socket",
        &format!(
            "<script>for (const u of {list}) {{ try {{ const s = new WebSocket(u.replace('http', 'ws')); if (u == '{control}') s.onclose = () => document.body.append(Object.assign(document.createElement('p'), {{id: 'tried'}})) }} catch {{}} }}</script>"
        ),
    );
    let mut frames = String::new();
    for (number, url) in all.iter().enumerate() {
        let refresh = format!(
            "<meta http-equiv=refresh content=\"0;url={}\">",
            url.replace('"', "&quot;")
        );
        world.page(
            &format!("frame.pages.test/{number}"),
            answer("text/html; charset=utf-8", refresh),
        );
        frames += &format!("<iframe src=http://frame.pages.test/{number}></iframe>");
    }
    // The last frame is the control: it loads once, and again after the refresh.
    frames += "<script>let loads = 0; const all = document.querySelectorAll('iframe'); all[all.length - 1].onload = () => {\
               if (++loads == 2) document.body.append(Object.assign(document.createElement('p'), {id: 'tried'})) }</script>";
    pages("refresh", &frames);
    for route in ["image", "socket", "refresh"] {
        let mut wanted = json!({"url": format!("http://{route}.pages.test/"), "timeout_ms": 20000});
        if route != "image" {
            // Chromium delays sockets after many failures, and frames load slowly; the control is the last.
            wanted["wait_for_selector"] = json!("#tried");
        }
        let said = server.call("browser_fetch", wanted);
        assert_ne!(said["isError"], true, "{route}: {said}");
        assert!(
            text_of(&said["structuredContent"]["text"]).contains("The harbour"),
            "{route}: {said}"
        );
        let contacts = canary.assert_no_contact(&world, route);
        assert!(reached(&contacts, "control.pages.test"), "{route}: {contacts:?}");
    }
    for url in [
        "http://127.0.0.1/",
        "http://metadata.test/",
        "http://10.7.7.7/",
        "http://[::1]/",
        "http://nowhere.invalid/",
    ] {
        let said = server.call("browser_fetch", json!({"url": url, "timeout_ms": 10000}));
        // Egress answers HTTP with its own denial, which is not the page.
        assert_eq!(said["isError"], true, "{url}: {said}");
    }
    canary.assert_no_contact(&world, "browser");
    println!(
        "| {} spellings | subresource, WebSocket, meta refresh | 0 reached | controls reached |",
        SPELLINGS.len()
    );
}

/// Returns a PDF with one line per text.
fn pdf(lines: &[String]) -> String {
    let shown: String = lines
        .iter()
        .map(|line| format!("({line} ) Tj 0 -9 Td "))
        .collect();
    let stream = format!("BT /F1 8 Tf 30 780 Td {shown}ET");
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [4 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R /Resources << /Font << /F1 3 0 R >> >> >>".to_owned(),
        format!("<< /Length {} >>\nstream\n{stream}\nendstream", stream.len()),
    ];
    let mut file = "%PDF-1.4\n".to_owned();
    let mut places = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        places.push(file.len());
        file += &format!("{} 0 obj\n{object}\nendobj\n", index + 1);
    }
    let table = file.len();
    file += &format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for place in places {
        file += &format!("{place:010} 00000 n \n");
    }
    file + &format!(
        "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n",
        objects.len() + 1
    )
}
