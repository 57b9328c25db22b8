//! The outside of the egress cases, all on this host's loopback: a name server, a web server, and a host that speaks TLS
//! and asks who calls.

use crate::command::{capture, command};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

pub const NAME: &str = "api.allowed.test";

/// The ports of both.
pub struct Outside {
    pub names: u16,
    pub web: u16,
}

pub fn begin() -> std::io::Result<Outside> {
    let names = UdpSocket::bind("127.0.0.1:0")?;
    let web = TcpListener::bind("127.0.0.1:0")?;
    let outside = Outside {
        names: names.local_addr()?.port(),
        web: web.local_addr()?.port(),
    };
    thread::spawn(move || answer(&names));
    thread::spawn(move || serve(&web));
    Ok(outside)
}

/// Every name has the address of this host's loopback; other kinds of records have no answer.
fn answer(socket: &UdpSocket) {
    let mut query = [0; 512];
    while let Ok((count, from)) = socket.recv_from(&mut query) {
        let Some(end) = query[12..count]
            .iter()
            .position(|byte| *byte == 0)
            .map(|at| at + 12 + 5)
        else {
            continue;
        };
        let is_address = query[end - 3] == 1;
        let mut reply = query[..end].to_vec();
        (reply[2], reply[3]) = (0x81, 0x80);
        reply[4..12].copy_from_slice(&[0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
        if is_address {
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
        }
        drop(socket.send_to(&reply, from));
    }
}

fn serve(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        thread::spawn(move || {
            drop(stream.read(&mut [0; 4096]));
            let body = "hello from outside";
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            drop(stream.write_all(format!("{head}{body}").as_bytes()));
        });
    }
}

/// What `api.test` hears in the place of the program's word for it.
pub const SECRET: &str = "Tok3n-of/the+Backends=7y";

/// `api.test` and `read.test`, with a certificate of an authority that no host knows.
pub struct Tls {
    pub port: u16,
    directory: PathBuf,
    heard: Mutex<mpsc::Receiver<String>>,
    process: Child,
}

impl Tls {
    pub fn begin(root: &Path, directory: &Path) -> Result<Self, String> {
        for words in [
            "-subj /CN=root -keyout root.key -out root.pem",
            "-subj /CN=leaf -keyout leaf.key -out leaf.pem -CA root.pem -CAkey root.key -addext \
             basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:api.test,DNS:read.test",
        ] {
            let made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
            let mut openssl = command("openssl", made.split(' ').chain(words.split_whitespace()));
            openssl.current_dir(directory);
            capture(openssl)?;
        }
        let script = root.join("crates/ringfence/tests/egress/api.cjs");
        let mut node = command("node", [&script]);
        node.arg("127.0.0.1")
            .arg(directory)
            .arg("0")
            .stdout(Stdio::piped());
        let mut process = node.spawn().map_err(|error| format!("node: {error}"))?;
        let output = process.stdout.take().ok_or("node has no output")?;
        let (to, heard) = mpsc::channel();
        thread::spawn(move || {
            // Read to its end: a host that cannot write ends.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                drop(to.send(line));
            }
        });
        let port = heard.recv_timeout(Duration::from_secs(20)).ok();
        let port = port.and_then(|port| port.parse().ok());
        Ok(Self {
            port: port.ok_or("the host that speaks TLS does not begin")?,
            directory: directory.to_owned(),
            heard: Mutex::new(heard),
            process,
        })
    }

    /// All of one host, and of the other a path.
    pub fn allowed(&self) -> String {
        let port = self.port;
        format!(";api.test:{port};GET read.test:{port}/seen")
    }

    pub fn private(&self) -> String {
        let port = self.port;
        format!(";api.test:{port};read.test:{port}")
    }

    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            (
                "RINGFENCE_EGRESS_CA_FILE",
                self.directory.join("root.pem").display().to_string(),
            ),
            (
                "RINGFENCE_EGRESS_SECRETS",
                format!("default/TOKEN=api.test:{}", self.port),
            ),
            ("RINGFENCE_VAULT_STORE", "env".to_owned()),
            ("RINGFENCE_SECRET_DEFAULT_TOKEN", SECRET.to_owned()),
        ]
    }

    /// The next so many requests that it has heard, and any that came with them.
    pub fn heard(&self, count: usize) -> Vec<String> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let awaited = (0..count).map_while(|_| heard.recv_timeout(Duration::from_secs(10)).ok());
        let mut all: Vec<String> = awaited.collect();
        all.extend(heard.try_iter());
        all
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
