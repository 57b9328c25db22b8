//! Values that move from one session to another.

use super::*;

fn bridged(live: &mut Driver, name: &str) -> String {
    let answer = live.get(name);
    assert!(answer.ok, "{name}: {answer:?}");
    answer.bridge.unwrap()
}

#[test]
fn values_survive_a_round_trip() {
    let mut python = Driver::begin(Language::Python);
    let mut node = Driver::begin(Language::Node);
    python.call(
        "import datetime as d\nv = {'z': 1, 'a': [True, None, 1.5, 'é'], 'big': 10**30, 'nan': float('nan'), \
         'bytes': b'\\0\\xff', 'at': d.datetime(2024, 5, 6, 7, 8, 9, tzinfo=d.timezone.utc), 't': (1, 2), '$type': 'x'}",
    );
    let first = bridged(&mut python, "v");
    assert!(node.set("v", &first).ok);
    let reply = node.call(
        "v.z === 1 && v.big === 10n ** 30n && Number.isNaN(v.nan) && v.bytes[1] === 255 && v.at.getTime() === 1714979289000 \
         && v.$type === 'x' && Object.keys(v).join() === 'z,a,big,nan,bytes,at,t,$type'",
    );
    assert_eq!(
        reply.answer.report.result,
        Some(serde_json::json!(true)),
        "{reply:?}"
    );
    let second = bridged(&mut node, "v");
    assert!(python.set("w", &second).ok);
    let reply =
        python.call("v.pop('nan'), w.pop('nan'), v.update(t=list(v['t']))\nv == w, list(v) == list(w)");
    assert_eq!(
        reply.answer.report.result,
        Some(serde_json::json!([true, true])),
        "{reply:?}"
    );
    // pandas has a time for missing values, which becomes null.
    python
        .call("class NaTType(d.datetime): pass\nNaTType.__module__ = 'pandas._libs'\nn = [NaTType(1, 1, 1)]");
    assert_eq!(bridged(&mut python, "n"), "[null]");
    // An existing variable is replaced.
    assert!(node.set("v", "[1]").ok && node.set("v", "2").ok);
    assert_eq!(bridged(&mut node, "v"), "2");
}

#[test]
fn time_without_zone_is_text_in_node() {
    let mut python = Driver::begin(Language::Python);
    let mut node = Driver::begin(Language::Node);
    // As in pandas and numpy: a class of its own, and an array whose `tolist` would return nanoseconds.
    python.call(
        "import datetime as d\nclass Timestamp(d.datetime): pass\nTimestamp.__module__ = 'pandas._libs'\n\
         class array:\n    dtype = 'datetime64[ns]'\n    def astype(self, to): return self if to == 'datetime64[us]' else 1 / 0\n\
         \x20   def tolist(self): return [d.datetime(2024, 5, 6)]\n\
         array.__module__ = 'numpy'\n\
         v = [Timestamp(2024, 5, 6), d.datetime(2024, 5, 6, 7, 8, 9, 120), Timestamp(2024, 5, 6, tzinfo=d.timezone.utc), array()]",
    );
    let first = bridged(&mut python, "v");
    assert!(python.set("w", &first).ok && node.set("w", &first).ok);
    let reply = python.call("w == [d.datetime(2024, 5, 6), *v[1:3], [d.datetime(2024, 5, 6)]], w[0].tzinfo");
    assert_eq!(
        reply.answer.report.result,
        Some(serde_json::json!([true, null])),
        "{reply:?}"
    );
    let reply = node.call("[w[0], w[1], w[2] instanceof Date && w[2].getTime(), w[3]]");
    assert_eq!(
        reply.answer.report.result,
        Some(serde_json::json!([
            "2024-05-06T00:00:00",
            "2024-05-06T07:08:09.000120",
            1_714_953_600_000_u64,
            ["2024-05-06T00:00:00"]
        ])),
        "{reply:?}"
    );
}

#[test]
fn numbers_are_bridged_exactly() {
    let mut python = Driver::begin(Language::Python);
    let mut node = Driver::begin(Language::Node);
    node.call("var v = [2 ** 53, 2 ** 60, -(2 ** 60), 1e30, 0.1 + 0.2, 5e-324]");
    assert!(python.set("v", &bridged(&mut node, "v")).ok);
    let reply = python.call("v == [2 ** 53, 2.0 ** 60, -2.0 ** 60, 1e30, 0.1 + 0.2, 5e-324]");
    assert_eq!(
        reply.answer.report.result,
        Some(serde_json::json!(true)),
        "{reply:?}"
    );
    let text = "[9007199254740993,{\"$type\":\"Foo.Bar\",\"n\":-9007199254740993}]";
    let bridge = encode_given(&serde_json::from_str(text).unwrap()).unwrap();
    assert!(python.set("w", &bridge).ok && node.set("w", &bridge).ok);
    let reply = python.call("w == [2 ** 53 + 1, {'$type': 'Foo.Bar', 'n': -2 ** 53 - 1}]");
    assert_eq!(
        reply.answer.report.result,
        Some(serde_json::json!(true)),
        "{reply:?}"
    );
    let reply =
        node.call("w[0] === 2n ** 53n + 1n && w[1].$type === 'Foo.Bar' && w[1].n === -(2n ** 53n) - 1n");
    assert_eq!(
        reply.answer.report.result,
        Some(serde_json::json!(true)),
        "{reply:?}"
    );
}

#[test]
fn unbridgeable_value_is_refused_with_its_path() {
    let mut python = Driver::begin(Language::Python);
    let mut node = Driver::begin(Language::Node);
    python.call("import socket\na = {'items': [1, socket.socket()]}\nb = []; b.append(b)\nc = {1: 2}\nd = 'x' * (17 << 20)");
    node.call("var a = { items: [1, () => 1] }, b = []; b.push(b); var c = new Map([[1, 2]]), d = 'x'.repeat(17 << 20)");
    for live in [&mut python, &mut node] {
        for (name, shown) in [
            ("a", "a.items[1]"),
            ("b", "cycle"),
            ("c", "key"),
            ("d", "16 MiB"),
            ("nowhere", "not defined"),
        ] {
            let answer = live.get(name);
            let error = answer.report.error.clone().unwrap();
            assert!(
                !answer.ok && answer.bridge.is_none() && error.message.contains(shown),
                "{name}: {error:?}"
            );
        }
        for bridge in [
            "{\"$type\":\"int\",\"value\":\"x\"}",
            "{\"$type\":\"code\",\"value\":\"1\"}",
            "{\"$type\":[]}",
            "{\"$type\":\"object\",\"value\":null}",
            "{\"$type\":\"datetime\",\"value\":\"noon\"}",
        ] {
            let answer = live.set("e", &format!("{{\"a\":[1,{bridge}]}}"));
            let error = answer.report.error.clone().unwrap();
            assert!(
                !answer.ok && error.kind == "TypeError" && error.message.starts_with("e.a[1]: "),
                "{bridge}: {error:?}"
            );
        }
        let reply = live.call("1");
        assert_eq!(
            (reply.stdout.as_str(), reply.stderr.as_str()),
            ("", ""),
            "nothing of it is the next call's"
        );
        assert_eq!(live.call("1").answer.report.result, Some(serde_json::json!(1)));
    }
    for name in ["", "a b", "a;b", "1a", "é", "a.b", &"a".repeat(257)] {
        for language in [Language::Python, Language::Node, Language::Shell] {
            assert_eq!(encode_get(language, 1, name), Err(Unsendable::Name), "{name}");
            assert_eq!(
                encode_set(language, 1, name, "1"),
                Err(Unsendable::Name),
                "{name}"
            );
        }
    }
    for bridge in ["", "1 2", "{", "1,\"call\":2"] {
        assert_eq!(
            encode_set(Language::Python, 1, "a", bridge),
            Err(Unsendable::Value),
            "{bridge}"
        );
    }
}

#[test]
fn builtin_name_is_refused_and_the_session_continues() {
    for (language, names) in [
        (
            Language::Node,
            &[
                "globalThis",
                "Object",
                "JSON",
                "process",
                "undefined",
                "Buffer",
                "let",
            ][..],
        ),
        (Language::Python, &["__builtins__", "__name__", "__x__"]),
    ] {
        let mut live = Driver::begin(language);
        for name in names {
            let answer = live.set(name, "1");
            let error = answer.report.error.clone().unwrap();
            assert!(!answer.ok && error.kind == "SyntaxError", "{name}: {error:?}");
        }
        // A variable of the caller's own code may be replaced.
        assert!(live.set("x", "[1]").ok && live.set("x", "2").ok);
        assert_eq!(live.call("x").answer.report.result, Some(serde_json::json!(2)));
    }
}

#[test]
fn shell_bridges_texts_lists_and_objects() {
    let mut live = Driver::begin(Language::Shell);
    live.call(
        "s=$'it\\'s \"é\"\\n$x'; declare -a l=(1 '' 'a b'); declare -A m=([k]='v w'); declare -i n=5; e=",
    );
    for (name, value) in [
        ("s", "\"it's \\\"é\\\"\\n$x\""),
        ("l", "[\"1\",\"\",\"a b\"]"),
        ("m", "{\"k\":\"v w\"}"),
        ("n", "\"5\""),
        ("e", "\"\""),
    ] {
        assert_eq!(bridged(&mut live, name), value, "{name}");
        assert!(live.set("copy", value).ok);
        assert_eq!(bridged(&mut live, "copy"), value);
    }
    assert!(!live.get("nowhere").ok);
    assert!(live.set("deep", "{\"a\":[1,{\"b\":2}]}").ok);
    assert_eq!(
        live.call("bash -c 'echo $deep'").stdout,
        "{\"a\":[1,{\"b\":2}]}\n"
    );
    assert!(live.set("o", "{\"a'$(touch bad)\":\"`touch bad`\",\"n\":1.5,\"t\":true,\"i\":{\"$type\":\"int\",\"value\":\"99\"}}").ok);
    assert_eq!(
        live.call("echo \"${o[n]} ${o[t]} ${o[i]} ${#o[@]}\"; ls bad")
            .stdout,
        "1.5 true 99 4\n"
    );
    assert_eq!(
        encode_set(Language::Shell, 1, "a", "\"\\u0000\""),
        Err(Unsendable::Nul)
    );
    assert_eq!(
        encode_set(Language::Shell, 1, "a", &format!("\"{}\"", "x".repeat(1 << 18))),
        Err(Unsendable::TooLong)
    );
}

#[test]
fn bash_variables_are_not_set_by_a_bridge() {
    let variables = "PS0 PS4 PROMPT_COMMAND BASH_ENV BASHOPTS BASH_ALIASES BASH_CMDS ENV IFS PATH LD_PRELOAD SHELLOPTS \
        TMOUT CDPATH HISTFILE GLOBIGNORE LC_ALL histchars";
    assert!(variables.split_whitespace().all(is_read_by_bash));
    assert!(
        !["PS5", "paths", "BAS", "REPLY", "ps0", "HOSTNAME"]
            .into_iter()
            .any(is_read_by_bash)
    );
    let mut live = Driver::begin(Language::Shell);
    // bash would evaluate PS0 between calls, but the end of a call resets it.
    assert_eq!(live.call("PS0='$(echo hi >&2)'; declare -n other=PS4").stderr, "");
    assert!(live.set("other", "\"x\"").ok);
    let reply = live.call("echo \"$other${PS4}$PS0\"");
    assert_eq!((reply.stdout.as_str(), reply.stderr.as_str()), ("x+ \n", ""));
}
