//! Attacks by package names, archives, packages, and programs with packages.

use super::{
    archive, assert_hello_works, index::Index, install, life, node, python, serve_command, server,
    server_with,
};
use crate::client::*;
use base64::Engine as _;
use std::{
    fs,
    path::{Path, PathBuf},
};

const PASSWORD: &str = "s3cr3t-0f-the-index";

/// claim: [PKG-1]
#[test]
fn no_package_name_reaches_another_index_or_a_file() {
    let (index, evil) = (life::hello(), Index::new());
    evil.wheel("hello", "9.9", &[], &[]);
    let mut server = server(&index);
    let url = evil.address("/simple");
    let python_names = [
        format!("--index-url={url}"),
        format!("-i {url}"),
        "-r /workspace/requirements.txt".to_owned(),
        "-e .".to_owned(),
        format!("hello --index-url {url}"),
        format!("hello\n--index-url={url}"),
        format!("hello @ {}", evil.address("/files/hello-9.9-py3-none-any.whl")),
        evil.address("/files/hello-9.9-py3-none-any.whl"),
        "hello; import os".to_owned(),
        "../x".to_owned(),
        "./x".to_owned(),
        "/etc/passwd".to_owned(),
        "file:///etc/passwd".to_owned(),
        "hello\0".to_owned(),
        "\u{2010}\u{2010}index-url=x".to_owned(),
        "$(id)".to_owned(),
    ];
    for name in python_names {
        let refused = python(&mut server, "1", &[&name]);
        assert_eq!(refused["code"], "invalid_argument", "{name:?}: {refused}");
    }
    let node_names = [
        format!("--registry={url}"),
        evil.address("/x.tgz"),
        format!("x@{}", evil.address("/x.tgz")),
        "x@npm:evil@1".to_owned(),
        "x@file:../y".to_owned(),
        "git+ssh://x/y".to_owned(),
        "user/repository".to_owned(),
        "@evil/../x".to_owned(),
        "../x".to_owned(),
        "x.tgz".to_owned(),
        "x\u{2028}y".to_owned(),
    ];
    for name in node_names {
        let refused = node(&mut server, "1", &[&name]);
        assert_eq!(refused["code"], "invalid_argument", "{name:?}: {refused}");
    }
    assert!(evil.requests().is_empty() && index.requests().is_empty());
    // The control: a valid name reaches the index.
    assert_hello_works(&mut server);
    assert!(!index.requests().is_empty() && evil.requests().is_empty());
}

/// claim: [PKG-3]
#[test]
fn index_credentials_are_sent_only_to_the_index() {
    let index = life::hello();
    let login = base64::engine::general_purpose::STANDARD.encode(format!("alice:{PASSWORD}"));
    index.require_authorization(&format!("Basic {login}"));
    let mut command = serve_command(&index);
    command.env(
        "PIP_INDEX_URL",
        index.address_of(&format!("alice:{PASSWORD}"), "/simple"),
    );
    let mut server = Server::from_command(command);
    let installed = server.call_ok("install_package", json!({"packages": ["hello"]}));
    assert!(
        index
            .requests()
            .iter()
            .any(|request| request.authorization.is_some())
    );
    let code = "import os, pathlib\n\
        found = [str(os.environ)]\n\
        for top in ('/packages', '/workspace', '/tmp', '/home', '/etc', '/run', '/code'):\n\
        \x20   for path in pathlib.Path(top).rglob('*'):\n\
        \x20       try:\n\
        \x20           found.append(path.read_text())\n\
        \x20       except (OSError, ValueError):\n\
        \x20           pass\n\
        print(any('s3c' 'r3t' in text for text in found), any('greet' in text for text in found))";
    let run = python(&mut server, code, &["hello"]);
    assert_eq!(run["stdout"], "False True\n", "{run}");
    let refused = python(&mut server, "1", &["unheard-of"]);
    assert_eq!(refused["code"], "package_unavailable", "{refused}");
    for said in [&installed, &run, &refused] {
        assert!(
            !said.to_string().contains(PASSWORD) && !said.to_string().contains(&login),
            "{said}"
        );
    }
    drop(server);
    assert_eq!(files_containing(&state_dir(), PASSWORD), Vec::<PathBuf>::new());
    assert_eq!(files_containing(&state_dir(), &login), Vec::<PathBuf>::new());
    assert_ne!(files_containing(&state_dir(), "greet"), Vec::<PathBuf>::new());
}

/// claim: [PKG-5]
#[test]
fn a_program_with_packages_has_no_network_and_only_its_own_read_only_layer() {
    let index = life::hello();
    let mut server = server(&index);
    server.call_ok("install_package", json!({"packages": ["greet"]}));
    let code = format!(
        "import hello, os, socket\n\
        def tried(act):\n\
        \x20   try:\n\
        \x20       act()\n\
        \x20       return 'done'\n\
        \x20   except OSError as error:\n\
        \x20       return 'kept' if error.errno in (13, 30) else error.errno\n\
        [tried(lambda: socket.create_connection(('127.0.0.1', {})).close()),\n\
        \x20tried(lambda: open('/packages/layer/python/hello/__init__.py', 'a')),\n\
        \x20tried(lambda: open('/packages/layer/python/new.py', 'w')),\n\
        \x20tried(lambda: os.remove('/packages/layer/python/greet.py')),\n\
        \x20tried(lambda: os.chmod('/packages/layer/python/greet.py', 0o777)),\n\
        \x20tried(lambda: open('/packages/new', 'w')),\n\
        \x20os.listdir('/packages'), sorted(os.listdir('/packages/layer'))]",
        index.port()
    );
    let run = python(&mut server, &code, &["hello"]);
    // EACCES, the file of another user, or EROFS, a read-only file system.
    let (refused, read_only) = (111, "kept");
    let expect = json!([
        refused,
        read_only,
        read_only,
        read_only,
        read_only,
        read_only,
        ["layer"],
        ["bin", "python"]
    ]);
    assert_eq!(run["result"], expect, "{run}");
    // Without packages, their directory is empty and not writable either.
    let code = "import os\n\
        def tried(path):\n\
        \x20   try:\n\
        \x20       open(path, 'w')\n\
        \x20   except OSError as error:\n\
        \x20       return 'kept' if error.errno in (13, 30) else error.errno\n\
        [tried('/packages/layer/x'), tried('/packages/layer/python/x'), sum(len(files) for _, _, files in os.walk('/packages'))]";
    let run = python(&mut server, code, &[]);
    assert_eq!(run["result"], json!([read_only, read_only, 0]), "{run}");
}

/// claim: [PKG-4]
#[test]
fn a_modified_layer_is_refused_and_rebuilt() {
    let index = life::hello();
    let mut server = server(&index);
    let code = "import greet; greet.value";
    assert_eq!(python(&mut server, code, &["greet"])["result"], 41);
    let layers = state_dir().join("packages/layers");
    let layer = fs::read_dir(layers).unwrap().flatten().next().unwrap().path();
    fs::write(layer.join("python/greet.py"), "value = 13\n").unwrap();
    let refused = python(&mut server, code, &["greet"]);
    assert_eq!(refused["code"], "store_fault", "{refused}");
    refused.assert_text("message", ["greet.py"]);
    assert_eq!(python(&mut server, code, &["greet"])["result"], 41);
    assert_eq!(index.count("greet-2.5-py3-none-any.whl"), 2);
}

/// claim: [PKG-2]
#[test]
fn no_code_of_a_package_runs_while_it_is_installed() {
    let index = Index::new();
    let canary = format!(
        "import urllib.request; urllib.request.urlopen('{}')\n",
        index.address("/canary")
    );
    let names = [
        "sitecustomize.py",
        "usercustomize.py",
        "pip.py",
        "compileall.py",
        "evil/__init__.py",
        "evil.pth",
    ];
    let files: Vec<(&str, &str)> = names.map(|name| (name, canary.as_str())).into();
    index.wheel("evil", "1", &files, &[]);
    index.python(
        "evilsource",
        "evilsource-1.tar.gz",
        archive::tgz(&[("setup.py", &canary)]),
    );
    let mut server = server(&index);
    server.call_ok("install_package", json!({"packages": ["evil"]}));
    assert_eq!(install(&mut server, "evilsource")["code"], "package_unavailable");
    assert_eq!(index.count("/canary"), 0);
    // The control: the code runs when a program imports it, and reaches no host.
    let run = python(&mut server, "import evil", &["evil"]);
    run.assert_text("error.message", ["refused"]);
    assert_eq!(index.count("/canary"), 0);
}

/// claim: [PKG-2]
#[test]
fn a_dependency_given_by_url_git_or_path_is_neither_fetched_nor_built() {
    let (index, evil) = (life::hello(), Index::new());
    let canary = format!(
        "import urllib.request; urllib.request.urlopen('{}')\n",
        index.address("/canary")
    );
    evil.put("/x-1.tar.gz", archive::tgz(&[("setup.py", &canary)]));
    evil.put("/x-1-py3-none-any.whl", archive::wheel("x", "1", &[], &[]));
    let needs = [
        ("viaurl", format!("x @ {}", evil.address("/x-1.tar.gz"))),
        (
            "viawheel",
            format!("x @ {}", evil.address("/x-1-py3-none-any.whl")),
        ),
        ("viagit", format!("x @ git+{}", evil.address("/x.git"))),
        ("viafile", "x @ file:///workspace/layer".to_owned()),
    ];
    let mut server = server(&index);
    let mut check = |language: &str, name: &str| {
        let arguments = json!({"language": language, "packages": [name]});
        let refused = server.facts("install_package", arguments);
        assert_eq!(refused["code"], "package_unavailable", "{name}: {refused}");
        let said = text_of(&refused["message"]);
        assert!(
            said.contains("only what the") || said.contains("leads out"),
            "{name}: {refused}"
        );
    };
    for (name, need) in &needs {
        index.wheel(name, "1", &[], &[need]);
        check("python", name);
    }
    let script = format!("node -e \"require('http').get('{}')\"", index.address("/canary"));
    let package =
        json!({"name": "x", "version": "1.0.0", "scripts": {"prepare": &script, "install": &script}});
    let tgz = archive::tgz(&[("package.json", &package.to_string())]);
    evil.put("/x.tgz", tgz);
    let needs = [
        ("via-url", evil.address("/x.tgz")),
        ("via-git", format!("git+{}", evil.address("/x.git"))),
        (
            "via-hosted",
            "github:x/y#0123456789012345678901234567890123456789".to_owned(),
        ),
        ("via-file", "file:../../config/npmrc.tgz".to_owned()),
        // npm would make a symlink of it, which no layer may contain.
        ("via-directory", "file:/workspace/config".to_owned()),
    ];
    for (name, need) in &needs {
        let manifest = json!({"name": name, "version": "1.0.0", "dependencies": {"x": need}});
        let tgz = archive::tgz(&[("package.json", &manifest.to_string())]);
        index.npm(name, "1.0.0", &manifest, tgz);
        check("node", name);
    }
    assert_eq!(index.count("/canary"), 0);
    assert!(evil.requests().is_empty(), "{:?}", evil.requests());
}

/// claim: [PKG-2]
#[test]
fn a_lock_file_in_a_package_is_followed_only_to_the_registry() {
    let (index, evil) = (Index::new(), Index::new());
    let needed = json!({"name": "x", "version": "1.0.0", "main": "x.js"}).to_string();
    let tgz = archive::tgz(&[("package.json", &needed), ("x.js", "module.exports = 'x';")]);
    index.put("/npm/elsewhere/x.tgz", tgz.clone());
    evil.put("/x.tgz", tgz);
    let locked = |name: &str, address: String| {
        let mut manifest = json!({"name": name, "version": "1.0.0", "dependencies": {"x": "1.0.0"}});
        let lock = json!({"name": name, "version": "1.0.0", "lockfileVersion": 3, "packages": {
            "": manifest.clone(),
            "node_modules/x": {"version": "1.0.0", "resolved": address},
        }});
        let (own, lock) = (manifest.to_string(), lock.to_string());
        let code = "module.exports = require('x');";
        let files = [
            ("package.json", own.as_str()),
            ("npm-shrinkwrap.json", &lock),
            ("index.js", code),
        ];
        manifest["_hasShrinkwrap"] = json!(true);
        index.npm(name, "1.0.0", &manifest, archive::tgz(&files));
    };
    locked("astray", evil.address("/x.tgz"));
    locked("at-home", index.address("/npm/elsewhere/x.tgz"));
    let mut server = server(&index);
    let refused = node(&mut server, "require('astray')", &["astray"]);
    assert_eq!(refused["code"], "package_unavailable", "{refused}");
    assert!(evil.requests().is_empty(), "{:?}", evil.requests());
    // The control: the registry has no `x` except the file in the lock file.
    let found = node(&mut server, "require('at-home')", &["at-home"]);
    assert_eq!(found["result"], "x", "{found}");
}

/// claim: [PKG-2]
#[test]
fn an_archive_with_path_traversal_or_excess_size_leaves_nothing() {
    let index = Index::new();
    let climb = [("../../../../../tmp/ringfence-climbed", "x")];
    index.wheel("climb", "1", &climb, &[]);
    let large = "x".repeat(3 << 20);
    index.wheel("large", "1", &[("large.txt", &large)], &[]);
    let mut server = server_with(&index, "RINGFENCE_PACKAGES_MAX_MB", "2");
    for name in ["climb", "large"] {
        assert_eq!(install(&mut server, name)["code"], "package_unavailable");
    }
    assert!(!Path::new("/tmp/ringfence-climbed").exists());
    let layers = fs::read_dir(state_dir().join("packages/layers")).unwrap().count();
    let making = fs::read_dir(state_dir().join("packages/making")).unwrap().count();
    assert_eq!((layers, making), (0, 0));
}
