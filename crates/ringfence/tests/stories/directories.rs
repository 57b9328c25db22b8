//! Directories put and got as tar archives, through the tools. Python's `tarfile` writes and reads the archives in a
//! sandbox.

use crate::client::*;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{fs, os::unix::fs::PermissionsExt};

/// Prelude of the programs that write archives: `add` adds one entry, `archive` prints the archive that `fill` fills.
const WRITER: &str = "import base64, io, tarfile
def add(tar, name, content=b'', **more):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for key, value in more.items():
        setattr(entry, key, value)
    tar.addfile(entry, io.BytesIO(content))
def archive(fill, mode='w'):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.GNU_FORMAT) as tar:
        fill(tar)
    print(base64.b64encode(out.getvalue()).decode())
";

/// The archives that this program prints, one per line, in base64.
fn archives(server: &mut Server, code: &str) -> Vec<String> {
    let made = server.execute("python", &format!("{WRITER}{code}"));
    assert_eq!(made["success"], true, "{made}");
    let lines = text_of(&made["stdout"]).lines();
    lines.map(str::to_owned).collect()
}

fn put(server: &mut Server, mut arguments: Value, base64: &str) -> Value {
    arguments["archive"] = json!(true);
    arguments["base64"] = json!(base64);
    server.facts("put_file", arguments)
}

/// The names that Python finds in an archive from `get_file`, and the content of the file `new` in it.
fn names_in(server: &mut Server, got: &Value) -> String {
    let code = format!(
        "import base64, io, tarfile\ntar = tarfile.open(fileobj=io.BytesIO(base64.b64decode({})))\n\
         print(sorted(tar.getnames()), tar.extractfile('new').read())",
        got["base64"]
    );
    let read = server.execute("python", &code);
    text_of(&read["stdout"]).to_owned()
}

/// claim: [WS-5]
#[test]
fn directory_is_put_and_got_as_an_archive() {
    let mut server = Server::with_full_output();
    let made = archives(
        &mut server,
        "def fill(tar):
    add(tar, 'project', type=tarfile.DIRTYPE, mode=0o755)
    add(tar, 'project/tool', b'#!/bin/sh\\necho it runs\\n', mode=0o6755)
    add(tar, 'project/data/in.csv', b'a,b\\n')
archive(fill)
archive(fill, 'w:gz')",
    );
    for (archive, arguments) in made.iter().zip([json!({}), json!({"path": "deep/er"})]) {
        let put = put(&mut server, arguments, archive);
        put.assert_fields(json!({"files": 2, "size_bytes": 27}));
    }
    let root = state_dir().join("workspaces/default");
    let mode = fs::metadata(root.join("deep/er/project/tool"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o755, "set-id bits are removed");
    let ran =
        server.execute_in_workspace("./project/tool; echo new > project/new; ln -s /etc/passwd project/link");
    assert_eq!(ran["stdout"], "it runs\n", "{ran}");

    let got = server.facts("get_file", json!({"path": "project", "archive": true}));
    assert_eq!(got["left_out"], json!(["project/link"]), "{got}");
    assert_eq!(
        names_in(&mut server, &got),
        "['data', 'data/in.csv', 'new', 'tool'] b'new\\n'\n"
    );
    assert_restorable(&mut server, text_of(&got["base64"]));
}

/// Puts the archive into a new directory, and asserts that it has exactly the entries of the archive.
fn assert_restorable(server: &mut Server, archive: &str) {
    let back = put(server, json!({"path": "copy"}), archive);
    assert_eq!(back["files"], 3, "{back}");
    let listed = server.facts("list_files", json!({"path": "copy"}));
    assert_eq!(
        texts_of(&listed["files"], "path"),
        ["copy/data", "copy/data/in.csv", "copy/new", "copy/tool"]
    );
    let all = server.call_ok("get_file", json!({"path": ".", "archive": true}));
    all.assert_fields(json!({"path": "."}));
    let records = server.audit_records("file.read");
    assert_eq!(records[0]["details"]["archive"], true, "{records:?}");
}

/// claim: [WS-5]
#[test]
fn archive_with_one_bad_entry_is_refused_whole() {
    let mut server = Server::with_full_output();
    let bad = [
        ("'../canary'", "its name"),
        ("'a/../../canary'", "its name"),
        ("'/tmp/canary'", "its name"),
        ("'a\\\\b'", "its name"),
        ("'link', type=tarfile.SYMTYPE, linkname='/etc/passwd'", "links"),
        ("'link', type=tarfile.LNKTYPE, linkname='good'", "links"),
        ("'dev', type=tarfile.CHRTYPE, devmajor=1, devminor=3", "devices"),
        ("'fifo', type=tarfile.FIFOTYPE", "devices and FIFOs"),
        ("'good'", "same name"),
        ("'GOOD'", "is refused"),
    ];
    let mut code = String::new();
    for (entry, _) in bad {
        code += &format!("archive(lambda tar: (add(tar, 'good', b'x'), add(tar, {entry})))\n");
    }
    code += "archive(lambda tar: add(tar, 'zeros', bytes(300 << 20)), 'w:gz')\n";
    code += "archive(lambda tar: [add(tar, str(n)) for n in range(10_001)], 'w:gz')\n";
    let made = archives(&mut server, &code);
    assert_eq!(made.len(), bad.len() + 2);
    let part = bad
        .iter()
        .map(|(_, part)| *part)
        .chain(["unpacks to more", "more than 10000"]);
    for (archive, part) in made.iter().zip(part) {
        let refused = put(&mut server, json!({}), archive);
        assert_eq!(refused["code"], "invalid_argument", "{part}: {refused}");
        refused.assert_text("message", [part]);
    }
    let listed = server.facts("list_files", json!({}));
    assert_eq!(listed["files"], json!([]), "{listed}");
    for (arguments, code) in [
        (
            json!({"archive": true, "base64": STANDARD.encode("noise")}),
            "invalid_argument",
        ),
        (
            json!({"archive": true, "base64": "no base64"}),
            "invalid_argument",
        ),
        (json!({"archive": true, "text": "x"}), "invalid_argument"),
        (
            json!({"archive": true, "path": "../x", "base64": made[0]}),
            "invalid_argument",
        ),
        (json!({"text": "a file without a name"}), "invalid_argument"),
    ] {
        let refused = server.facts("put_file", arguments.clone());
        assert_eq!(refused["code"], code, "{arguments}: {refused}");
    }
    server.call_error(
        "get_file",
        json!({"path": "nowhere", "archive": true}),
        "not_found",
    );
}

/// claim: [WS-5]
#[test]
fn archive_is_limited_by_the_disk_limit_and_the_response_size() {
    let mut server = Server::with_config("text_max: 1048576\nlimits:\n  disk_mb: 8\n");
    let made = archives(
        &mut server,
        "archive(lambda tar: add(tar, 'large', bytes(5 << 20)), 'w:gz')
archive(lambda tar: [add(tar, f'{n:05}') for n in range(2_000)], 'w:gz')
archive(lambda tar: add(tar, 'fits', bytes(3 << 20)), 'w:gz')",
    );
    for archive in &made[..2] {
        let refused = put(&mut server, json!({}), archive);
        assert_eq!(refused["code"], "invalid_argument", "{refused}");
    }
    let fits = put(&mut server, json!({}), &made[2]);
    assert_eq!(fits["success"], true, "{fits}");
    let got = server.facts("get_file", json!({"archive": true}));
    assert_eq!(got["size_bytes"], (3 << 20) + 512 + 1024, "{got}");
    // Headers count, too: an archive of many empty files consists only of headers.
    let mut plenty = Server::with_full_output();
    let many = archives(
        &mut plenty,
        "archive(lambda tar: [add(tar, f'{n:05}') for n in range(9_000)], 'w:gz')",
    );
    assert_eq!(put(&mut plenty, json!({}), &many[0])["files"], 9_000);
    plenty.call_error("get_file", json!({"archive": true}), "invalid_argument");
}

/// claim: [WS-5]
#[test]
fn archive_of_a_session_has_its_secrets_redacted() {
    let mut server = Server::start();
    // After its first answer the server can be reached from the command line.
    assert_eq!(server.execute("shell", "echo up")["stdout"], "up\n");
    let stored = run_with_stdin(ringfence(&["vault", "add", "TOKEN"]), "hunter2-hunter2");
    assert!(stored.status.success(), "{stored:?}");
    let arguments = json!({"language": "python", "secrets": ["TOKEN"]});
    let session = server.facts("create_session", arguments);
    let id = &session["session_id"];
    let wrote = server.eval(id, "import os\nt = os.environ['TOKEN']\nopen('a', 'w').write(f'before {t} after')\nopen(t, 'w').close()\nopen('b', 'w').write('b')");
    assert_eq!(wrote["success"], true, "{wrote}");
    let got = server.facts("get_file", json!({"session_id": id, "archive": true}));
    assert_eq!(got["left_out_count"], 1, "{got}");
    let tar = STANDARD.decode(text_of(&got["base64"])).unwrap();
    let text = String::from_utf8_lossy(&tar);
    assert!(
        !text.contains("hunter2") && !got.to_string().contains("hunter2"),
        "{text}"
    );
    assert_contains(&text, ["before ", " after"]);
    // The archive is complete: it can be put into the namespace workspace, which the session does not use.
    let back = put(&mut server, json!({}), text_of(&got["base64"]));
    assert_eq!(back["files"], 2, "{back}");
    let into = put(
        &mut server,
        json!({"session_id": id, "path": "sub"}),
        text_of(&got["base64"]),
    );
    assert_eq!(into["files"], 2, "{into}");
    let seen = server.eval(id, "len(os.listdir('.')), open('sub/b').read()");
    assert_eq!(seen["result"], json!([4, "b"]), "{seen}");
}
