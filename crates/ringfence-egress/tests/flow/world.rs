//! Egress of a sandbox, and an Internet for it: names that resolve as a test says, at addresses that look public.

use hickory_proto::{
    op::{Message, MessageType, OpCode, Query, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{A, AAAA},
    },
};
use ringfence_egress::{
    ApprovalHook, DEFAULT_PORTS, Dialer, DialerSettings, EgressEvent, EgressOwner, EgressReport, Lease,
    LeaseOptions, Limits, Purpose, Rules, Sockets, open,
};
use std::{
    collections::{BTreeSet, HashMap},
    io::Write,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream, UdpSocket},
    sync::watch,
};

/// Set in the process that runs below `unshare`.
const INSIDE: &str = "RINGFENCE_EGRESS_INSIDE";
/// Address of the sandbox's name server and of its proxy.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const RESOLVER: &str = "127.0.0.53:53";
/// Addresses on the loopback of the network: the first two look public.
pub const PUBLIC: &str = "93.184.216.34";
pub const PUBLIC_TOO: &str = "93.184.216.35";
pub const PRIVATE: &str = "10.0.0.5";
/// Maximum wait of a test for anything.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a test in a network namespace of its own.
#[allow(
    clippy::disallowed_methods,
    reason = "the test runs itself again, below unshare"
)]
pub fn within<Test: Future<Output = ()>>(test: Test) {
    if std::env::var(INSIDE).is_ok() {
        set_up();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        return runtime.expect("a runtime").block_on(test);
    }
    let path = std::any::type_name::<Test>();
    let name = path
        .split_once("::")
        .and_then(|(_, name)| name.strip_suffix("::{{closure}}"));
    let run = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            name.expect("the test's name"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(INSIDE, "yes")
        .output()
        .expect("unshare is here");
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (lossy(&run.stdout), lossy(&run.stderr));
    if !out.contains("running 1 test") {
        let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|word| word.trim() == "userns"),
            "RINGFENCE_REQUIRE asks for userns: {err}"
        );
        eprintln!("skipped: this machine gives no network namespace: {err}");
        return;
    }
    assert!(run.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

#[allow(clippy::disallowed_methods, reason = "the network is set up by its tool")]
fn set_up() {
    let mut ip = std::process::Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("ip (iproute2) is here");
    let mut lines = ip.stdin.take().expect("its input");
    writeln!(lines, "link set lo up\nroute add local 198.18.0.0/15 dev lo").expect("written");
    for address in [PUBLIC, PUBLIC_TOO, PRIVATE] {
        writeln!(lines, "address add {address}/32 dev lo").expect("written");
    }
    drop(lines);
    assert!(ip.wait().expect("ip").success());
}

/// Addresses of each name: one list for each lookup in turn, the last one for all later lookups.
pub type Zone = HashMap<String, Vec<Vec<IpAddr>>>;

/// A sandbox with egress.
pub struct World {
    pub lease: Lease,
    pub rules: watch::Sender<Arc<Rules>>,
    pub events: Arc<Mutex<Vec<EgressEvent>>>,
    looked_up: Arc<Mutex<Vec<String>>>,
    zone: Arc<Mutex<Zone>>,
}

/// Options of a test.
pub struct WorldOptions {
    pub rules: Vec<&'static str>,
    pub private: Vec<&'static str>,
    pub limits: Limits,
    pub approval: Option<Arc<dyn ApprovalHook>>,
}

impl WorldOptions {
    pub fn rules(rules: &[&'static str]) -> Self {
        Self {
            rules: rules.to_vec(),
            private: Vec::new(),
            limits: Limits {
                connections: 64,
                connections_per_namespace: 256,
                bytes_out: u64::MAX,
                bytes_in: u64::MAX,
                connection_time: Duration::from_secs(60),
                idle: Duration::from_secs(30),
                connect: Duration::from_secs(5),
                hello: Duration::from_secs(5),
            },
            approval: None,
        }
    }

    pub fn private(mut self, private: &[&'static str]) -> Self {
        self.private = private.to_vec();
        self
    }

    pub fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    pub fn approval(mut self, approval: Arc<dyn ApprovalHook>) -> Self {
        self.approval = Some(approval);
        self
    }

    pub async fn world(self) -> World {
        let zone = Arc::new(Mutex::new(Zone::new()));
        let looked_up = Arc::new(Mutex::new(Vec::new()));
        let resolver = UdpSocket::bind(RESOLVER).await.expect("the Internet's resolver");
        tokio::spawn(resolve(resolver, zone.clone(), looked_up.clone()));
        let settings = DialerSettings {
            resolvers: vec![RESOLVER.parse().expect("an address")],
            private: self
                .private
                .iter()
                .map(|rule| rule.parse().expect("a rule"))
                .collect(),
            limits: self.limits,
        };
        let dialer = Dialer::new(settings).expect("an outside");
        let rules = Rules::parse(&self.rules).expect("rules");
        let usual = self.approval.iter().flat_map(|_| DEFAULT_PORTS);
        let ports: BTreeSet<u16> = rules.ports().into_iter().chain(usual).collect();
        let ports = ports
            .into_iter()
            .map(|port| (port, listen(Ipv4Addr::UNSPECIFIED, port)))
            .collect();
        let dns_udp = std::net::UdpSocket::bind((GATEWAY, 53)).expect("the sandbox's resolver");
        let sockets = Sockets {
            dns_udp: dns_udp.into(),
            dns_tcp: listen(GATEWAY, 53),
            proxy: listen(GATEWAY, 3128),
            observer: Some(first_segments()),
            ports,
        };
        let (sender, rules) = watch::channel(Arc::new(rules));
        let events = Arc::new(Mutex::new(Vec::new()));
        let recorded = events.clone();
        let options = LeaseOptions {
            purpose: Purpose::Programs,
            owner: EgressOwner {
                namespace: "default".to_owned().try_into().expect("a namespace"),
                id: "test".to_owned(),
            },
            rules,
            inspection: None,
            events: Arc::new(move |what| recorded.lock().expect("not poisoned").push(what)),
            approval: self.approval,
        };
        let lease = open(&dialer, sockets, options).expect("a lease");
        World {
            lease,
            rules: sender,
            events,
            looked_up,
            zone,
        }
    }
}

/// Returns a raw socket that receives every segment; the filter of a real sandbox's socket only reduces its work.
fn first_segments() -> OwnedFd {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP)).expect("a raw socket")
}

/// Returns a listener as a sandbox's helper makes it; the Internet listens on the same ports elsewhere on this machine.
pub fn listen(address: Ipv4Addr, port: u16) -> OwnedFd {
    let listener = bound(SocketAddr::from((address, port)))
        .listen(1024)
        .expect("listening");
    listener.into_std().expect("a listener").into()
}

/// Returns a socket that shares its port with one at another address.
pub fn bound(address: SocketAddr) -> TcpSocket {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }
    .expect("a socket");
    socket.set_reuseport(true).expect("shared");
    socket.set_reuseaddr(true).expect("shared");
    socket.bind(address).expect("bound");
    socket
}

impl World {
    pub async fn with(rules: &[&'static str]) -> Self {
        WorldOptions::rules(rules).world().await
    }

    /// Returns a world with these rules and a host `api.test`.
    pub async fn with_api(rules: &[&'static str]) -> Self {
        let world = Self::with(rules).await;
        world.resolves("api.test", &[PUBLIC]);
        world
    }

    /// Returns a world with a host `api.test` and other limits.
    pub async fn limited(rules: &[&'static str], change: impl FnOnce(&mut Limits)) -> Self {
        let world = WorldOptions::rules(rules).limits(change).world().await;
        world.resolves("api.test", &[PUBLIC]);
        world
    }

    /// Makes the name resolve to these addresses from now on.
    pub fn resolves(&self, name: &str, addresses: &[&str]) {
        self.resolves_in_turn(name, &[addresses]);
    }

    /// Makes the name resolve to these lists from now on, one after the other.
    pub fn resolves_in_turn(&self, name: &str, turns: &[&[&str]]) {
        let turns = turns.iter().map(|turn| {
            turn.iter()
                .map(|text| text.parse().expect("an address"))
                .collect()
        });
        self.zone
            .lock()
            .expect("not poisoned")
            .insert(name.to_owned(), turns.collect());
    }

    pub fn set_rules(&self, rules: &[&str]) {
        self.rules
            .send_replace(Arc::new(Rules::parse(rules).expect("rules")));
    }

    /// Resolves a name as a program in the sandbox does.
    pub async fn lookup(&self, name: &str) -> Result<Ipv4Addr, ResponseCode> {
        lookup(name).await
    }

    /// Connects as a program does: by name.
    pub async fn connect(&self, name: &str, port: u16) -> TestClient {
        let address = self.lookup(name).await.expect("an address");
        TestClient::to((address, port)).await
    }

    /// Connects, sends nothing, and reads until the end.
    pub async fn probe(&self, name: &str, port: u16) -> (Vec<u8>, End) {
        probe((self.lookup(name).await.expect("an address"), port)).await
    }

    /// Sends a request and returns the answer, read until the host closes.
    pub async fn answer(&self, name: &str, port: u16, request: impl AsRef<[u8]>) -> String {
        self.connect(name, port).await.answer(request).await
    }

    /// Returns a connection over which the host has echoed these bytes.
    pub async fn echoed(&self, name: &str, port: u16, bytes: impl AsRef<[u8]>) -> TestClient {
        let mut client = self.connect(name, port).await;
        client.check_echo(bytes).await;
        client
    }

    /// True if the host echoes a byte.
    pub async fn is_served(&self, name: &str, port: u16) -> bool {
        let address = self.lookup(name).await.expect("an address");
        let Ok(mut stream) = TcpStream::connect((address, port)).await else {
            return false;
        };
        drop(stream.write_all(b"a").await);
        matches!(in_time(stream.read_u8()).await, Ok(b'a'))
    }

    pub async fn proxy(&self) -> TestClient {
        TestClient::to((GATEWAY, 3128)).await
    }

    /// Returns a connection on which a tunnel was requested from the proxy.
    pub async fn tunnel(&self, target: &str) -> TestClient {
        let mut client = self.proxy().await;
        client
            .send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"))
            .await;
        client
    }

    /// Names that were looked up at the Internet's resolver.
    pub fn looked_up(&self) -> Vec<String> {
        self.looked_up.lock().expect("not poisoned").clone()
    }

    /// Takes the rules that denied something since the last report, with what they denied.
    pub fn denied(&self) -> Vec<(String, String)> {
        let denials = self.lease.take_report().denials;
        denials
            .into_iter()
            .map(|denial| (denial.rule, denial.what))
            .collect()
    }

    /// Waits for a denial and returns it.
    pub async fn denial(&self) -> ringfence_types::Denial {
        for _ in 0..200 {
            if let Some(denial) = self.lease.take_report().denials.into_iter().next() {
                return denial;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nothing was denied");
    }

    /// Waits for a denial by this rule, with these words.
    pub async fn is_denied(&self, rule: &str, words: &str) {
        let denial = self.denial().await;
        assert!(
            denial.rule == rule && denial.what.contains(words),
            "{rule} {words}: {denial:?}"
        );
    }

    pub fn report(&self) -> EgressReport {
        self.lease.take_report()
    }
}

pub async fn lookup(name: &str) -> Result<Ipv4Addr, ResponseCode> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a socket");
    let mut query = Message::query();
    query.metadata.recursion_desired = true;
    query.add_query(Query::query(
        Name::from_ascii(format!("{name}.")).expect("a name"),
        RecordType::A,
    ));
    socket
        .send_to(&query.to_vec().expect("a query"), (GATEWAY, 53))
        .await
        .expect("sent");
    let mut answer = [0; 4096];
    let (bytes, _) = in_time(socket.recv_from(&mut answer)).await.expect("an answer");
    let answer = Message::from_vec(&answer[..bytes]).expect("an answer");
    let address = answer.answers.iter().find_map(|record| match record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    });
    address.ok_or(answer.metadata.response_code)
}

/// The Internet's resolver.
async fn resolve(socket: UdpSocket, zone: Arc<Mutex<Zone>>, looked_up: Arc<Mutex<Vec<String>>>) {
    let mut query = [0; 4096];
    while let Ok((bytes, from)) = socket.recv_from(&mut query).await {
        let query = Message::from_vec(&query[..bytes]).expect("a query");
        let answer = answered(&query, &mut zone.lock().expect("not poisoned"), &looked_up);
        socket.send_to(&answer, from).await.expect("sent");
    }
}

fn answered(query: &Message, zone: &mut Zone, looked_up: &Mutex<Vec<String>>) -> Vec<u8> {
    let question = query.queries.first().expect("a question").clone();
    let name = question.name().to_ascii().trim_end_matches('.').to_owned();
    let mut answer = Message::response(query.metadata.id, OpCode::Query);
    answer.metadata.message_type = MessageType::Response;
    answer.add_query(question.clone());
    match zone.get_mut(&name) {
        None => answer.metadata.response_code = ResponseCode::NXDomain,
        Some(turns) => {
            for address in &turns[0] {
                let data = match (address, question.query_type()) {
                    (IpAddr::V4(address), RecordType::A) => RData::A(A(*address)),
                    (IpAddr::V6(address), RecordType::AAAA) => RData::AAAA(AAAA(*address)),
                    _ => continue,
                };
                answer.add_answer(Record::from_rdata(question.name().clone(), 0, data));
            }
            if turns.len() > 1 && question.query_type() == RecordType::A {
                turns.remove(0);
            }
        }
    }
    looked_up.lock().expect("not poisoned").push(name);
    answer.to_vec().expect("an answer")
}

/// Waits for at most [`TIMEOUT`].
pub async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, what).await.expect("in time")
}

/// A program's end of a connection.
pub struct TestClient(pub TcpStream);

/// Connects to an address, sends nothing, and reads until the end. A reset may arrive before the program knows that it
/// is connected.
pub async fn probe(address: (Ipv4Addr, u16)) -> (Vec<u8>, End) {
    match in_time(TcpStream::connect(address)).await {
        Ok(stream) => TestClient(stream).read_to_end().await,
        Err(_) => (Vec::new(), End::Reset),
    }
}

/// Returns a request to `api.test`.
pub fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: api.test\r\n\r\n")
}

/// Asserts the status of an answer, and that it contains these words.
pub fn assert_answer(answer: &str, status: &str, words: &str) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(words),
        "{status} {words}: {answer}"
    );
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Closed,
    Reset,
}

impl TestClient {
    pub async fn to(address: (Ipv4Addr, u16)) -> Self {
        Self(in_time(TcpStream::connect(address)).await.expect("connected"))
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        in_time(self.0.write_all(bytes.as_ref())).await.expect("sent");
    }

    /// Sends a request to `api.test` for this target.
    pub async fn get(&mut self, target: &str) {
        self.send(get(target)).await;
    }

    /// Sends a request and reads the answer until the end.
    pub async fn answer(&mut self, request: impl AsRef<[u8]>) -> String {
        self.send(request).await;
        self.read_text().await
    }

    /// Sends bytes and asserts that they are echoed.
    pub async fn check_echo(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.send(bytes).await;
        assert_eq!(self.read_exact(bytes.len()).await, bytes);
    }

    /// Sends bytes, even if the other end no longer reads.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) {
        drop(in_time(self.0.write_all(bytes.as_ref())).await);
    }

    /// Shuts down the sending side.
    pub async fn shut_down(&mut self) {
        self.0.shutdown().await.expect("shut down");
    }

    /// Reads exactly this number of bytes.
    pub async fn read_exact(&mut self, bytes: usize) -> Vec<u8> {
        let mut received = vec![0; bytes];
        in_time(self.0.read_exact(&mut received)).await.expect("received");
        received
    }

    /// Reads everything until these bytes.
    pub async fn read_until(&mut self, end: &str) -> String {
        let mut received = Vec::new();
        while !received.ends_with(end.as_bytes()) {
            let mut byte = [0];
            match in_time(self.0.read(&mut byte)).await {
                Ok(1..) => received.push(byte[0]),
                other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&received)),
            }
        }
        String::from_utf8(received).expect("text")
    }

    /// Reads everything until the end, and returns how the connection ended.
    pub async fn read_to_end(&mut self) -> (Vec<u8>, End) {
        let mut received = Vec::new();
        let end = in_time(self.0.read_to_end(&mut received)).await;
        (received, if end.is_ok() { End::Closed } else { End::Reset })
    }

    pub async fn read_text(&mut self) -> String {
        String::from_utf8(self.read_to_end().await.0).expect("text")
    }
}
