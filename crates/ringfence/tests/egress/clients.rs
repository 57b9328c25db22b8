//! Each client against each kind of host: the output of the client, the traffic that left the sandbox, and the denials.

use super::{
    HERE, World,
    packages::{self, Packages},
    run_in_own_network,
    world::User,
};
use crate::client::*;

/// Name and host of each case, the rule of the expected denial, and the traffic that may leave the sandbox.
#[rustfmt::skip]
const CASES: [(&str, &str, Option<&str>, &[&str]); 7] = [
    ("allowed", "good.test", None, &["dns good.test", "tcp 93.184.216.34:", "GET /"]),
    ("denied by name", "other.test", Some("egress.name"), &[]),
    ("denied by port", "good.test:8080", Some("egress.port"), &[]),
    ("by address", "sneaky.test", Some("egress.address"), &["dns sneaky.test"]),
    ("metadata", "metadata.test", Some("egress.address"), &["dns metadata.test"]),
    ("raw IP", "93.184.216.34", Some("egress.no_route"), &[]),
    ("DNS only", "encoded-data.other.test", Some("egress.name"), &[]),
];

/// A program that fetches `URL`, which is `SCHEME://HOST/`, and prints the response.
struct Client {
    name: &'static str,
    language: &'static str,
    scheme: &'static str,
    /// The package that it needs.
    package: Option<&'static str>,
    program: &'static str,
}

const fn client(
    name: &'static str,
    language: &'static str,
    scheme: &'static str,
    program: &'static str,
) -> Client {
    Client {
        name,
        language,
        scheme,
        package: None,
        program,
    }
}

const fn with(package: &'static str, client: Client) -> Client {
    Client {
        package: Some(package),
        ..client
    }
}

#[rustfmt::skip]
const CLIENTS: [Client; 12] = [
    client("Python urllib", "python", "http",
        "import urllib.request\nprint(urllib.request.urlopen('URL', timeout=10).read().decode())"),
    client("Python TLS", "python", "https",
        "import ssl, urllib.request\nprint(urllib.request.urlopen('URL', timeout=10, context=ssl._create_unverified_context()).read().decode())"),
    with("requests", client("Python requests", "python", "http",
        "import requests\nprint(requests.get('URL', timeout=10).text)")),
    with("requests", client("requests TLS", "python", "https",
        "import requests, urllib3\nurllib3.disable_warnings()\nprint(requests.get('URL', timeout=10, verify=False).text)")),
    with("httpx", client("Python httpx TLS", "python", "https",
        "import httpx\nprint(httpx.get('URL', timeout=10, verify=False).text)")),
    client("Node fetch", "node", "http", "console.log(await (await fetch('URL')).text())"),
    client("npm view", "shell", "http",
        "npm view hello description --registry=URL --fetch-retries=0 --fetch-timeout=10000 --no-update-notifier"),
    client("curl", "shell", "http", "curl -sS --max-time 10 URL"),
    client("curl TLS", "shell", "https", "curl -sSk --max-time 10 URL"),
    client("git clone", "shell", "http", "git clone -q URLrepo.git clone && cat clone/README"),
    client("git clone TLS", "shell", "https",
        "git -c http.sslVerify=false clone -q URLrepo.git clone && cat clone/README"),
    client("bash socket", "shell", "tcp",
        "exec 3<>/dev/tcp/HOST/PORT && printf 'GET / HTTP/1.1\\r\\nHost: NAME\\r\\n\\r\\n' >&3 && cat <&3"),
];

/// claim: [NET-4]
#[test]
fn every_client_reaches_only_allowed_hosts() {
    run_table(User::Same, "as this user");
}

/// claim: [NET-4]
#[test]
fn every_client_of_an_unprivileged_user_reaches_only_allowed_hosts() {
    if std::env::var_os(HERE).is_some() || is_root() {
        run_table(User::Nobody, "as uid 65534");
    }
}

fn run_table(user: User, who: &str) {
    if std::env::var_os(HERE).is_some() {
        table(&World::start(user), who);
    } else {
        run_in_own_network(Packages::install(user).as_ref());
    }
}

fn table(world: &World, who: &str) {
    println!("\n| {who}: client | case | output in the sandbox | contacts outside | denial |");
    println!("|---|---|---|---|---|");
    for client in &CLIENTS {
        if client.package.is_some() && !packages::are_installed() {
            println!("| {} | not run: there is no index | | | |", client.name);
            continue;
        }
        for case in CASES {
            judge(world, client, case);
        }
    }
    // Positive control: outside of a sandbox, the same address answers.
    let outside = std::process::Command::new("python3")
        .args([
            "-c",
            "import urllib.request; print(urllib.request.urlopen('http://93.184.216.35/').read())",
        ])
        .output()
        .unwrap();
    assert_contains(stdout_of(&outside), ["hello from"]);
    assert_resolving_sends_no_query(world);
}

fn judge(world: &World, client: &Client, (case, host, rule, may_leave): (&str, &str, Option<&str>, &[&str])) {
    let (name, port) = host.split_once(':').unwrap_or((host, "80"));
    let url = format!("{}://{host}/", client.scheme.replace("tcp", "http"));
    let code = client
        .program
        .replace("URL", &url)
        .replace("HOST", name)
        .replace("PORT", port)
        .replace("NAME", host);
    let result = run(world, client.language, client.package, &code);
    let left = world.contacts();
    let saw = format!("{}{}", text(&result, "stdout"), text(&result, "stderr"));
    let denials = texts_of(&result["denials"], "rule");
    println!(
        "| {} | {case} | {} | {} | {} |",
        client.name,
        last_line(&saw),
        left.join(", "),
        denials.join(", ")
    );
    let about = format!("{}, {case}: {result} {left:?}", client.name);
    let is_allowed = |contact: &String| {
        may_leave.iter().any(|may| contact.starts_with(may))
            && (!contact.starts_with("GET ") || contact.ends_with(" of good.test"))
    };
    assert!(left.iter().all(is_allowed), "left the sandbox: {about}");
    match rule {
        None => assert!(
            saw.contains("hello from good.test") && denials.is_empty(),
            "{about}"
        ),
        Some(rule) => {
            assert!(!saw.contains("hello from"), "{about}");
            assert!(denials.contains(&rule), "{about}");
        }
    }
}

/// Checks that resolving a name sends no query out of the sandbox, for allowed and denied names.
fn assert_resolving_sends_no_query(world: &World) {
    world.contacts();
    let code = "import socket\nfor name in ['good.test', 'other.test', 'secret-in-a-name.other.test']:\n    try:\n        print(name, socket.gethostbyname(name))\n    except OSError as error:\n        print(name, error)";
    let result = run(world, "python", None, code);
    let saw = text(&result, "stdout");
    assert!(saw.matches(".test 198.1").count() == 3, "{result}");
    assert!(world.contacts().is_empty(), "resolving a name sends no query");
    println!(
        "| getaddrinfo | DNS only | {} |  | egress.name |",
        saw.lines().nth(1).unwrap_or_default()
    );
}

fn run(world: &World, language: &str, package: Option<&str>, code: &str) -> Value {
    let mut words = vec!["run", "-", "-l", language, "--json"];
    for host in ["good.test", "sneaky.test", "metadata.test"] {
        words.extend(["--allow", host]);
    }
    words.extend(package.into_iter().flat_map(|package| ["--package", package]));
    let mut command = world.ringfence(&words);
    packages::configure(&mut command);
    json_of(&run_with_stdin(command, code))
}

fn text<'a>(result: &'a Value, stream: &str) -> &'a str {
    result[stream].as_str().unwrap()
}

fn last_line(text: &str) -> String {
    let line = text
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or_default();
    line.chars()
        .take(90)
        .map(|c| if c == '|' { '/' } else { c })
        .collect()
}
