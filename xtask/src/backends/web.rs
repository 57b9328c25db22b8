//! Servers for the egress cases, all on this host's loopback: a DNS server, a web server, and a TLS host that reports
//! the requests it gets.

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

/// Ports of the DNS server and the web server.
pub struct TestServers {
    pub dns_port: u16,
    pub web_port: u16,
}

pub fn start() -> std::io::Result<TestServers> {
    let names = UdpSocket::bind("127.0.0.1:0")?;
    let web = TcpListener::bind("127.0.0.1:0")?;
    let servers = TestServers {
        dns_port: names.local_addr()?.port(),
        web_port: web.local_addr()?.port(),
    };
    thread::spawn(move || answer_dns(&names));
    thread::spawn(move || serve_web(&web));
    Ok(servers)
}

/// Answers queries for the address of any name with 127.0.0.1, and other queries without a record.
fn answer_dns(socket: &UdpSocket) {
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

fn serve_web(listener: &TcpListener) {
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

/// Secret that `api.test` gets in place of the program's placeholder.
pub const SECRET: &str = "Tok3n-of/the+Backends=7y";

/// TLS host for `api.test` and `read.test`, with a certificate of an authority that no host trusts.
pub struct Tls {
    pub port: u16,
    directory: PathBuf,
    requests: Mutex<mpsc::Receiver<String>>,
    process: Child,
}

impl Tls {
    pub fn start(root: &Path, directory: &Path) -> Result<Self, String> {
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
        let (to, requests) = mpsc::channel();
        thread::spawn(move || {
            // Read to the end: the host ends if it cannot write.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                drop(to.send(line));
            }
        });
        let port = requests.recv_timeout(Duration::from_secs(20)).ok();
        let port = port.and_then(|port| port.parse().ok());
        Ok(Self {
            port: port.ok_or("the TLS host has not started")?,
            directory: directory.to_owned(),
            requests: Mutex::new(requests),
            process,
        })
    }

    /// Returns the rules: all of `api.test`, and one path of `read.test`.
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

    /// Waits for this many requests, and returns them with any others that have arrived.
    pub fn requests(&self, count: usize) -> Vec<String> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let awaited = (0..count).map_while(|_| requests.recv_timeout(Duration::from_secs(10)).ok());
        let mut all: Vec<String> = awaited.collect();
        all.extend(requests.try_iter());
        all
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
