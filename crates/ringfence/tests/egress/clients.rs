//! Each client against each kind of host: what it saw, what left the machine, and which denial the result has.

use super::World;
use serde_json::Value;
use std::io::Write as _;

/// What is tried, and what has to come of it: the denial's rule, and what may have left the machine.
const CASES: [(&str, &str, Option<&str>, &[&str]); 6] = [
    (
        "allowed",
        "good.test",
        None,
        &[
            "dns good.test",
            "tcp 93.184.216.34:",
            "GET / HTTP/1.1 of good.test",
        ],
    ),
    ("denied by name", "other.test", Some("egress.name"), &[]),
    ("denied by port", "good.test:8080", Some("egress.port"), &[]),
    (
        "by address",
        "sneaky.test",
        Some("egress.address"),
        &["dns sneaky.test"],
    ),
    (
        "metadata",
        "metadata.test",
        Some("egress.address"),
        &["dns metadata.test"],
    ),
    ("raw IP", "93.184.216.34", Some("egress.no_route"), &[]),
];

/// Each with the program that fetches `SCHEME://HOST/`, and says what it got.
const CLIENTS: [(&str, &str, &str, &str); 6] = [
    (
        "Python urllib",
        "python",
        "http",
        "import urllib.request\nprint(urllib.request.urlopen('URL', timeout=10).read().decode())",
    ),
    (
        "Python TLS",
        "python",
        "https",
        "import ssl, urllib.request\nprint(urllib.request.urlopen('URL', timeout=10, context=ssl._create_unverified_context()).read().decode())",
    ),
    (
        "Node fetch",
        "node",
        "http",
        "console.log(await (await fetch('URL')).text())",
    ),
    ("curl", "shell", "http", "curl -sS --max-time 10 URL"),
    ("curl TLS", "shell", "https", "curl -sSk --max-time 10 URL"),
    (
        "bash socket",
        "shell",
        "tcp",
        "exec 3<>/dev/tcp/HOST/PORT && printf 'GET / HTTP/1.1\\r\\nHost: NAME\\r\\n\\r\\n' >&3 && cat <&3",
    ),
];

#[test]
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn the_table() {
    let world = World::new("clients");
    println!("\n| client | case | the sandbox saw | what left the machine | denial |");
    println!("|---|---|---|---|---|");
    for (client, language, scheme, program) in CLIENTS {
        for (case, host, rule, may_leave) in CASES {
            let (name, port) = host.split_once(':').unwrap_or((host, "80"));
            let url = format!("{}://{host}/", scheme.replace("tcp", "http"));
            let code = program
                .replace("URL", &url)
                .replace("HOST", name)
                .replace("PORT", port)
                .replace("NAME", host);
            let result = run(&world, language, &code);
            let left = world.heard();
            let saw = format!("{}{}", text(&result, "stdout"), text(&result, "stderr"));
            let denials: Vec<&str> = result["denials"]
                .as_array()
                .unwrap()
                .iter()
                .map(|d| d["rule"].as_str().unwrap())
                .collect();
            println!(
                "| {client} | {case} | {} | {} | {} |",
                last_line(&saw),
                left.join(", "),
                denials.join(", ")
            );
            let about = format!("{client}, {case}: {result} {left:?}");
            let is_allowed = |heard: &String| may_leave.iter().any(|may| heard.starts_with(may));
            assert!(left.iter().all(is_allowed), "left the machine: {about}");
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
    }
    // A positive control: outside of a sandbox the same address answers.
    let outside = std::process::Command::new("python3")
        .args([
            "-c",
            "import urllib.request; print(urllib.request.urlopen('http://93.184.216.35/').read())",
        ])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&outside.stdout).contains("hello from"),
        "{outside:?}"
    );
    names_alone(&world);
}

/// Questions for names, which leave for nobody, whatever is asked.
fn names_alone(world: &World) {
    world.heard();
    let code = "import socket\nfor name in ['good.test', 'other.test', 'secret-in-a-name.other.test']:\n    try:\n        print(name, socket.gethostbyname(name))\n    except OSError as error:\n        print(name, error)";
    let result = run(world, "python", code);
    let saw = text(&result, "stdout");
    assert!(
        saw.contains("good.test 198.1") && saw.matches("not known").count() == 2,
        "{result}"
    );
    assert!(
        world.heard().is_empty(),
        "nobody is asked for a name before a connection"
    );
    println!(
        "| getaddrinfo | DNS only | {} |  | egress.name |",
        saw.lines().nth(1).unwrap_or_default()
    );
}

fn run(world: &World, language: &str, code: &str) -> Value {
    let mut child = world
        .ringfence(&[
            "run",
            "-",
            "-l",
            language,
            "--json",
            "--allow",
            "good.test",
            "--allow",
            "sneaky.test",
            "--allow",
            "metadata.test",
        ])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    serde_json::from_slice(&done.stdout).unwrap()
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
