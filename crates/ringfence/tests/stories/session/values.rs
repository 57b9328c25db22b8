//! Values from sessions and between them: how they arrive, and the errors of those that cannot be moved.

use super::assert_result;
use crate::client::*;

/// Finite numbers of every magnitude, the same in each run (xorshift).
fn doubles() -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let any = std::iter::repeat_with(|| f64::from_bits(next()));
    let mut all: Vec<f64> = any.filter(|number| number.is_finite()).take(500).collect();
    all.extend((0..500_u32).map(|at| f64::from(at).sqrt() / 7.0 - 12.3));
    all
}

/// The bits of a list of numbers.
#[track_caller]
fn bits(value: &Value) -> Vec<u64> {
    let list = value.as_array().unwrap_or_else(|| panic!("{value}"));
    list.iter()
        .map(|number| number.as_f64().unwrap().to_bits())
        .collect()
}

/// Sets a variable in a session.
fn give(server: &mut Server, to: &str, data: Value) -> Value {
    server.facts(
        "bridge_data",
        json!({"to_session": to, "name": "v", "data": data}),
    )
}

fn pass(server: &mut Server, from: &str, to: &str, name: &str) -> Value {
    let moved = json!({"from_session": from, "to_session": to, "name": name});
    server.facts("bridge_data", moved)
}

#[test]
fn doubles_survive_every_bridge_bit_for_bit() {
    let mut command = serve_with("vault: {store: env}\n");
    command.env("RINGFENCE_SECRET_DEFAULT_KEY", "hunter2-of-numbers");
    command.env("RINGFENCE_TEXT_MAX", "1048576");
    let mut server = Server::from_command(command);
    let numbers = doubles();
    let expect: Vec<u64> = numbers.iter().map(|number| number.to_bits()).collect();
    let python = server.create_session(json!({"secrets": ["KEY"]}));
    let node = server.create_session(json!({"language": "node"}));
    let shell = server.create_session(json!({"language": "shell"}));
    // As bits, so that no decimal text is parsed on the way in.
    let code =
        format!("import struct\nv = [struct.unpack('d', n.to_bytes(8, 'little'))[0] for n in {expect:?}]\nv");
    assert_eq!(bits(&server.eval(&python, &code)["result"]), expect, "a result");
    for (from, to, get) in [(&python, &node, "v"), (&node, &python, "[float(n) for n in v]")] {
        assert_eq!(pass(&mut server, from, to, "v")["success"], true);
        assert_eq!(bits(&server.eval(to, get)["result"]), expect, "{get}");
    }
    assert_eq!(give(&mut server, &node, json!(numbers))["success"], true);
    assert_eq!(bits(&server.eval(&node, "v")["result"]), expect, "of the caller");
    assert_eq!(pass(&mut server, &python, &shell, "v")["success"], true);
    let answer = server.eval(&shell, "printf '%s\\n' \"${v[@]}\"");
    let lines = text_of(&answer["stdout"]).lines();
    let in_shell: Vec<u64> = lines.map(|line| line.parse::<f64>().unwrap().to_bits()).collect();
    assert_eq!(in_shell, expect, "in a shell");
}

/// claim: [SES-9]
#[test]
fn bridged_data_is_not_executed_by_a_shell() {
    let mut server = Server::with_config("");
    let (python, shell) = (
        server.create_session(json!({})),
        server.create_session(json!({"language": "shell"})),
    );
    server.eval(&python, "PS0 = '$(echo ran >> ran)'");
    let refused = pass(&mut server, &python, &shell, "PS0");
    assert_eq!(refused["code"], "invalid_argument", "{refused}");
    let moved = json!({"from_session": python, "to_session": shell, "name": "PS0", "as": "text"});
    assert_eq!(server.facts("bridge_data", moved)["success"], true, "the control");
    let answer = server.eval(&shell, "echo \"$text\"; ls");
    assert_eq!(answer["stdout"], "$(echo ran >> ran)\n");
}

#[test]
fn data_given_by_a_caller_keeps_its_type() {
    let mut server = Server::with_config("");
    let python = server.create_session(json!({}));
    let node = server.create_session(json!({"language": "node"}));
    for (data, in_python, in_node) in [
        (
            json!(9_007_199_254_740_993_u64),
            "v == 2 ** 53 + 1",
            "v === 2n ** 53n + 1n",
        ),
        (json!(null), "v is None", "v === null"),
        (
            json!({"$type": "Foo.Bar", "x": 1}),
            "v == {'$type': 'Foo.Bar', 'x': 1}",
            "v.$type === 'Foo.Bar' && v.x === 1",
        ),
        (
            json!({"$type": "object", "value": null}),
            "v == {'$type': 'object', 'value': None}",
            "v.$type === 'object' && v.value === null",
        ),
        (
            json!({"$type": "int", "value": "123456789012345678901234567890"}),
            "v == 123456789012345678901234567890",
            "v === 123456789012345678901234567890n",
        ),
    ] {
        for (to, code) in [(&python, in_python), (&node, in_node)] {
            let answer = give(&mut server, to, data.clone());
            assert_eq!(answer["success"], true, "{data}: {answer}");
            assert_result(&server.eval(to, code), &json!(true));
        }
    }
    // With another source, null data counts as absent.
    let moved = json!({"from_session": python, "to_session": node, "name": "v", "data": null});
    server.call_ok("bridge_data", moved);
    let deep = (0..101).fold(json!(1), |inner, _| json!([inner]));
    let refused = give(&mut server, &python, deep);
    assert_eq!(refused["code"], "invalid_argument", "{refused}");
}

#[test]
fn failed_bridge_has_a_hint_and_ends_no_session() {
    let mut server = Server::with_config("");
    let python = server.create_session(json!({"timeout_seconds": 1}));
    let node = server.create_session(json!({"language": "node"}));
    let shell = server.create_session(json!({"language": "shell"}));
    server.eval(
        &python,
        "class L(list):\n    def __iter__(self):\n        while True: pass\nslow = L(); bad = {'a': [1, object()]}\n\
         half = ['\\ud800']; import os; UID = 5",
    );
    server.eval(&node, "var class_ = 1, bad = { a: [1, () => 1] }");
    for (from, to, name, message, hint) in [
        (&python, &node, "slow", "more than 1 s", "timeout_seconds"),
        (&python, &node, "bad", "bad.a[1]", "plain kinds"),
        (&node, &python, "bad", "bad.a[1]", "plain kinds"),
        (&python, &node, "nowhere", "NameError", "top of `from_session`"),
        (
            &node,
            &python,
            "nowhere",
            "ReferenceError",
            "top of `from_session`",
        ),
        (
            &shell,
            &python,
            "nowhere",
            "no variable `nowhere`",
            "top of `from_session`",
        ),
        (&python, &shell, "half", "not a value", "file"),
        (&python, &shell, "UID", "`UID`", "`as`"),
    ] {
        let refused = pass(&mut server, from, to, name);
        assert_eq!(refused["code"], "invalid_argument", "{name}: {refused}");
        let field = |name: &str| refused[name].as_str().unwrap().to_owned();
        assert!(
            field("message").contains(message) && field("hint").contains(hint),
            "{refused}"
        );
        // The failure leaves no trace in the next call.
        for id in [&python, &node, &shell] {
            let answer = server.eval(id, "0");
            assert_eq!(answer["session_ended"], Value::Null, "{name}: {answer}");
            assert!(*id == shell || answer["stderr"] == "", "{name}: {answer}");
        }
    }
    let refused = server.eval_with(&shell, "echo ran", json!({"env": {"UID": "5"}}));
    refused.assert_fields(json!({"success": false, "stdout": ""}));
    refused.assert_text("stderr", ["UID"]);
    server.terminate(&node);
    assert_eq!(pass(&mut server, &python, &node, "UID")["code"], "session_ended");
}
