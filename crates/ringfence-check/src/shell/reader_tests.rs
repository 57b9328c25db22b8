//! Scripts, and the commands they are parsed into.

use super::{
    reader,
    syntax::{Script, ShellWord},
    variables::Variables,
};

fn read(code: &str) -> Script<'_> {
    reader::read(code, &mut Variables::default())
}

fn commands_of(code: &str) -> Vec<String> {
    let script = read(code);
    assert_eq!(script.faults, [], "{code}");
    let commands = script.commands.iter();
    let with_words = commands.filter(|command| !command.words.is_empty() || !command.assignments.is_empty());
    let texts = |words: &[ShellWord<'_>]| {
        words
            .iter()
            .flat_map(|word| word.fields.clone())
            .collect::<Vec<_>>()
    };
    with_words
        .map(|command| texts(&command.words).join("|"))
        .collect()
}

#[track_caller]
fn check(code: &str, expect: &[&str]) {
    assert_eq!(commands_of(code), expect, "{code}");
}

#[rustfmt::skip]
#[test]
fn words_are_expanded_as_in_bash() {
    check("r\\m -r'f' \"/\" # not this", &["rm|-rf|/"]);
    check("'r'm $'\\x72\\155' \"a\"b'c'", &["rm|rm|abc"]);
    check("{rm,-rf,/} {x} {a", &["{rm,-rf,/}|{x}|{a"]);
    check(
        "x=rm; y=\"-rf /\"; $x $y; $x \"$y\"",
        &["", "", "rm|-rf|/", "rm|-rf /"],
    );
    check(
        "x=r; x+=m; ${x} ${z:-rm} ${x:0:1}",
        &["", "", "\u{FFFD}|rm|\u{FFFD}"],
    );
    check("rm${IFS}-rf${IFS}/", &["rm|-rf|/"]);
    check(
        "$(echo rm) `printf %s rm` $(date)",
        &["echo|rm", "printf|%s|rm", "date", "\u{FFFD}|\u{FFFD}|\u{FFFD}"],
    );
    check(
        "a=(rm -rf /); \"${a[@]}\"; ${a[0]} $a",
        &["", "\u{FFFD}", "\u{FFFD}|\u{FFFD}"],
    );
    check(
        "x=a; y=$x; $y; eval \"$y\"",
        &["", "", "a", "eval|a"],
    );
    check("x=a; read x; $x", &["", "read|x", "\u{FFFD}"]);
    check("for d in / /etc; do rm $d; done", &["rm|/|/etc"]);
    check("echo ~ '~' \"$HOME\"/x", &["echo|~|./~|~/x"]);
    check("a 2>&1 b >f c <<<x d", &["a|b|c|d"]);
    check(
        "x=RM; ${x,,} ${!x} ${x/R/r} ${#x}",
        &["", "\u{FFFD}|\u{FFFD}|\u{FFFD}|\u{FFFD}"],
    );
}

#[rustfmt::skip]
#[test]
fn commands_are_found_in_all_constructs() {
    check(
        "if a; then b; elif c; then d; else e; fi",
        &["a", "b", "c", "d", "e"],
    );
    check("while a; do b; done; until c; do d; done", &["a", "b", "c", "d"]);
    check(
        "for i in 1; do a; done\nfor ((i=0; i<1; i++)); do b; done\nfor i; do c; done",
        &["a", "b", "c"],
    );
    check("case $x in a|b) c;; (d) e;& *) f; esac", &["c", "e", "f"]);
    check(
        "f() { a; }; function g { b; }; function h() (c)\ni ()\n{\nd\n}",
        &["a", "b", "c", "d"],
    );
    check(
        "(a; b) | { c; } && ! d || time -p e & coproc f",
        &["a", "b", "c", "d", "e", "f"],
    );
    check("[[ a == b && $(c) =~ ^(x|y)\\ z$ ]] && (( 1 + $(d) ))", &["c"]);
    check(
        "a \"$(b \"$(c)\")\" <(d) >(e)",
        &["c", "b|\u{FFFD}", "d", "e", "a|\u{FFFD}|\u{FFFD}|\u{FFFD}"],
    );
    check("cat <<E | b\nx $(c)\nE\nd", &["cat", "b", "c", "d"]);
    check("cat <<'E' <<-F\nx $(c)\nE\n\tf\n\tF\nd", &["cat", "d"]);
    check("a \\\n  b\r\nc", &["a|b", "c"]);
    check("select x in a b; do c; done", &["c"]);
    check(
        "declare -a x=(1 2) y; export A=b c",
        &["declare|-a|y", "export|c"],
    );
}

#[rustfmt::skip]
#[test]
fn scripts_refused_by_bash_have_faults() {
    for code in [
        "if a; then b", "while a; do b", "for i in a; do b", "case x in a) b", "{ a", "( a", "echo 'x", "echo \"x",
        "echo $(a", "echo `a", "echo ${x", "[[ a", "f() ", "fi", "done", "esac", "}", ")", "a | | b", "a &&", "a |",
        "; a", "if a; then b; done", "if; then a; fi", "if a; then fi", "a ;; b", "for x in a; b; done", "& a",
        "echo $'x", "x=(a", "while do a; done", "case x in a b) c;; esac", "a (b)", "> ", "{ }", "()",
    ] {
        assert_ne!(read(code).faults, [], "{code}");
    }
}

#[rustfmt::skip]
#[test]
fn hostile_nesting_terminates() {
    for piece in [
        "(", "{ ", "$(", "\"$(", "`", "${x:-", "((", "$((", "<(", "if ", "case x in a) ", "f() ", "[[ ", "\"", "<<A ",
        "((\n", "a=(",
    ] {
        let code = piece.repeat(100_000);
        assert!(read(&code).faults.len() <= 20, "{piece}");
    }
    assert_eq!(read(&"a ".repeat(500_000)).faults, []);
    assert_eq!(read(&"a;".repeat(200_000)).faults, []);
}
