//! Sessions of bash: state, errors, interrupts, and programs that break their environment.

use super::*;

fn shell() -> Driver {
    Driver::begin(Language::Shell)
}

#[test]
fn shell_keeps_its_state() {
    let mut live = shell();
    let check = |live: &mut Driver, code: &str, status: i32, stdout: &str| {
        let got = live.call(code);
        assert_eq!(
            (
                got.answer.status,
                got.answer.ok,
                got.stdout.as_str(),
                got.stderr.as_str()
            ),
            (Some(status), status == 0, stdout, ""),
            "{code}: {got:?}"
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
fn shell_gets_arguments_environment_and_input_of_each_call() {
    let mut live = shell();
    let arguments = ["a b", "it's", "--"].map(|word| Argument::try_from(word.to_owned()).unwrap());
    let env = [("A", "$x 'é'\n\\"), ("B", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    live.send(
        "echo \"$#:$1:$2\"; printf '%s|%s' \"$A\" \"${B-unset}\"; od -An -tx1",
        &arguments,
        &env,
        b"\0%s'\xff\n",
    );
    let got = live.wait().unwrap();
    assert_eq!(
        got.stdout, "3:a b:it's\n$x 'é'\n\\| 00 25 73 27 ff 0a\n",
        "{got:?}"
    );
    let got = live.call("echo \"$#:$A\"; cat");
    assert_eq!(got.stdout, "0:$x 'é'\n\\\n");
}

#[test]
fn input_of_a_shell_may_begin_with_a_hyphen() {
    let mut live = shell();
    let long = format!("{}-n{}", "x".repeat(64 << 10), "y".repeat(64 << 10));
    for input in ["-n x\n", "---\na: 1\n", &long, &format!("-{long}")] {
        live.send("cat", &[], &[], input.as_bytes());
        let got = live.wait().unwrap();
        assert!(got.stdout == input && got.stderr.is_empty(), "{:.40}", got.stderr);
    }
}

#[test]
fn readonly_shell_variable_fails_the_call_or_bridge() {
    let mut live = shell();
    let env = [("A", "1"), ("UID", "5"), ("B", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    live.send("echo ran", &[], &env, b"");
    let got = live.wait().unwrap();
    assert!(
        !got.answer.ok && got.stdout.is_empty() && got.stderr.contains("UID: readonly variable"),
        "{got:?}"
    );
    for value in ["\"7\"", "[1]", "{\"a\":1}"] {
        assert!(!live.set("UID", value).ok, "{value}");
    }
    let got = live.call("echo $UID");
    assert!(got.stdout != "7\n" && got.stderr.is_empty(), "{got:?}");
}

#[test]
fn shell_error_ends_only_its_call() {
    let mut live = shell();
    live.call("x=5");
    for (code, status, shown) in [
        ("if", 2, "syntax error"),
        ("echo 'open", 2, "unexpected EOF"),
        ("nowhere_at_all", 127, "not found"),
        ("((1/0))", 1, "division"),
        ("set -x; echo 1", 0, "++ echo 1\n"),
        ("set +x; echo ${unset?missing}", 127, "missing"),
    ] {
        let got = live.call(code);
        assert!(got.stderr.contains(shown), "{code}: {got:?}");
        assert!(
            got.answer.status.is_some_and(|told| (told == 0) == (status == 0)),
            "{code}: {got:?}"
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
fn traced_shell_shows_only_the_callers_lines() {
    let mut live = shell();
    for (code, stdout, stderr) in [
        ("echo 0", "0\n", ""),
        ("set -x; echo 1", "1\n", "++ echo 1\n"),
        ("echo $# $LINENO\n(exit 3)", "1 1\n", "++ echo 1 1\n++ exit 3\n"),
        (
            "PS4='$(echo x)+ '; echo 2",
            "2\n",
            "++ PS4='$(echo x)+ '\nxx+ echo 2\n",
        ),
        ("set +x", "", "xx+ set +x\n"),
        ("echo 3", "3\n", ""),
        ("set -v", "", ""),
        ("echo 4\necho 5", "4\n5\n", "echo 5\n"),
        ("set +v; echo $-", "hiBs\n", ""),
    ] {
        let argument = Argument::try_from("a".to_owned()).unwrap();
        live.send(code, &[argument], &[], b"");
        let got = live.wait().unwrap_or_else(|_| panic!("{code}: ended"));
        assert_eq!(
            (got.stdout.as_str(), got.stderr.as_str()),
            (stdout, stderr),
            "{code}: {got:?}"
        );
        assert_eq!(
            got.answer.status,
            Some(if code.contains("exit") { 3 } else { 0 }),
            "{code}"
        );
    }
}

#[test]
fn traced_shell_keeps_its_last_background_process() {
    let mut live = shell();
    live.call("sleep 1000 & job=$!; set -x");
    let got = live.call("echo ${BASH_SOURCE[0]} $((job == $!)); kill $!; set +x");
    assert_eq!(got.stdout, "/dev/fd/249 1\n", "{got:?}");
    assert_eq!(live.call("wait $!").answer.status, Some(143));
}

#[test]
fn long_input_of_a_shell_arrives_or_fails_the_call() {
    let mut live = shell();
    live.call("TMPDIR=$PWD; exec() { echo replaced; }");
    let input = [&b"\0%s\\'\xff\n".repeat(40_000)[..], b"end"].concat();
    fs::write(live.directory.join("input"), &input).unwrap();
    live.send("cmp - input && wc -c <input; ls -A", &[], &[], &input);
    let got = live.wait().unwrap();
    assert_eq!(
        got.stdout,
        format!("{}\nerr\ninput\nout\noutput\n", input.len()),
        "{got:?}"
    );
    // The file of the input becomes too large.
    live.call("trap '' XFSZ; ulimit -S -f 100");
    live.send("echo ran", &[], &[], &input);
    let got = live.wait().unwrap();
    assert!(!got.answer.ok && got.stderr.contains("too large"), "{got:?}");
    assert_eq!(live.call("ls -A").stdout, "err\ninput\nout\noutput\n");
    live.call("TMPDIR=/nowhere");
    live.send("echo ran", &[], &[], &input);
    let got = live.wait().unwrap();
    assert!(!got.answer.ok && got.stdout.is_empty(), "{got:?}");
    assert!(got.stderr.contains("No such file"), "{got:?}");
    assert_eq!(live.call("TMPDIR=; echo next; cat").stdout, "next\n");
}

#[test]
fn shell_is_interrupted_at_any_code_and_keeps_its_state() {
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
        // Short programs, one after the other.
        ": >begun; while :; do /bin/true; done; echo never",
        ": >begun; while :; do (:); done; echo never",
        ": >begun; while :; do : | :; done; echo never",
        &format!("trap 'echo heard' INT; {sleep}; trap - INT; while :; do :; done; echo never"),
    ] {
        let got = live.interrupted(code);
        assert!(!got.answer.ok && !got.stdout.contains("never"), "{code}: {got:?}");
        let got = live.call("echo $x");
        assert_eq!(
            (got.stdout.as_str(), got.answer.status),
            ("5\n", Some(0)),
            "after {code}: {got:?}"
        );
    }
    for _ in 0..50 {
        live.signal();
        let got = live.call("echo $x");
        assert!(got.stdout == "5\n" || got.answer.status == Some(130), "{got:?}");
    }
}

#[test]
fn shell_session_ends_on_exit() {
    for (code, status, stdout) in [
        ("exit 3", Some(3), ""),
        ("trap 'echo last' EXIT; exit", Some(0), "last\n"),
        ("set -e; false; echo never", Some(1), ""),
        ("exec echo replaced", Some(0), "replaced\n"),
        ("kill -9 $$", None, ""),
    ] {
        let mut live = shell();
        let (got, ended) = live.last(code);
        assert_eq!(
            (ended, got.stdout.as_str(), got.stderr.as_str()),
            (status, stdout, ""),
            "{code}"
        );
    }
}

#[test]
fn shell_answers_or_ends_after_any_breakage() {
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
                let Ok(got) = live.wait() else { break };
                assert_eq!(got.answer.number, live.number, "{code}");
            }
        }
    }
}
