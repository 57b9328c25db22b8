//! Sessions of bash: what stays, what fails, what is interrupted, and what a program breaks.

use super::*;

fn shell() -> Driver {
    Driver::begin(Language::Shell)
}

#[test]
fn a_shell_keeps_its_state() {
    let mut live = shell();
    let check = |live: &mut Driver, code: &str, status: i32, stdout: &str| {
        let said = live.call(code);
        assert_eq!(
            (
                said.answer.status,
                said.answer.ok,
                said.stdout.as_str(),
                said.stderr.as_str()
            ),
            (Some(status), status == 0, stdout, ""),
            "{code}: {said:?}"
        );
    };
    check(
        &mut live,
        "x=5; export y=6; f() { echo \"f$1\"; }; declare -A m=([a]=1)",
        0,
        "",
    );
    check(
        &mut live,
        "f $x; echo ${m[a]}; bash -c 'echo $y'",
        0,
        "f5\n1\n6\n",
    );
    check(&mut live, "false", 1, "");
    check(&mut live, "return 7; echo never", 7, "");
    check(&mut live, "(exit 9)", 9, "");
    check(&mut live, "mkdir d; cd d; exec 5>five; shopt -s nullglob", 0, "");
    check(
        &mut live,
        "echo kept >&5; cat five; basename $PWD; echo none*",
        0,
        "kept\nd\n\n",
    );
    check(&mut live, "sleep 1000 & job=$!", 0, "");
    check(&mut live, "kill -0 $job && kill $job; wait $job", 143, "");
    check(&mut live, "cat <<'A'\n$x\nA\ncat <<B\n$x\nB\n", 0, "$x\n5\n");
    check(&mut live, "cat; read line; echo \"<$line>\"", 0, "<>\n");
    check(
        &mut live,
        "END_OF_CALL() { echo END; }\nEND_OF_CALL\n",
        0,
        "END\n",
    );
    check(&mut live, "echo 'a\nEND_OF_CALL\nb'", 0, "a\nEND_OF_CALL\nb\n");
    check(&mut live, "echo \\\\", 0, "\\\n");
    check(&mut live, "echo !x; echo a # comment", 0, "!x\na\n");
    check(&mut live, "", 0, "");
    check(&mut live, "ls /proc/self/fd | grep -c 250", 1, "0\n");
    check(
        &mut live,
        &format!("echo {} | wc -c", "x".repeat(1 << 20)),
        0,
        "1048577\n",
    );
}

#[test]
fn a_shell_gets_the_words_the_environment_and_the_input_of_each_call() {
    let mut live = shell();
    let arguments = ["a b", "it's", "--"].map(|word| Argument::try_from(word.to_owned()).unwrap());
    let env = [("A", "$x 'é'\n\\"), ("B", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    live.send(
        "echo \"$#:$1:$2\"; printf '%s|%s' \"$A\" \"${B-unset}\"; od -An -tx1",
        &arguments,
        &env,
        b"\0%s'\xff\n",
    );
    let said = live.wait().unwrap();
    assert_eq!(
        said.stdout, "3:a b:it's\n$x 'é'\n\\| 00 25 73 27 ff 0a\n",
        "{said:?}"
    );
    let said = live.call("echo \"$#:$A\"; cat");
    assert_eq!(said.stdout, "0:$x 'é'\n\\\n");
}

#[test]
fn a_variable_that_cannot_be_set_fails_the_call_or_the_bridge_that_brings_it() {
    let mut live = shell();
    let env = [("A", "1"), ("UID", "5"), ("B", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    live.send("echo ran", &[], &env, b"");
    let said = live.wait().unwrap();
    assert!(
        !said.answer.ok && said.stdout.is_empty() && said.stderr.contains("UID: readonly variable"),
        "{said:?}"
    );
    for value in ["\"7\"", "[1]", "{\"a\":1}"] {
        assert!(!live.set("UID", value).ok, "{value}");
    }
    let said = live.call("echo $UID");
    assert!(said.stdout != "7\n" && said.stderr.is_empty(), "{said:?}");
}

#[test]
fn a_shells_errors_are_of_the_call() {
    let mut live = shell();
    live.call("x=5");
    for (code, status, shown) in [
        ("if", 2, "syntax error"),
        ("echo 'open", 2, "unexpected EOF"),
        ("nowhere_at_all", 127, "not found"),
        ("((1/0))", 1, "division"),
        ("set -x; echo 1", 0, "echo 1"),
        ("set +x; echo ${unset?missing}", 127, "missing"),
    ] {
        let said = live.call(code);
        assert!(said.stderr.contains(shown), "{code}: {said:?}");
        assert!(
            said.answer
                .status
                .is_some_and(|told| (told == 0) == (status == 0)),
            "{code}: {said:?}"
        );
        assert_eq!(live.call("set +x; echo $x").stdout, "5\n", "{code}");
    }
    let nul = Call {
        number: 1,
        name: "x",
        code: "a\0b",
        args: &[],
        env: &[],
        stdin: b"",
        checks: None,
    };
    assert_eq!(encode_call(Language::Shell, &nul), Err(Unsendable::Nul));
}

#[test]
fn a_shell_is_interrupted_in_whatever_it_does_and_keeps_its_state() {
    let mut live = shell();
    live.call("x=5; mkfifo fifo");
    let sleep = "sh -c ': >begun; exec sleep 1000'";
    for code in [
        ": >begun; while :; do :; done; echo never",
        ": >begun; eval 'while :; do :; done'; echo never",
        &format!("{sleep}; echo never"),
        &format!("{sleep} | cat; echo never"),
        &format!("y=$({sleep}); echo never"),
        &format!("f() {{ while :; do {sleep}; done; }}; f; echo never"),
        "(: >begun; while :; do :; done); echo never",
        "sleep 1000 & : >begun; wait; echo never",
        ": >begun; read -r line <>fifo; echo never",
        // What ends by itself, again and again.
        ": >begun; while :; do /bin/true; done; echo never",
        ": >begun; while :; do (:); done; echo never",
        ": >begun; while :; do : | :; done; echo never",
        &format!("trap 'echo heard' INT; {sleep}; trap - INT; while :; do :; done; echo never"),
    ] {
        let said = live.interrupted(code);
        assert!(
            !said.answer.ok && !said.stdout.contains("never"),
            "{code}: {said:?}"
        );
        let said = live.call("echo $x");
        assert_eq!(
            (said.stdout.as_str(), said.answer.status),
            ("5\n", Some(0)),
            "after {code}: {said:?}"
        );
    }
    for _ in 0..50 {
        live.signal();
        let said = live.call("echo $x");
        assert!(
            said.stdout == "5\n" || said.answer.status == Some(130),
            "{said:?}"
        );
    }
}

#[test]
fn a_shell_leaves_when_it_is_told_to() {
    for (code, status, stdout) in [
        ("exit 3", Some(3), ""),
        ("trap 'echo last' EXIT; exit", Some(0), "last\n"),
        ("set -e; false; echo never", Some(1), ""),
        ("exec echo replaced", Some(0), "replaced\n"),
        ("kill -9 $$", None, ""),
    ] {
        let mut live = shell();
        let (said, ended) = live.last(code);
        assert_eq!(
            (ended, said.stdout.as_str(), said.stderr.as_str()),
            (status, stdout, ""),
            "{code}"
        );
    }
}

#[test]
fn a_shell_goes_on_or_ends_whatever_a_program_breaks() {
    for code in [
        "exec </dev/null >/dev/null 2>/dev/null",
        "exec 0<&- 1>&- 2>&- 3>&-",
        "exec 250>&- 249<&-",
        "PS1='$ ' PS2='> ' PROMPT_COMMAND='echo prompt'",
        "source() { :; }; printf() { :; }; trap() { :; }; alias source=false printf=false",
        "unset BASH_ENV PATH HOME TMPDIR; PATH=",
        "set -euo pipefail",
        "set -v; set -n",
        "set -o posix; shopt -u expand_aliases",
        "ulimit -n 20",
        "readonly PS1 PS2 PROMPT_COMMAND",
        "trap 'echo debug' DEBUG ERR RETURN CHLD",
        "ulimit -s 512; f() { f; }; f",
        "IFS=0123456789",
        "disown -a; kill -STOP $BASHPID & kill -CONT $!",
    ] {
        println!("{code}");
        let mut live = shell();
        live.send(code, &[], &[], b"");
        if live.wait().is_ok() {
            for code in ["x=2", "echo $x"] {
                live.send(code, &[], &[], b"");
                let Ok(said) = live.wait() else { break };
                assert_eq!(said.answer.number, live.number, "{code}");
            }
        }
    }
}
