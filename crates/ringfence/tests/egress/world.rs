//! The internet of a test, and what it has heard.

use crate::client::*;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

/// As whom Ringfence runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the test.
    Same,
    /// uid 65534, who has no right over the network namespace that all is in.
    Nobody,
}

pub struct World {
    heard: Arc<Mutex<Vec<Value>>>,
    hosts: Child,
    /// The hosts have said that they are there.
    marks: mpsc::Receiver<()>,
    user: User,
    /// Where its certificate and the server's state are.
    pub directory: std::path::PathBuf,
}

impl World {
    /// In the network namespace that this process is in.
    pub fn of(user: User) -> Self {
        let directory = std::env::temp_dir().join(format!("ringfence-egress-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        if user == User::Nobody {
            // Who cannot look into the directory of the build.
            link_program(&binary(), &directory.join("ringfence"));
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/egress/internet.py");
        let mut hosts = Command::new("python3")
            .arg(script)
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(hosts.stdout.take().unwrap()).lines();
        let heard: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (marked, marks) = mpsc::channel();
        let kept = heard.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let said: Value = serde_json::from_str(&line).unwrap();
                if said["mark"] == true {
                    // Nobody is left who asked.
                    if marked.send(()).is_err() {
                        break;
                    }
                } else {
                    kept.lock().unwrap().push(said);
                }
            }
        });
        marks.recv_timeout(Duration::from_secs(30)).unwrap();
        Self {
            heard,
            hosts,
            marks,
            user,
            directory,
        }
    }

    /// What is answered, head and body, to requests for a path of a host.
    pub fn page(&self, place: &str, answer: impl AsRef<[u8]>) {
        let file = self.directory.join("pages").join(place);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, answer).unwrap();
    }

    pub fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// An authority that no host knows, `root.pem`, and its certificate for these names, `leaf.pem`.
    pub fn certify(&self, names: &str) {
        let openssl = |words: &str| {
            let made = Command::new("openssl")
                .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(' '))
                .args(words.split(' '))
                .current_dir(&self.directory)
                .output()
                .unwrap();
            assert!(made.status.success(), "{made:?}");
        };
        openssl("-subj /CN=root -keyout root.key -out root.pem");
        openssl(&format!(
            "-subj /CN=leaf -keyout leaf.key -out leaf.pem -CA root.pem -CAkey root.key \
             -addext basicConstraints=critical,CA:FALSE -addext subjectAltName={names}"
        ));
    }

    /// What was heard since the last time: names that were asked for, and addresses that were reached. All of it that was
    /// before this question, because the hosts answer that in its turn.
    pub fn heard(&self) -> Vec<String> {
        writeln!(self.hosts.stdin.as_ref().unwrap(), "mark").unwrap();
        self.marks.recv_timeout(Duration::from_secs(30)).unwrap();
        let said = std::mem::take(&mut *self.heard.lock().unwrap());
        let word = |one: Value| match (&one["dns"], &one["tcp"], &one["request"]) {
            (Value::String(name), ..) => format!("dns {name}"),
            (_, Value::String(address), _) => format!("tcp {address}:{}", one["port"]),
            (.., Value::String(line)) => format!("{line} of {}", one["host"].as_str().unwrap_or_default()),
            _ => one.to_string(),
        };
        said.into_iter().map(word).collect()
    }

    /// Ringfence, told of this internet and of nothing else.
    pub fn ringfence(&self, words: &[&str]) -> Command {
        let state = std::env::var_os(STATE).map_or_else(|| self.directory.join("state"), Into::into);
        let mut command = ringfence_of(self.user, &self.directory.join("ringfence"), &state, words);
        command.env("RINGFENCE_EGRESS_RESOLVERS", "127.0.0.1:5353");
        command
    }

    /// A server with these settings.
    pub fn serve<const N: usize>(&self, settings: [(&str, &str); N]) -> Server {
        let mut command = self.ringfence(&["serve"]);
        command.envs(settings).stderr(Stdio::null());
        Server::of(command)
    }

    /// What `ringfence` says with these words and settings.
    pub fn said<const N: usize>(&self, words: &[&str], settings: [(&str, &str); N]) -> Output {
        self.ringfence(words).envs(settings).output().unwrap()
    }

    /// The request for an approval that waits; some other may still come.
    pub fn one_pending(&self) -> Value {
        let mut one = Value::Null;
        eventually(|| {
            one = self.pending().pop().unwrap_or_default();
            !one.is_null()
        });
        one
    }

    pub fn pending(&self) -> Vec<Value> {
        let listed = json_of(&self.said(&["approvals", "list", "--json"], []));
        let servers = listed["servers"].as_array().cloned().unwrap_or_default();
        let requests = servers.iter().filter_map(|server| server["requests"].as_array());
        requests.flatten().cloned().collect()
    }

    /// The operator at another terminal answers the request that waits.
    pub fn answer(&self, words: &[&str]) -> Value {
        let request = self.one_pending();
        let words = [&["approvals", words[0], text_of(&request["id"])], &words[1..]].concat();
        succeeded(self.ringfence(&words));
        request
    }

    /// A program of this host, started by whoever starts Ringfence here.
    pub fn as_its_user(&self, program: &Path) -> Command {
        started_by(self.user, program)
    }
}

/// A program, started by this user.
pub fn started_by(user: User, program: &Path) -> Command {
    match user {
        User::Same => Command::new(program),
        User::Nobody => as_nobody(program),
    }
}

/// The variable that names a state directory with packages in it, made where there is an index.
pub const STATE: &str = "RINGFENCE_TEST_STATE";

/// Ringfence of this user with this state directory; `copy`: the binary, where that user may start it.
pub fn ringfence_of(user: User, copy: &Path, state: &Path, words: &[&str]) -> Command {
    let plain = ringfence(words);
    let mut command = match user {
        User::Same => Command::new(plain.get_program()),
        User::Nobody => {
            std::fs::create_dir_all(state).unwrap();
            std::os::unix::fs::chown(state, Some(NOBODY), Some(NOBODY)).unwrap();
            started_by(user, copy)
        }
    };
    let given = plain.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command.args(words).env_clear().envs(given);
    command.env("RINGFENCE_STATE_DIR", state).stdin(Stdio::null());
    command
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.hosts.stdin.take());
        drop(self.hosts.kill());
        drop(self.hosts.wait());
        drop(std::fs::remove_dir_all(&self.directory));
    }
}
