//! Scripts that the rules for misread text, network use, empty variables and fork bombs report, and ordinary ones that
//! they do not.

use super::{check, tests::assert_found};
use crate::rule::Finding;
use ringfence_types::Severity::{Error, Info, Warning};

fn findings(rule: &str, code: &str) -> Vec<Finding> {
    let mut findings = check(code).findings;
    findings.retain(|finding| finding.rule.id.trim_start_matches("shell.") == rule);
    findings
}

#[track_caller]
fn assert_none(rule: &str, codes: &[&str]) {
    for code in codes {
        let found = findings(rule, code);
        assert!(found.is_empty(), "{code}\n{found:?}");
    }
}

#[rustfmt::skip]
#[test]
fn carriage_returns_at_line_ends_are_reported() {
    let rule = "carriage_return";
    assert_found(
        rule,
        Error,
        &[
            "if true; then\r\n  echo x\r\nfi\r\n", "for i in 1 2; do\r\necho $i\r\ndone\r\n",
            "while false\r\ndo\r\n:\r\ndone\r\n", "f() {\r\n  :\r\n}\r\n", "case x in\r\nx) ;;\r\nesac\r\n",
            "( a )\r\n",
        ],
    );
    assert_found(
        rule,
        Warning,
        &[
            "echo a\r\necho b\r\n", "#!/bin/bash\r\n\r\nls\r\n", "cat <<E\r\nx\r\nE\r\n", "x=1\r\necho $x",
        ],
    );
    assert_none(
        rule,
        &[
            "echo a\necho b\n", "cat <<E\nGET / HTTP/1.1\r\n\r\nE\n", "printf 'a\r\nb'\n", "# a comment\r\n",
            "tr -d '\\r' < x",
        ],
    );
    let once = findings(rule, "a\r\nb\r\nc\r\n");
    assert_eq!((once.len(), once[0].range.clone()), (1, 1..2));
    assert_none("syntax", &["if true; then\r\n  echo x\r\nfi\r\n"]);
    assert_none("here_document", &["cat <<E\r\nx\r\nE\r\n", "cat <<E\nx\nE\n"]);
    assert_found("here_document", Warning, &["cat <<E\r\nx\r\nE"]);
}

#[test]
fn removal_after_a_here_document_with_carriage_returns_is_found() {
    assert_found("remove_root", Error, &["cat <<E\r\nx\r\nE\r\nrm -rf /\r\n"]);
}

#[rustfmt::skip]
#[test]
fn unterminated_here_document_is_reported() {
    assert_found(
        "here_document",
        Warning,
        &[
            "cat <<E\nnever closed", "cat <<E", "cat <<E\nx\n E\n", "cat <<'END'\nx\nEND \n", "cat <<-E\n  E\n",
        ],
    );
    assert_none(
        "here_document",
        &[
            "cat <<E\nE", "cat <<E\nx\nE\n", "cat <<-E\n\tx\n\tE\n", "cat <<A <<'B'\nA\nB\n", "x=$(cat <<E\n)\nE\n)",
            "cat <<< E", "echo $((1 << 2))",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn bracket_without_blanks_is_reported() {
    assert_found(
        "bracket",
        Warning,
        &[
            "[$x -eq 1]", "if [$x = y]; then :; fi", "[-f x ] && echo", "[\"$x\" = y ]",
            "while [$i -lt 3 ]; do :; done", "[[$x == y ]]", "[ $x = y]", "sh -c '[$1 = x ]'",
        ],
    );
    assert_none(
        "bracket",
        &[
            "[ $x -eq 1 ]", "[[ $x == y ]]", "[[ $x =~ [a-z] ]]", "[ \"${a[0]}\" = x ]", "echo [$x]", "a[1]=2",
            "ls [a-z]*", "[ -n \"$x\" ] || [ -z \"$y\" ]", "case $x in [a-z]) ;; esac",
        ],
    );
    let finding = &findings("bracket", "[$x -eq 1]")[0];
    assert_eq!(finding.what, "`[` is a command and needs a blank behind it");
}

#[rustfmt::skip]
#[test]
fn commands_that_need_the_network_are_reported() {
    assert_found(
        "network",
        Info,
        &[
            "git clone https://example.com/x.git", "git clone git@example.com:x/y.git z", "git push origin main",
            "git fetch --all", "git submodule update --init", "rsync -a x host:/y", "rsync -av rsync://host/x y",
            "pip install requests", "pip3 install -r requirements.txt", "python3 -m pip install x", "pipx install x",
            "npm install", "npm ci", "npm i -g x", "yarn", "yarn add x", "pnpm add x",
            "apt-get update && sudo apt-get install -y curl", "apt install x", "apk add --no-cache x",
            "dnf install x", "yum -y install x", "docker pull x", "docker push x", "cargo install ripgrep",
            "gem install rails", "go get example.com/x", "go install example.com/x@latest", "curl x",
            "ssh host uptime",
        ],
    );
    assert_none(
        "network",
        &[
            "git status", "git commit -m 'push'", "git log --oneline", "git remote -v", "rsync -a x/ y/",
            "rsync -a x ./a:b", "pip list", "python3 -m json.tool x", "npm run build", "npm test", "yarn build",
            "apt list", "docker ps", "docker build .", "cargo build", "go build ./...", "go mod init x", "gem list",
            "install -m 755 x y",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn network_finding_has_a_hint_for_package_installs() {
    let finding = &findings("network", "npm ci")[0];
    assert_eq!(finding.what, "`npm ci` fetches packages over the network");
    assert!(
        finding.hint
            .as_deref()
            .is_some_and(|hint| hint.contains("`install_package`"))
    );
    let finding = &findings("network", "git pull")[0];
    assert_eq!(
        (finding.what.as_str(), finding.hint.as_ref()),
        ("`git pull` uses the network", None)
    );
}

#[rustfmt::skip]
#[test]
fn possibly_empty_variable_before_a_slash_is_reported() {
    assert_found(
        "remove_root",
        Warning,
        &[
            "rm -rf \"$BUILD_DIR/\"", "rm -rf \"$BUILD_DIR\"/*", "rm -rf $X/*", "rm -rf \"${X:-}/\"",
            "rm -rf ${X}/ y", "rm -rf \"$A$B/\"", "X=$1\nrm -rf \"$X/\"*", "rm -rf \"$1/\"", "X=$(x)\nrm -rf $X/*",
            "sudo rm -rf $X/*", "read -r X; rm -rf \"$X\"/*", "sh -c 'rm -rf \"$X/\"'",
        ],
    );
    assert_none(
        "remove_root",
        &[
            "rm -rf \"${X:?}/\"", "rm -rf \"${X:?not set}\"/*", "X=build; rm -rf \"$X/\"",
            "X=build/$1; rm -rf \"$X/\"*", "X=$(mktemp -d); rm -rf \"$X\"/*", "set -u; rm -rf \"$X/\"",
            "set -euo pipefail\nrm -rf $X/*", "set -o nounset; rm -rf $X/*", "#!/bin/bash -u\nrm -rf $X/*",
            "set -e; X=$(x); rm -rf $X/*", "[ -n \"$X\" ] || exit 1; rm -rf \"$X/\"",
            "[[ -z $X ]] && exit; rm -rf $X/*", ": \"${X:?}\"; rm -rf $X/*", ": \"${X:=build}\"; rm -rf $X/*",
            "rm -rf \"$X\"", "rm -rf \"$X/build\"", "rm -rf \"${X:-build}/\"", "rm \"$X/\"",
            "for d in a b; do rm -rf \"$d/\"; done", "for d in */; do rm -rf \"$d/\"*; done", "ls $X/*",
        ],
    );
    assert_found(
        "remove_root",
        Error,
        &["rm -rf \"${X:-/}\"", "X=; rm -rf \"$X/\""],
    );
    let finding = &findings("remove_root", "rm -rf \"$BUILD_DIR/\"*")[0];
    assert_eq!(
        finding.what,
        "`rm -rf \"$BUILD_DIR/\"*` removes everything where `BUILD_DIR` is empty"
    );
    assert!(
        finding.hint
            .as_deref()
            .is_some_and(|hint| hint.contains("`${BUILD_DIR:?}`"))
    );
}

#[rustfmt::skip]
#[test]
fn messages_quote_the_script() {
    let what = |code: &str, rule: &str| findings(rule, code)[0].what.clone();
    assert_eq!(
        what(
            "TMP=$(mktemp -d)\ntrap 'rm -rf \"${TMP:-}\"' EXIT",
            "file_deletion"
        ),
        "`rm -rf \"${TMP:-}\"` removes files"
    );
    assert_eq!(
        what("eval \"$(ssh-agent -s)\"", "dynamic_execution"),
        "what `eval \"$(ssh-agent -s)\"` runs is made at run time"
    );
    assert_eq!(
        what("x=rm; $x -rf /", "remove_root"),
        "`rm -rf /` removes everything"
    );
}

#[rustfmt::skip]
#[test]
fn listing_a_crontab_is_not_scheduling() {
    assert_none("schedule", &["crontab -l", "crontab -u me -l"]);
    assert_found("schedule", Warning, &["crontab -r", "crontab x", "crontab - < x"]);
}

#[rustfmt::skip]
#[test]
fn fork_bombs_are_found() {
    assert_found(
        "fork_bomb",
        Error,
        &[
            ":(){ :|:& };:", "bomb() { bomb | bomb & }; bomb", "function f { f & f & }\nf",
            "f() {\n  f |\n  f &\n}\nf", "$0 & $0 &", "./$0|./$0&", "perl -e 'fork while fork'",
            "python3 -c 'import os\nwhile True: os.fork()'", "sh -c ':(){ :|:& };:'", "while true; do bash $0 & done",
            "while :; do \"$0\" & done", "for i in 1 2 3; do sh \"$0\" & done", "bash $0 | bash $0 &",
            "f() { while true; do f & done; }; f",
        ],
    );
    assert_none(
        "fork_bomb",
        &[
            "f() { f2 | g & }\nf",
            "fib() { [ $1 -lt 2 ] && echo $1 && return; a=$(fib $(($1-1))); b=$(fib $(($1-2))); echo $((a+b)); }",
            "walk() { for f in \"$1\"/*; do [ -d \"$f\" ] && walk \"$f\"; done; }",
            "worker() { sleep 1; }; for i in 1 2 3; do worker & done; wait",
            "for i in 1 2 3; do bash \"$0\" --part $i & done; wait", "for i in 1 2 3; do \"$0\" $i & done; wait",
            "while true; do bash work.sh & wait; done", "echo \"usage: $0\" & echo $0 &",
        ],
    );
}

/// Nothing is computed: values made at run time are reported as such, or are unknown.
#[rustfmt::skip]
#[test]
fn run_time_values_are_not_guessed() {
    assert_found(
        "dynamic_execution",
        Warning,
        &[
            "printf 'rm -rf %s' / | bash", "cat x | sh", "$(echo rm) -rf /", "`echo rm` -rf /", "{rm,-rf,/}",
            "w=mr; $(echo $w | rev) -rf /",
        ],
    );
    assert_found("encoded_run", Warning, &["echo cm0gLXJmIC8= | base64 -d | sh"]);
    assert_found(
        "file_deletion",
        Info,
        &[
            "echo / | xargs rm -rf", "printf '/\\0' | xargs -0 rm -rf --", "echo 'a / b' | sudo xargs -n 1 rm -rf",
            "xargs -I{} rm -rf {} <<< /", "xargs --replace=% rm -rf % <<E\n/\nE",
            "echo / | xargs -I % sh -c 'rm -rf %'", "echo Lw== | base64 -d | xargs rm -rf",
        ],
    );
    for rule in ["dynamic_execution", "remove_root"] {
        assert_none(
            rule,
            &[
                "a=(rm -rf /); \"${a[@]}\"", "set -- rm -rf /; \"$@\"", "x=RM; ${x,,} -rf /",
                "$(command -v python3) x.py", "$(which node) x.js", "$CC -c x.c", "exec \"$@\"",
            ],
        );
    }
}
