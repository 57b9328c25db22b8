//! Operation of a server: metrics, traces, the log, and configuration changes while it runs.

use crate::client::*;
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{AnyValue, any_value},
    metrics::v1::{NumberDataPoint, metric, number_data_point},
    trace::v1::Span,
};
use prost::Message;
use ringfence_store::audit::{Action, Actions, Query, Record};
use rustix::process::Signal;
use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// A server with its own state directory, configuration file and log.
struct Served {
    server: Server,
    directory: TempDir,
}

impl Served {
    fn start(name: &str, config: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let directory = TempDir::new(name);
        let server = Server::from_command(serve(&directory, config, arguments, variables));
        Self { server, directory }
    }

    fn log(&self) -> String {
        self.directory.read("log")
    }

    /// Waits until the log contains this text, and returns the whole log.
    fn await_log(&self, text: &str) -> String {
        assert!(
            becomes_true_within(PATIENCE, || self.log().contains(text)),
            "no {text:?} in {}",
            self.log()
        );
        self.log()
    }

    /// Writes another configuration, and signals the server to read it.
    fn reconfigure(&self, config: &str) {
        self.directory.file("config.yaml", config);
        self.send_sighup();
    }

    fn send_sighup(&self) {
        signal(self.server.child.id(), Signal::HUP);
    }

    fn metrics_address(&self) -> SocketAddr {
        let log = self.await_log("metrics are answered");
        let line = log.lines().find(|line| line.contains("metrics are answered"));
        let line: Value = serde_json::from_str(line.unwrap()).unwrap();
        text_of(&line["fields"]["address"]).parse().unwrap()
    }

    /// Records of configuration changes, oldest first: outcome and details.
    fn changes(&self) -> Vec<(String, Value)> {
        let record = self.directory.0.join("state/record/audit.db");
        let query = Query {
            actions: Some(Actions::One(Action::ConfigChanged)),
            ..Query::default()
        };
        let page = ringfence_store::audit::query(&record, &query).unwrap();
        let change = |record: &Record| {
            (
                record.outcome.clone(),
                serde_json::from_str(&record.details).unwrap(),
            )
        };
        page.records.iter().map(change).collect()
    }
}

fn serve(directory: &TempDir, config: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let file = directory.file("config.yaml", config);
    let mut command = ringfence(&["serve", "--config", &file]);
    command
        .args(arguments)
        .env("RINGFENCE_STATE_DIR", directory.0.join("state"))
        .env("RINGFENCE_WARM_READY", "0")
        .envs(variables.iter().copied())
        .stderr(File::create(directory.0.join("log")).unwrap());
    command
}

/// Sends a request and reads until the end of the connection.
fn http_request(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn scrape(address: SocketAddr) -> String {
    http_request(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
}

#[test]
fn metrics_are_scraped_while_a_program_runs() {
    let mut served = Served::start("metrics", "", &["--metrics-listen", "127.0.0.1:0"], &[]);
    let address = served.metrics_address();
    served.server.call(
        "execute_code",
        json!({"language": "shell", "code": "true", "namespace": "somebody"}),
    );
    let id = served
        .server
        .send_run(json!({"language": "shell", "code": "sleep 158.3095"}));
    eventually(|| scrape(address).contains("ringfence_running 1\n"));
    let answer = scrape(address);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let kind = "\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    let count = "ringfence_executions_total{language=\"shell\",outcome=\"completed\"} 1\n";
    assert_contains(&answer, [kind, count]);
    assert!(answer.ends_with("# EOF\n") && !answer.contains("somebody"));
    served.server.cancel(id);
    eventually(|| scrape(address).contains("ringfence_running 0\n"));
    assert!(!served.log().contains("not a loopback"));
}

#[test]
fn metrics_endpoint_rejects_other_requests_and_drops_idle_connections() {
    let served = Served::start("strangers", "", &["--metrics-listen", "0.0.0.0:0"], &[]);
    let address = SocketAddr::from(([127, 0, 0, 1], served.metrics_address().port()));
    served.await_log("it is not a loopback address");
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        (
            "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            "405",
        ),
        ("nonsense\r\n\r\n", "400"),
        (
            &format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9000)),
            "431",
        ),
        (
            &format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(65)),
            "431",
        ),
    ] {
        let answer = http_request(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    // as many idle connections as are accepted: the next one waits until they are closed
    let begun = Instant::now();
    let idle: Vec<TcpStream> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(scrape(address).starts_with("HTTP/1.1 200"));
    let waited = begun.elapsed();
    assert!(
        (Duration::from_secs(3)..PATIENCE).contains(&waited),
        "{waited:?} with {}",
        idle.len()
    );
}

#[test]
fn metrics_address_in_use_stops_the_server_at_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = TempDir::new("taken");
    let mut command = serve(&directory, "", &["--metrics-listen", &address], &[]);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_contains(stderr_of(&output), [&address, "--metrics-listen"]);
    assert!(!directory.0.join("state/record").exists());
}

/// Arguments of a program with a timeout above some of the limits.
fn of_two_minutes() -> Value {
    json!({"language": "shell", "code": "true", "timeout_seconds": 120})
}

#[test]
fn sighup_applies_new_limits_and_notifies_the_client() {
    let mut served = Served::start("reload", "caps: {timeout_seconds: 300}", &[], &[]);
    served.server.call_ok("execute_code", of_two_minutes());
    let id = served.server.send("tools/list", json!({}));
    served.server.await_response(id);
    served.reconfigure(
        "{limits: {timeout_seconds: 5}, caps: {timeout_seconds: 100}, redact: {personal: true}, log: debug}",
    );
    let log = served.await_log("need a restart");
    let line = log.lines().find(|line| line.contains("need a restart")).unwrap();
    assert_contains(line, ["redact.personal"]);
    assert_lacks(line, ["caps"]);
    let id = served.server.send_run(of_two_minutes());
    let (answer, mut before) = served.server.await_response(id);
    let refused = &answer["result"]["structuredContent"];
    assert_eq!(refused["code"], "invalid_argument", "{refused}");
    refused.assert_text("message", ["100"]);
    if before.is_empty() {
        // The response and the notification arrive in either order.
        before.push(served.server.receive());
    }
    let methods = before.iter().filter_map(|message| message["method"].as_str());
    assert_eq!(methods.collect::<Vec<_>>(), ["notifications/tools/list_changed"]);
    let tools = served.server.rpc("tools/list", json!({}));
    let timeout = &tools["result"]["tools"][0]["inputSchema"]["properties"]["timeout_seconds"];
    assert_eq!(timeout["maximum"], 100, "{timeout}");
    let changes = served.changes();
    assert_eq!(changes.len(), 1);
    let (outcome, details) = &changes[0];
    let changed = json!(["limits.timeout_seconds", "caps.timeout_seconds", "log"]);
    assert_eq!((outcome.as_str(), &details["changed"]), ("ok", &changed));
    // raising a limit again takes effect, too
    served.reconfigure("{caps: {timeout_seconds: 300}, log: debug}");
    eventually(|| served.changes().len() == 2);
    served.server.call_ok("execute_code", of_two_minutes());
}

#[test]
fn stateless_subscriber_is_notified_of_changed_limits() {
    let directory = TempDir::new("listen");
    let command = serve(&directory, "", &[], &[]);
    let mut served = Served {
        server: Server::without_handshake(command),
        directory,
    };
    let meta = stateless_meta(json!({}));
    let wanted = json!({"toolsListChanged": true});
    let id = served.server.send(
        "subscriptions/listen",
        json!({"notifications": wanted, "_meta": meta}),
    );
    let notification = served.server.receive();
    notification.assert_fields(json!({"method": "notifications/subscriptions/acknowledged"}));
    assert_eq!(notification["params"]["notifications"], wanted, "{notification}");
    // a change of priorities does not change the tools
    served.reconfigure("queue: {priorities: [team=high]}");
    served.await_log("queue.priorities");
    served.reconfigure("caps: {timeout_seconds: 100}");
    let notification = served.server.receive();
    assert_eq!(
        notification["method"], "notifications/tools/list_changed",
        "{notification}"
    );
    let of = &notification["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    assert_eq!(of, &json!(id), "{notification}");
}

#[test]
fn invalid_configuration_on_reload_changes_nothing() {
    let mut served = Served::start("bad-file", "caps: {timeout_seconds: 100}", &[], &[]);
    let file = served.directory.0.join("config.yaml");
    served
        .server
        .call_error("execute_code", of_two_minutes(), "invalid_argument");
    // after an answer that needs the engine the audit record exists
    assert_eq!(served.server.execute("shell", "true")["success"], true);
    let mut failures = 0;
    for (invalid, part) in [
        ("caps: {timeout_seconds: 300, ram_mb: many}", "config.yaml:1"),
        (
            "{caps: {timeout_seconds: 300}, limits: {timeout_seconds: 301}}",
            "Raise the cap",
        ),
        ("caps: {timeout_secs: 300}", "timeout_seconds"),
        ("caps: [", "config.yaml"),
    ] {
        served.reconfigure(invalid);
        failures += 1;
        eventually(|| served.changes().len() == failures);
        let (outcome, details) = served.changes().pop().unwrap();
        assert_eq!(
            (outcome.as_str(), &details["code"]),
            ("failed", &json!("invalid_configuration"))
        );
        assert_contains(served.await_log("the configuration stays as it is"), [part]);
        served
            .server
            .call_error("execute_code", of_two_minutes(), "invalid_argument");
    }
    // a FIFO would be read as an empty file, and a missing file would mean the default limits only
    fs::remove_file(&file).unwrap();
    served.send_sighup();
    eventually(|| served.changes().len() == failures + 1);
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    served.send_sighup();
    eventually(|| served.changes().len() == failures + 2);
    served.await_log("is not a plain file");
    served
        .server
        .call_error("execute_code", of_two_minutes(), "invalid_argument");
}

#[test]
fn default_configuration_missing_on_reload_keeps_its_limits() {
    let directory = TempDir::new("vanish");
    let file = directory.file(
        "home/.config/ringfence/config.yaml",
        "caps: {timeout_seconds: 100}",
    );
    let mut command = ringfence(&["serve"]);
    command
        .env("HOME", directory.0.join("home"))
        .env("RINGFENCE_STATE_DIR", directory.0.join("state"))
        .env("RINGFENCE_WARM_READY", "0")
        .stderr(File::create(directory.0.join("log")).unwrap());
    let server = Server::from_command(command);
    let mut served = Served { server, directory };
    let refused = served.server.call("execute_code", of_two_minutes());
    assert_eq!(refused["isError"], true, "{refused}");
    fs::remove_file(file).unwrap();
    served.send_sighup();
    served.await_log("config.yaml is gone");
    assert_eq!(
        served.server.call("execute_code", of_two_minutes())["isError"],
        true
    );
}

/// A text that an error about the configuration repeats: with it as a secret of the vault, and without, as the control.
/// claim: [SEC-2]
#[test]
fn secret_in_an_error_message_is_redacted_in_the_log() {
    const SECRET: &str = "canary-61d0f3";
    for (variables, is_secret) in [
        (
            [
                ("RINGFENCE_VAULT_STORE", "env"),
                ("RINGFENCE_SECRET_DEFAULT_KEY", SECRET),
            ]
            .as_slice(),
            true,
        ),
        (&[], false),
    ] {
        let mut served = Served::start("secret-log", "", &[], variables);
        let done = served.server.execute("shell", "true");
        assert_eq!(done["success"], true);
        served.reconfigure(&format!("{SECRET}: 1"));
        let log = served.await_log("the configuration stays as it is");
        assert_eq!(!log.contains(SECRET), is_secret, "{log}");
        assert_eq!(log.contains("***REDACTED***"), is_secret, "{log}");
        eventually(|| !served.changes().is_empty());
        let (_, details) = served.changes().pop().unwrap();
        assert_eq!(!details.to_string().contains(SECRET), is_secret, "{details}");
        for line in log.lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
    }
}

/// An OTLP collector that receives batches until the test ends.
struct Collector {
    address: String,
    batches: mpsc::Receiver<(String, Vec<u8>)>,
}

impl Collector {
    fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/otlp", socket.local_addr().unwrap());
        let (sender, batches) = mpsc::channel();
        thread::spawn(move || {
            for stream in socket.incoming() {
                let batch = receive_request(stream.unwrap());
                if sender.send(batch).is_err() {
                    return;
                }
            }
        });
        Self { address, batches }
    }

    fn receive(&self) -> (String, Vec<u8>) {
        self.batches.recv_timeout(PATIENCE).unwrap()
    }

    /// Receives until there are at least 5 spans, a count and a histogram.
    fn collect_all(&self) -> Collected {
        let mut all = Collected::default();
        while !(all.spans.len() >= 5 && !all.counts.is_empty() && !all.histograms.is_empty()) {
            let (path, batch) = self.receive();
            match path.as_str() {
                "/otlp/v1/traces" => all.add_traces(&batch),
                "/otlp/v1/metrics" => all.add_metrics(&batch),
                other => panic!("{other}"),
            }
        }
        all
    }
}

/// Reads one request, answers it with 200, and returns its path and body.
fn receive_request(mut stream: TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "cut: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..count]);
        let Some(head_bytes) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(bytes[..head_bytes].to_vec())
            .unwrap()
            .to_lowercase();
        assert!(
            head.starts_with("post ") && head.contains("\r\ncontent-type: application/x-protobuf"),
            "{head}"
        );
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.split_whitespace().next().unwrap().parse().unwrap();
        if bytes.len() == head_bytes + 4 + length {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .unwrap();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            return (path, bytes.split_off(head_bytes + 4));
        }
    }
}

/// Telemetry that a collector received.
#[derive(Default)]
struct Collected {
    spans: Vec<Span>,
    /// `ringfence.executions`: language, outcome, value.
    counts: Vec<(String, String, i64)>,
    /// `ringfence.execution.duration`: count, and sum in seconds.
    histograms: Vec<(u64, f64)>,
}

impl Collected {
    fn add_traces(&mut self, batch: &[u8]) {
        let request = ExportTraceServiceRequest::decode(batch).unwrap();
        for resource in request.resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            let service = attributes.iter().find(|pair| pair.key == "service.name").unwrap();
            assert_eq!(text(service.value.as_ref()), "ringfence");
            let scopes = resource.scope_spans.into_iter();
            self.spans.extend(scopes.flat_map(|scope| scope.spans));
        }
    }

    fn add_metrics(&mut self, batch: &[u8]) {
        let request = ExportMetricsServiceRequest::decode(batch).unwrap();
        let scopes = request
            .resource_metrics
            .into_iter()
            .flat_map(|resource| resource.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            match (metric.name.as_str(), metric.data.unwrap()) {
                ("ringfence.executions", metric::Data::Sum(sum)) => {
                    assert!(sum.is_monotonic);
                    self.counts = sum.data_points.iter().map(count).collect();
                }
                ("ringfence.execution.duration", metric::Data::Histogram(histogram)) => {
                    assert_eq!(metric.unit, "s");
                    let points = histogram.data_points.iter();
                    self.histograms = points.map(|point| (point.count, point.sum.unwrap())).collect();
                }
                (other, _) => panic!("{other}"),
            }
        }
    }

    fn execution(&self) -> &Span {
        self.spans.iter().find(|span| span.name == "execution").unwrap()
    }
}

fn count(point: &NumberDataPoint) -> (String, String, i64) {
    let Some(number_data_point::Value::AsInt(value)) = point.value else {
        panic!("{point:?}");
    };
    let keys: Vec<&str> = point.attributes.iter().map(|pair| pair.key.as_str()).collect();
    assert_eq!(keys.len(), 2, "a namespace is no label: {keys:?}");
    let of = |key: &str| {
        let pair = point.attributes.iter().find(|pair| pair.key == key).unwrap();
        text(pair.value.as_ref())
    };
    (of("ringfence.language"), of("ringfence.outcome"), value)
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn attribute(span: &Span, key: &str) -> String {
    let pair = span.attributes.iter().find(|pair| pair.key == key);
    text(pair.unwrap_or_else(|| panic!("{key}: {span:?}")).value.as_ref())
}

#[test]
fn execution_is_exported_as_a_trace_and_metrics() {
    let collector = Collector::start();
    let endpoint = ("RINGFENCE_TELEMETRY_OTLP_ENDPOINT", collector.address.as_str());
    let mut served = Served::start("otlp", "", &[], &[endpoint]);
    // Longer than asserted below: a busy server may learn late that the program runs.
    let arguments = json!({"language": "shell", "code": "sleep 1; exit 3", "namespace": "team"});
    let failed = served.server.run(arguments);
    let id = text_of(&failed["execution_id"]).to_owned();
    served.server.shut_down();
    let collected = collector.collect_all();
    let execution = collected.execution();
    for (key, value) in [
        ("ringfence.execution_id", id.as_str()),
        ("ringfence.namespace", "team"),
        ("ringfence.language", "shell"),
        ("ringfence.exit", "code"),
        ("ringfence.exit_code", "3"),
    ] {
        assert_eq!(attribute(execution, key), value, "{key}");
    }
    // 2 is STATUS_CODE_ERROR
    assert_eq!(execution.status.as_ref().unwrap().code, 2);
    let of = |name: &str| collected.spans.iter().find(|span| span.name == name).unwrap();
    let run = of("run");
    assert!(run.start_time_unix_nano >= of("start").end_time_unix_nano);
    assert!(run.end_time_unix_nano - run.start_time_unix_nano >= 200_000_000);
    for name in ["queued", "start", "run", "finish"] {
        let phase = of(name);
        assert_eq!(
            (&phase.parent_span_id, &phase.trace_id),
            (&execution.span_id, &execution.trace_id)
        );
        assert!(phase.start_time_unix_nano >= execution.start_time_unix_nano);
        assert!(phase.end_time_unix_nano <= execution.end_time_unix_nano);
    }
    assert_eq!(collected.counts, [("shell".to_owned(), "failed".to_owned(), 1)]);
    assert!(
        collected.histograms[0].0 == 1 && collected.histograms[0].1 >= 0.2,
        "{:?}",
        collected.histograms
    );
}

/// `ringfence run` of a shell script, with telemetry to this endpoint.
fn run_with(endpoint: &str, directory: &TempDir) -> (Output, Duration) {
    let script = directory.file("script.sh", "echo out; exit 7");
    let begun = Instant::now();
    let mut command = ringfence(&["run", &script]);
    let output = command
        .env("RINGFENCE_STATE_DIR", directory.0.join("state"))
        .env("RINGFENCE_TELEMETRY_OTLP_ENDPOINT", endpoint)
        .output()
        .unwrap();
    (output, begun.elapsed())
}

#[test]
fn cli_run_exports_its_telemetry_before_it_exits() {
    let (collector, directory) = (Collector::start(), TempDir::new("otlp-run"));
    let (output, _) = run_with(&collector.address, &directory);
    assert_eq!(
        (output.status.code(), stdout_of(&output).as_str()),
        (Some(7), "out\n")
    );
    let collected = collector.collect_all();
    assert_eq!(attribute(collected.execution(), "ringfence.exit_code"), "7");
}

#[test]
fn unreachable_collector_delays_only_the_exit_of_a_run() {
    let directory = TempDir::new("otlp-down");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let (_, plain) = run_with("off", &directory);
    for endpoint in ["http://127.0.0.1:9", silent.as_str()] {
        let (output, took) = run_with(endpoint, &directory);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert!(
            took < plain * 3 + Duration::from_millis(1500),
            "{took:?}, and {plain:?} without"
        );
    }
}

#[test]
fn server_logs_an_unreachable_collector_once_and_continues() {
    let endpoint = [("RINGFENCE_TELEMETRY_OTLP_ENDPOINT", "http://127.0.0.1:9")];
    let mut served = Served::start("otlp-deaf", "", &[], &endpoint);
    for _ in 0..3 {
        assert_eq!(served.server.execute("shell", "true")["success"], true);
    }
    served.server.shut_down();
    let log = served.log();
    assert_eq!(
        log.matches("the collector does not take telemetry").count(),
        1,
        "{log}"
    );
}
