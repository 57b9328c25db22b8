//! Random values planted outside of the sandbox, where an attack looks for them.

use crate::client::set_mode;
use std::{
    fs,
    io::Read,
    net::{TcpListener, UdpSocket},
    os::linux::net::SocketAddrExt,
    os::unix::net::{SocketAddr, UnixDatagram, UnixListener},
    path::{Path, PathBuf},
};

/// Files and sockets that contain or guard a secret. The files are removed on drop.
pub struct Canaries {
    pub token: String,
    pub home: PathBuf,
    pub tcp: TcpListener,
    pub udp: UdpSocket,
    pub unix: UnixListener,
    pub datagram: UnixDatagram,
    pub abstract_name: String,
    _abstract_socket: UnixListener,
}

fn random() -> String {
    let mut bytes = [0_u8; 12];
    fs::File::open("/dev/urandom")
        .unwrap()
        .read_exact(&mut bytes)
        .unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Canaries {
    /// Plants them below a directory that every user can enter, so that only the sandbox protects the canary.
    pub fn plant(owner: Option<u32>) -> Self {
        let token = format!("canary-{}", random());
        let home = std::env::temp_dir().join(format!("ringfence-escape-{}", random()));
        for path in [
            ".ssh/id_ed25519",
            ".aws/credentials",
            ".netrc",
            ".docker/config.json",
            ".kube/config",
            ".config/secret",
            "shared/file",
        ] {
            write(&home.join(path), &token);
        }
        let unix = UnixListener::bind(home.join("host.sock")).unwrap();
        let datagram = UnixDatagram::bind(home.join("host.dgram")).unwrap();
        let abstract_name = format!("ringfence-{}", random());
        let address = <SocketAddr as SocketAddrExt>::from_abstract_name(abstract_name.as_bytes()).unwrap();
        let abstract_socket = UnixListener::bind_addr(&address).unwrap();
        for socket in ["host.sock", "host.dgram"] {
            set_mode(home.join(socket), 0o777);
        }
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        for nonblocking in [
            tcp.set_nonblocking(true),
            udp.set_nonblocking(true),
            unix.set_nonblocking(true),
        ] {
            nonblocking.unwrap();
        }
        datagram.set_nonblocking(true).unwrap();
        if let Some(uid) = owner {
            chown_all(&home, uid);
        }
        Self {
            token,
            home,
            tcp,
            udp,
            unix,
            datagram,
            abstract_name,
            _abstract_socket: abstract_socket,
        }
    }

    /// Returns the first listener of the host that was reached since the last call.
    pub fn contacted(&self) -> Option<&'static str> {
        let mut buffer = [0; 64];
        if self.tcp.accept().is_ok() {
            return Some("TCP listener");
        }
        if self.udp.recv(&mut buffer).is_ok() {
            return Some("UDP socket");
        }
        if self.unix.accept().is_ok() {
            return Some("unix socket");
        }
        self.datagram
            .recv(&mut buffer)
            .is_ok()
            .then_some("unix datagram socket")
    }

    /// True if the planted SSH key still has its content.
    pub fn intact(&self) -> bool {
        fs::read_to_string(self.home.join(".ssh/id_ed25519")).is_ok_and(|text| text == self.token)
    }

    /// The environment variables of a probe, inside and outside the sandbox.
    pub fn variables(&self) -> Vec<(String, String)> {
        vec![
            ("CANARY_HOME".into(), self.home.display().to_string()),
            (
                "CANARY_TCP".into(),
                self.tcp.local_addr().unwrap().port().to_string(),
            ),
            (
                "CANARY_UDP".into(),
                self.udp.local_addr().unwrap().port().to_string(),
            ),
            ("CANARY_ABSTRACT".into(), self.abstract_name.clone()),
        ]
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.home));
    }
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn chown_all(path: &Path, uid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            chown_all(&entry.unwrap().path(), uid);
        }
    }
}
