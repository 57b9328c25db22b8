//! Approvals in revision 2026-07-28, where the question is a result and the answer comes with the next call. The state
//! that the client returns with it is authenticated and valid once.

use super::{accept, decide, lines_of, one_pending, pending, records, serve};
use crate::client::*;

fn call(arguments: &Value) -> Value {
    json!({"name": "request_egress", "arguments": arguments, "_meta": stateless_meta(json!({"elicitation": {"form": {}}}))})
}

/// The call again, with the state and the client's answer.
fn again(arguments: &Value, state: &str, answer: Value) -> Value {
    let mut call = call(arguments);
    call["requestState"] = json!(state);
    call["inputResponses"] = json!({"approval": answer});
    call
}

/// Calls `request_egress`, and returns the input request and the state of its result.
fn question(server: &mut Server, arguments: &Value) -> (Value, String) {
    let answer = server.rpc("tools/call", call(arguments));
    let result = answer["result"].clone();
    assert_eq!(result["resultType"], "input_required", "{answer}");
    let state = text_of(&result["requestState"]).to_owned();
    (result["inputRequests"]["approval"].clone(), state)
}

fn facts(server: &mut Server, call: Value) -> Value {
    server.rpc("tools/call", call)["result"].facts()
}

#[test]
fn input_required_result_is_answered_by_the_next_call() {
    let mut server = Server::without_handshake(serve("60"));
    let arguments = json!({"domain": "api.example.com", "reason": "to fetch"});
    let (input_request, state) = question(&mut server, &arguments);
    assert_eq!(input_request["method"], "elicitation/create", "{input_request}");
    assert_eq!(input_request["params"]["message"], lines_of(&one_pending()));
    let answer = facts(&mut server, again(&arguments, &state, accept("namespace")));
    let by = "a person, asked by mcp story 1";
    answer.assert_fields(json!({"approved": true, "scope": "namespace", "decided_by": by}));

    let arguments = json!({"domain": "b.example.com"});
    let (_, state) = question(&mut server, &arguments);
    let answer = facts(
        &mut server,
        again(&arguments, &state, json!({"action": "decline"})),
    );
    assert_eq!(answer["approved"], false, "{answer}");

    // The operator may decide meanwhile; the first decision counts.
    let arguments = json!({"domain": "c.example.com"});
    let (_, state) = question(&mut server, &arguments);
    decide("approve");
    let answer = facts(
        &mut server,
        again(&arguments, &state, json!({"action": "decline"})),
    );
    answer.assert_fields(json!({"approved": true, "decided_by": "cli"}));
    // The call of a client without elicitation waits for the operator.
    let mut params = call(&json!({"domain": "d.example.com"}));
    params["_meta"] = stateless_meta(json!({}));
    let id = server.send("tools/call", params);
    decide("approve");
    assert_eq!(server.result(id)["approved"], true);
}

/// claim: [APR-7]
#[test]
fn forged_reused_or_foreign_request_state_is_refused_with_one_message() {
    let mut server = Server::without_handshake(serve("60"));
    let arguments = json!({"domain": "a.example.com", "reason": "to fetch"});
    let (_, state) = question(&mut server, &arguments);
    let refuse = |server: &mut Server, call: Value| {
        let answer = facts(server, call);
        assert_eq!(answer["code"], "invalid_argument", "{answer}");
        text_of(&answer["message"]).to_owned()
    };
    let yes = || accept("namespace");
    let mut messages = Vec::new();
    // A change in any part invalidates the state.
    for at in [4, state.len() / 2, state.len() - 2] {
        let mut forged = state.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        messages.push(refuse(&mut server, again(&arguments, &forged, yes())));
    }
    for forged in ["", "rs1", "rs1..", &"x".repeat(1 << 20)] {
        messages.push(refuse(&mut server, again(&arguments, forged, yes())));
    }
    for (name, value) in [
        ("domain", "evil.example.com"),
        ("reason", "other"),
        ("namespace", "other"),
    ] {
        let mut other = arguments.clone();
        other[name] = json!(value);
        messages.push(refuse(&mut server, again(&other, &state, yes())));
    }
    let mut stranger = again(&arguments, &state, yes());
    stranger["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] = json!("another");
    messages.push(refuse(&mut server, stranger));
    assert_eq!(pending().len(), 1, "no forged state has decided the request");
    let answer = facts(
        &mut server,
        again(&arguments, &state, json!({"action": "decline"})),
    );
    assert_eq!(answer["approved"], false, "{answer}");
    // Repeating the call does not undo a denial.
    messages.push(refuse(&mut server, again(&arguments, &state, yes())));
    messages.dedup();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(records("approval.decided").len(), 1);
    // The state of another server is invalid.
    let arguments = json!({"domain": "b.example.com"});
    let (_, state) = question(&mut server, &arguments);
    let mut second = Server::without_handshake(serve("60"));
    refuse(&mut second, again(&arguments, &state, accept("once")));
}

/// claim: [APR-3]
#[test]
fn late_stateless_answer_finds_the_request_denied() {
    let mut server = Server::without_handshake(serve("1"));
    let arguments = json!({"domain": "a.example.com"});
    let (_, state) = question(&mut server, &arguments);
    eventually(|| records("approval.decided").len() == 1);
    let answer = facts(&mut server, again(&arguments, &state, accept("once")));
    assert_eq!(answer["approved"], false, "{answer}");
    answer.assert_text("decided_by", ["its time was up"]);
}
