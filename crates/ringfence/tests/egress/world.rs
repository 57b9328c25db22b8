//! The test internet and the contacts that it received.

use crate::client::*;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

/// The user that Ringfence runs as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The user that runs the test.
    Same,
    /// uid 65534, without privileges in the network namespace of the test.
    Nobody,
}

pub struct World {
    contacts: Arc<Mutex<Vec<Value>>>,
    hosts: Child,
    /// One message for each mark of the hosts: they are ready, or have printed all earlier contacts.
    marks: mpsc::Receiver<()>,
    user: User,
    /// Directory of the certificates and of the server's state.
    pub directory: std::path::PathBuf,
}

impl World {
    /// Starts the hosts in the network namespace of this process.
    pub fn start(user: User) -> Self {
        let directory = std::env::temp_dir().join(format!("ringfence-egress-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        if user == User::Nobody {
            // This user cannot read the build directory.
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
        let contacts: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (marked, marks) = mpsc::channel();
        let kept = contacts.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let said: Value = serde_json::from_str(&line).unwrap();
                if said["mark"] == true {
                    // The receiver has been dropped.
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
            contacts,
            hosts,
            marks,
            user,
            directory,
        }
    }

    /// Sets the response, head and body, to requests for `HOST/PATH`.
    pub fn page(&self, place: &str, answer: impl AsRef<[u8]>) {
        let file = self.directory.join("pages").join(place);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, answer).unwrap();
    }

    pub fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// Makes a new authority, `root.pem`, and a certificate of it for these names, `leaf.pem`.
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

    /// Returns the DNS queries, connections and requests that the hosts received since the last call. It is complete,
    /// because the hosts print a mark only after all earlier contacts.
    pub fn contacts(&self) -> Vec<String> {
        writeln!(self.hosts.stdin.as_ref().unwrap(), "mark").unwrap();
        self.marks.recv_timeout(Duration::from_secs(30)).unwrap();
        let said = std::mem::take(&mut *self.contacts.lock().unwrap());
        let word = |one: Value| match (&one["dns"], &one["tcp"], &one["request"]) {
            (Value::String(name), ..) => format!("dns {name}"),
            (_, Value::String(address), _) => format!("tcp {address}:{}", one["port"]),
            (.., Value::String(line)) => format!("{line} of {}", one["host"].as_str().unwrap_or_default()),
            _ => one.to_string(),
        };
        said.into_iter().map(word).collect()
    }

    /// Ringfence with the DNS server of this internet as its only resolver.
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
        Server::from_command(command)
    }

    /// Runs `ringfence` with these arguments and settings and returns its output.
    pub fn run<const N: usize>(&self, words: &[&str], settings: [(&str, &str); N]) -> Output {
        self.ringfence(words).envs(settings).output().unwrap()
    }

    /// Waits for a pending approval request and returns the last one; more may follow.
    pub fn one_pending(&self) -> Value {
        let mut one = Value::Null;
        eventually(|| {
            one = self.pending().pop().unwrap_or_default();
            !one.is_null()
        });
        one
    }

    pub fn pending(&self) -> Vec<Value> {
        let listed = json_of(&self.run(&["approvals", "list", "--json"], []));
        let servers = listed["servers"].as_array().cloned().unwrap_or_default();
        let requests = servers.iter().filter_map(|server| server["requests"].as_array());
        requests.flatten().cloned().collect()
    }

    /// Answers the pending request as the operator in another terminal, and returns the request.
    pub fn answer(&self, words: &[&str]) -> Value {
        let request = self.one_pending();
        let words = [&["approvals", words[0], text_of(&request["id"])], &words[1..]].concat();
        run_successfully(self.ringfence(&words));
        request
    }

    /// A program of this host, run as the user that runs Ringfence here.
    pub fn as_user(&self, program: &Path) -> Command {
        command_as(self.user, program)
    }
}

/// A program that runs as this user.
pub fn command_as(user: User, program: &Path) -> Command {
    match user {
        User::Same => Command::new(program),
        User::Nobody => as_nobody(program),
    }
}

/// Environment variable with the path of a state directory in which packages are installed.
pub const STATE: &str = "RINGFENCE_TEST_STATE";

/// Ringfence as this user with this state directory; `copy` is the path of a binary that uid 65534 can run.
pub fn ringfence_of(user: User, copy: &Path, state: &Path, words: &[&str]) -> Command {
    let plain = ringfence(words);
    let mut command = match user {
        User::Same => Command::new(plain.get_program()),
        User::Nobody => {
            std::fs::create_dir_all(state).unwrap();
            std::os::unix::fs::chown(state, Some(NOBODY), Some(NOBODY)).unwrap();
            command_as(user, copy)
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
