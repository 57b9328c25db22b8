//! The same in revision 2026-07-28, where the question is a result, and the answer comes with the next call: what the client
//! brings back for it is sealed, and good once.

use super::{accept, decide, lines_of, one_pending, pending, records, serve};
use crate::client::*;

fn call(arguments: &Value) -> Value {
    json!({"name": "request_egress", "arguments": arguments, "_meta": stateless(json!({"elicitation": {"form": {}}}))})
}

/// The call again, with what the client brings.
fn again(arguments: &Value, state: &str, said: Value) -> Value {
    let mut call = call(arguments);
    call["requestState"] = json!(state);
    call["inputResponses"] = json!({"approval": said});
    call
}

/// Asks, and is asked back.
fn question(server: &mut Server, arguments: &Value) -> (Value, String) {
    let answer = server.ask("tools/call", call(arguments));
    let result = answer["result"].clone();
    assert_eq!(result["resultType"], "input_required", "{answer}");
    let state = text_of(&result["requestState"]).to_owned();
    (result["inputRequests"]["approval"].clone(), state)
}

fn facts(server: &mut Server, call: Value) -> Value {
    server.ask("tools/call", call)["result"].facts()
}

#[test]
fn the_client_asks_its_user_and_comes_back_with_the_answer() {
    let mut server = Server::silent(serve("60"));
    let wanted = json!({"domain": "api.example.com", "reason": "to fetch"});
    let (asked, state) = question(&mut server, &wanted);
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    assert_eq!(asked["params"]["message"], lines_of(&one_pending()));
    let answer = facts(&mut server, again(&wanted, &state, accept("namespace")));
    let by = "a person, asked by mcp story 1";
    answer.shows(json!({"approved": true, "scope": "namespace", "decided_by": by}));

    let wanted = json!({"domain": "b.example.com"});
    let (_, state) = question(&mut server, &wanted);
    let answer = facts(&mut server, again(&wanted, &state, json!({"action": "decline"})));
    assert_eq!(answer["approved"], false, "{answer}");

    // Meanwhile others may answer, and the first counts.
    let wanted = json!({"domain": "c.example.com"});
    let (_, state) = question(&mut server, &wanted);
    decide("approve");
    let answer = facts(&mut server, again(&wanted, &state, json!({"action": "decline"})));
    answer.shows(json!({"approved": true, "decided_by": "cli"}));
    // A client that cannot ask waits for the operator.
    let mut ask = call(&json!({"domain": "d.example.com"}));
    ask["_meta"] = stateless(json!({}));
    let id = server.send("tools/call", ask);
    decide("approve");
    assert_eq!(server.result(id)["approved"], true);
}

/// claim: [APR-7]
#[test]
fn a_state_that_is_forged_used_of_another_question_or_too_old_is_refused_in_one_way() {
    let mut server = Server::silent(serve("60"));
    let wanted = json!({"domain": "a.example.com", "reason": "to fetch"});
    let (_, state) = question(&mut server, &wanted);
    let refuse = |server: &mut Server, call: Value| {
        let answer = facts(server, call);
        assert_eq!(answer["code"], "invalid_argument", "{answer}");
        text_of(&answer["message"]).to_owned()
    };
    let yes = || accept("namespace");
    let mut said = Vec::new();
    // Every part of it counts.
    for at in [4, state.len() / 2, state.len() - 2] {
        let mut forged = state.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        said.push(refuse(&mut server, again(&wanted, &forged, yes())));
    }
    for forged in ["", "rs1", "rs1..", &"x".repeat(1 << 20)] {
        said.push(refuse(&mut server, again(&wanted, forged, yes())));
    }
    for (name, value) in [
        ("domain", "evil.example.com"),
        ("reason", "other"),
        ("namespace", "other"),
    ] {
        let mut other = wanted.clone();
        other[name] = json!(value);
        said.push(refuse(&mut server, again(&other, &state, yes())));
    }
    let mut stranger = again(&wanted, &state, yes());
    stranger["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] = json!("another");
    said.push(refuse(&mut server, stranger));
    assert_eq!(pending().len(), 1, "nothing of that has decided anything");
    let answer = facts(&mut server, again(&wanted, &state, json!({"action": "decline"})));
    assert_eq!(answer["approved"], false, "{answer}");
    // A denial is not undone by coming again.
    said.push(refuse(&mut server, again(&wanted, &state, yes())));
    said.dedup();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(records("approval.decided").len(), 1);
    // The state of another server is not one.
    let wanted = json!({"domain": "b.example.com"});
    let (_, state) = question(&mut server, &wanted);
    let mut second = Server::silent(serve("60"));
    refuse(&mut second, again(&wanted, &state, accept("once")));
}

/// claim: [APR-3]
#[test]
fn a_client_that_comes_back_too_late_is_told_that_it_was_denied() {
    let mut server = Server::silent(serve("1"));
    let wanted = json!({"domain": "a.example.com"});
    let (_, state) = question(&mut server, &wanted);
    eventually(|| records("approval.decided").len() == 1);
    let answer = facts(&mut server, again(&wanted, &state, accept("once")));
    assert_eq!(answer["approved"], false, "{answer}");
    answer.says("decided_by", ["its time was up"]);
}
