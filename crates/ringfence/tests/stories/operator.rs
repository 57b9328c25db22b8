//! What an operator's systems see of a server: metrics, traces, the log, and a configuration that changes while it runs.

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

/// A server with a state directory, a configuration file and a log of its own.
struct Served {
    server: Server,
    directory: TempDir,
}

impl Served {
    fn start(name: &str, config: &str, words: &[&str], variables: &[(&str, &str)]) -> Self {
        let directory = TempDir::new(name);
        let server = Server::of(serve(&directory, config, words, variables));
        Self { server, directory }
    }

    fn log(&self) -> String {
        self.directory.read("log")
    }

    /// Waits until the log says so; the whole log.
    fn logged(&self, words: &str) -> String {
        assert!(
            within(PATIENCE, || self.log().contains(words)),
            "no {words:?} in {}",
            self.log()
        );
        self.log()
    }

    /// Another configuration, and the signal to read it.
    fn reconfigure(&self, config: &str) {
        self.directory.file("config.yaml", config);
        self.hang_up();
    }

    fn hang_up(&self) {
        signal(self.server.child.id(), Signal::HUP);
    }

    fn metrics_address(&self) -> SocketAddr {
        let log = self.logged("metrics are answered");
        let line = log.lines().find(|line| line.contains("metrics are answered"));
        let line: Value = serde_json::from_str(line.unwrap()).unwrap();
        text_of(&line["fields"]["address"]).parse().unwrap()
    }

    /// Records of configuration changes, oldest first: outcome and details.
    fn changes(&self) -> Vec<(String, Value)> {
        let record = self.directory.0.join("state/record/audit.db");
        let asked = Query {
            actions: Some(Actions::One(Action::ConfigChanged)),
            ..Query::default()
        };
        let page = ringfence_store::audit::query(&record, &asked).unwrap();
        let change = |record: &Record| {
            (
                record.outcome.clone(),
                serde_json::from_str(&record.details).unwrap(),
            )
        };
        page.records.iter().map(change).collect()
    }
}

fn serve(directory: &TempDir, config: &str, words: &[&str], variables: &[(&str, &str)]) -> Command {
    let file = directory.file("config.yaml", config);
    let mut command = ringfence(&["serve", "--config", &file]);
    command
        .args(words)
        .env("RINGFENCE_STATE_DIR", directory.0.join("state"))
        .env("RINGFENCE_WARM_READY", "0")
        .envs(variables.iter().copied())
        .stderr(File::create(directory.0.join("log")).unwrap());
    command
}

/// Sends these bytes and reads until the end.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn scrape(address: SocketAddr) -> String {
    ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
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
fn only_metrics_are_answered_and_nobody_is_waited_for() {
    let served = Served::start("strangers", "", &["--metrics-listen", "0.0.0.0:0"], &[]);
    let address = SocketAddr::from(([127, 0, 0, 1], served.metrics_address().port()));
    served.logged("it is not a loopback address");
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
        let answer = ask(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    // as many as are let in, and all of them silent: the next waits until they have been sent away
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
fn an_address_that_is_taken_stops_the_server_before_it_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = TempDir::new("taken");
    let mut command = serve(&directory, "", &["--metrics-listen", &address], &[]);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_contains(stderr_of(&output), [&address, "--metrics-listen"]);
    assert!(!directory.0.join("state/record").exists());
}

/// A program that may take longer than some limits let it.
fn of_two_minutes() -> Value {
    json!({"language": "shell", "code": "true", "timeout_seconds": 120})
}

#[test]
fn a_signal_puts_lower_limits_in_force_and_tells_the_client() {
    let mut served = Served::start("reload", "caps: {timeout_seconds: 300}", &[], &[]);
    served.server.succeeds("execute_code", of_two_minutes());
    let id = served.server.send("tools/list", json!({}));
    served.server.await_answer(id);
    served.reconfigure(
        "{limits: {timeout_seconds: 5}, caps: {timeout_seconds: 100}, redact: {personal: true}, log: debug}",
    );
    let log = served.logged("need a restart");
    let line = log.lines().find(|line| line.contains("need a restart")).unwrap();
    assert_contains(line, ["redact.personal"]);
    assert_lacks(line, ["caps"]);
    let id = served.server.send_run(of_two_minutes());
    let (answer, mut before) = served.server.await_answer(id);
    let refused = &answer["result"]["structuredContent"];
    assert_eq!(refused["code"], "invalid_argument", "{refused}");
    refused.says("message", ["100"]);
    if before.is_empty() {
        // Which of the two is written first is nobody's promise.
        before.push(served.server.receive());
    }
    let told = before.iter().filter_map(|message| message["method"].as_str());
    assert_eq!(told.collect::<Vec<_>>(), ["notifications/tools/list_changed"]);
    let tools = served.server.ask("tools/list", json!({}));
    let timeout = &tools["result"]["tools"][0]["inputSchema"]["properties"]["timeout_seconds"];
    assert_eq!(timeout["maximum"], 100, "{timeout}");
    let changes = served.changes();
    assert_eq!(changes.len(), 1);
    let (outcome, details) = &changes[0];
    let changed = json!(["limits.timeout_seconds", "caps.timeout_seconds", "log"]);
    assert_eq!((outcome.as_str(), &details["changed"]), ("ok", &changed));
    // a limit that is wider again is in force again, too
    served.reconfigure("{caps: {timeout_seconds: 300}, log: debug}");
    eventually(|| served.changes().len() == 2);
    served.server.succeeds("execute_code", of_two_minutes());
}

#[test]
fn a_client_without_a_handshake_is_told_of_other_limits_when_it_listens() {
    let directory = TempDir::new("listen");
    let command = serve(&directory, "", &[], &[]);
    let mut served = Served {
        server: Server::silent(command),
        directory,
    };
    let meta = stateless(json!({}));
    let wanted = json!({"toolsListChanged": true});
    let id = served.server.send(
        "subscriptions/listen",
        json!({"notifications": wanted, "_meta": meta}),
    );
    let heard = served.server.receive();
    heard.shows(json!({"method": "notifications/subscriptions/acknowledged"}));
    assert_eq!(heard["params"]["notifications"], wanted, "{heard}");
    // a change of who is served first is none of the tools
    served.reconfigure("queue: {priorities: [team=high]}");
    served.logged("queue.priorities");
    served.reconfigure("caps: {timeout_seconds: 100}");
    let heard = served.server.receive();
    assert_eq!(heard["method"], "notifications/tools/list_changed", "{heard}");
    let of = &heard["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    assert_eq!(of, &json!(id), "{heard}");
}

#[test]
fn a_configuration_that_cannot_be_read_again_changes_nothing() {
    let mut served = Served::start("bad-file", "caps: {timeout_seconds: 100}", &[], &[]);
    let file = served.directory.0.join("config.yaml");
    served
        .server
        .refuses("execute_code", of_two_minutes(), "invalid_argument");
    // an answer that needs the engine: its record has begun
    assert_eq!(served.server.execute("shell", "true")["success"], true);
    let mut failures = 0;
    for (spoil, says) in [
        ("caps: {timeout_seconds: 300, ram_mb: many}", "config.yaml:1"),
        (
            "{caps: {timeout_seconds: 300}, limits: {timeout_seconds: 301}}",
            "Raise the cap",
        ),
        ("caps: {timeout_secs: 300}", "timeout_seconds"),
        ("caps: [", "config.yaml"),
    ] {
        served.reconfigure(spoil);
        failures += 1;
        eventually(|| served.changes().len() == failures);
        let (outcome, details) = served.changes().pop().unwrap();
        assert_eq!(
            (outcome.as_str(), &details["code"]),
            ("failed", &json!("invalid_configuration"))
        );
        assert_contains(served.logged("the configuration stays as it is"), [says]);
        served
            .server
            .refuses("execute_code", of_two_minutes(), "invalid_argument");
    }
    // a pipe would be read as an empty file, and a file that is gone would mean no limits but the defaults
    fs::remove_file(&file).unwrap();
    served.hang_up();
    eventually(|| served.changes().len() == failures + 1);
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    served.hang_up();
    eventually(|| served.changes().len() == failures + 2);
    served.logged("is not a plain file");
    served
        .server
        .refuses("execute_code", of_two_minutes(), "invalid_argument");
}

#[test]
fn a_usual_configuration_that_vanishes_takes_no_limit_with_it() {
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
    let server = Server::of(command);
    let mut served = Served { server, directory };
    let refused = served.server.call("execute_code", of_two_minutes());
    assert_eq!(refused["isError"], true, "{refused}");
    fs::remove_file(file).unwrap();
    served.hang_up();
    served.logged("config.yaml is gone");
    assert_eq!(
        served.server.call("execute_code", of_two_minutes())["isError"],
        true
    );
}

/// A word that the configuration repeats in an error, once where it is a secret of the vault and once where it is none.
/// claim: [SEC-2]
#[test]
fn a_secret_that_a_message_repeats_is_not_in_the_log() {
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
        let log = served.logged("the configuration stays as it is");
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

/// Takes what is sent to it, until the test is over.
struct Collector {
    address: String,
    batches: mpsc::Receiver<(String, Vec<u8>)>,
}

impl Collector {
    fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/otlp", socket.local_addr().unwrap());
        let (told, batches) = mpsc::channel();
        thread::spawn(move || {
            for stream in socket.incoming() {
                let batch = take(stream.unwrap());
                if told.send(batch).is_err() {
                    return;
                }
            }
        });
        Self { address, batches }
    }

    fn receive(&self) -> (String, Vec<u8>) {
        self.batches.recv_timeout(PATIENCE).unwrap()
    }

    /// Everything, once the sender has ended.
    fn everything(&self) -> Answers {
        let mut told = Answers::default();
        while !(told.spans.len() >= 5 && !told.counts.is_empty() && !told.histograms.is_empty()) {
            let (path, batch) = self.receive();
            match path.as_str() {
                "/otlp/v1/traces" => told.trace(&batch),
                "/otlp/v1/metrics" => told.measure(&batch),
                other => panic!("{other}"),
            }
        }
        told
    }
}

/// One request: its path and body, with the answer that it was taken.
fn take(mut stream: TcpStream) -> (String, Vec<u8>) {
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

/// What a collector was told.
#[derive(Default)]
struct Answers {
    spans: Vec<Span>,
    /// Of `ringfence.executions`: language, outcome, value.
    counts: Vec<(String, String, i64)>,
    /// Of `ringfence.execution.duration`: how many, and their sum in seconds.
    histograms: Vec<(u64, f64)>,
}

impl Answers {
    fn trace(&mut self, batch: &[u8]) {
        let request = ExportTraceServiceRequest::decode(batch).unwrap();
        for resource in request.resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            let service = attributes.iter().find(|pair| pair.key == "service.name").unwrap();
            assert_eq!(text(service.value.as_ref()), "ringfence");
            let scopes = resource.scope_spans.into_iter();
            self.spans.extend(scopes.flat_map(|scope| scope.spans));
        }
    }

    fn measure(&mut self, batch: &[u8]) {
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
fn an_execution_is_a_trace_and_a_count_at_the_collector() {
    let collector = Collector::start();
    let endpoint = ("RINGFENCE_TELEMETRY_OTLP_ENDPOINT", collector.address.as_str());
    let mut served = Served::start("otlp", "", &[], &[endpoint]);
    // Longer than what is asserted: a busy server may hear late that the program runs.
    let arguments = json!({"language": "shell", "code": "sleep 1; exit 3", "namespace": "team"});
    let failed = served.server.run(arguments);
    let id = text_of(&failed["execution_id"]).to_owned();
    served.server.leaves();
    let told = collector.everything();
    let execution = told.execution();
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
    let of = |name: &str| told.spans.iter().find(|span| span.name == name).unwrap();
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
    assert_eq!(told.counts, [("shell".to_owned(), "failed".to_owned(), 1)]);
    assert!(
        told.histograms[0].0 == 1 && told.histograms[0].1 >= 0.2,
        "{:?}",
        told.histograms
    );
}

/// `ringfence run` of a shell script that tells this collector.
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
fn a_run_from_the_command_line_is_told_before_it_ends() {
    let (collector, directory) = (Collector::start(), TempDir::new("otlp-run"));
    let (output, _) = run_with(&collector.address, &directory);
    assert_eq!(
        (output.status.code(), stdout_of(&output).as_str()),
        (Some(7), "out\n")
    );
    let told = collector.everything();
    assert_eq!(attribute(told.execution(), "ringfence.exit_code"), "7");
}

#[test]
fn a_collector_that_is_down_or_silent_costs_a_run_nothing_but_its_farewell() {
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
fn a_server_says_once_that_its_collector_is_down_and_works_on() {
    let endpoint = [("RINGFENCE_TELEMETRY_OTLP_ENDPOINT", "http://127.0.0.1:9")];
    let mut served = Served::start("otlp-deaf", "", &[], &endpoint);
    for _ in 0..3 {
        assert_eq!(served.server.execute("shell", "true")["success"], true);
    }
    served.server.leaves();
    let log = served.log();
    assert_eq!(
        log.matches("the collector does not take telemetry").count(),
        1,
        "{log}"
    );
}
