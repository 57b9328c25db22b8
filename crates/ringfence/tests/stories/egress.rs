//! Refusals if no network access is allowed: they happen at once, and the denials name host and port if the kernel
//! reveals them.

use crate::client::*;

/// The denials in order: their `what`, and their hints.
fn denials_and_hints(done: &Value) -> (Vec<&str>, Vec<&str>) {
    let denials = list_of(&done["denials"]).iter();
    denials
        .map(|denial| (text_of(&denial["what"]), text_of(&denial["hint"])))
        .unzip()
}

/// Prints each attempt with the name of its error.
const ATTEMPTS: &str = "
import errno, socket
def attempt(name, act):
    try: print(name, act() or 'done')
    except OSError as error: print(name, errno.errorcode[error.errno])
def udp(address, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.sendto(b'x', address)
    s.recv(1)
def tcp(*address): socket.create_connection(address).close()
attempt('tcp by name', lambda: tcp('db.example', 5432))
attempt('tcp by number', lambda: tcp('10.1.2.3', 5432))
attempt('http by number', lambda: tcp('10.1.2.3', 80))
attempt('tls by number', lambda: tcp('169.254.169.254', 443))
attempt('udp by name', lambda: udp(('time.example', 123)))
attempt('udp by number', lambda: udp(('8.8.8.8', 53)))
attempt('tcp of IPv6', lambda: tcp('2001:db8::1', 5432))
attempt('udp of IPv6', lambda: udp(('2001:db8::1', 53), socket.AF_INET6))
own = socket.create_server(('127.0.0.1', 0))
attempt('own tcp', lambda: tcp(*own.getsockname()))
one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
one.bind(('127.0.0.1', 0))
attempt('own udp', lambda: other.sendto(b'x', one.getsockname()) and one.recv(1).decode())
";

/// claim: [NET-4]
#[test]
fn refused_connection_fails_at_once_and_the_denial_names_host_and_port() {
    let done = run_json("python", ATTEMPTS, &[]);
    let expected = [
        "tcp by name ECONNREFUSED",
        "tcp by number ECONNREFUSED",
        "http by number ENETUNREACH",
        "tls by number ENETUNREACH",
        "udp by name ENETUNREACH",
        "udp by number ENETUNREACH",
        "tcp of IPv6 ENETUNREACH",
        "udp of IPv6 ENETUNREACH",
        "own tcp done",
        "own udp x",
    ];
    assert_eq!(
        text_of(&done["stdout"]).lines().collect::<Vec<_>>(),
        expected,
        "{done}"
    );
    let (denied, _) = denials_and_hints(&done);
    for what in [
        "No network access to db.example:5432",
        "No network access to 10.1.2.3:5432: no rule names the address",
        "No network access to time.example",
        "No network access by UDP, by IPv6, or to an address without a name: 6 packet(s) had no route",
    ] {
        assert!(denied.contains(&what), "{what}: {done}");
    }
    assert_eq!(denied.len(), 4, "{done}");
}

/// A rule for a network and a port leaves other ports and addresses refused at once.
#[test]
fn addresses_outside_an_allowed_network_are_refused_at_once() {
    let code = ATTEMPTS.split("attempt('tcp by name'").next().unwrap().to_owned()
        + "attempt('another port', lambda: tcp('10.1.2.3', 5433))\nattempt('another address', lambda: tcp('192.0.2.1', 5432))";
    let done = run_json("python", &code, &["--allow", "10.0.0.0/8:5432"]);
    done.assert_fields(json!({"stdout": "another port ECONNREFUSED\nanother address ENETUNREACH\n"}));
    let (denied, _) = denials_and_hints(&done);
    assert!(
        denied[0].starts_with("No network access to 10.1.2.3:5433: "),
        "{done}"
    );
}

/// Each tool tries its index once and gives up.
#[test]
fn pip_and_npm_fail_at_once_and_the_denial_names_the_package_flag() {
    for (command, what) in [
        ("pip install cowsay", "No network access to pypi.org:443"),
        (
            "npm init -y >/dev/null && npm install left-pad",
            "No network access to registry.npmjs.org:443",
        ),
        (
            "npm install left-pad",
            "No network access to registry.npmjs.org:443",
        ),
    ] {
        let done = run_json("shell", command, &[]);
        let (denied, hints) = denials_and_hints(&done);
        assert_eq!(denied, [what], "{command}: {done}");
        assert!(hints[0].starts_with("Name packages in `--package`"), "{done}");
        assert_eq!(done["success"], false, "{done}");
    }
}
