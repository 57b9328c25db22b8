//! The lines of JSON that pass over a control socket. Bytes from either end are untrusted until they are parsed.
//!
//! A request is `{"method":"...","params":{...}}`, the method first, so that the parser keeps nothing of the rest in a
//! buffer that is not wiped; an answer is `{"ok":...}` or `{"error":{"code","message","hint"}}`. A secret's value is
//! base64, decoded from the line directly into a buffer that is wiped; a JSON string might be unescaped elsewhere.

use super::{IDLE, Unanswered};
use crate::{
    render::{self, Rendered},
    time,
};
use base64::{Engine as _, display::Base64Display, engine::general_purpose::STANDARD};
use clap::Args;
use ringfence_engine::{ApprovalRequest, Conflicts, OutputChunk, OutputStream};
use ringfence_store::{
    audit::{Outcome, Query},
    vault::{SECRET_BYTES_MAX, SecretValue},
};
use ringfence_types::{
    Argument, EnvName, EnvValue, Language, LimitsRequest, Namespace, RequestError, ScriptName, SessionId,
    WorkspacePath, WorkspaceSource,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use zeroize::{Zeroize, Zeroizing};

macro_rules! requests {
    ($($(#[$about:meta])* $method:literal => $variant:ident $({ $($parameters:tt)* })?,)+) => {
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(tag = "method", content = "params", deny_unknown_fields)]
        pub(crate) enum Request {
            $($(#[$about])* #[serde(rename = $method)] $variant $({ $($parameters)* })?,)+
        }

        impl Request {
            pub(super) fn method(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $method,)+
                }
            }
        }
    };
}

requests! {
    "stats" => Stats,
    "queue" => Queue,
    "inspect" => Inspect { namespace: Namespace },
    "limits.get" => LimitsGet { namespace: Namespace },
    "limits.set" => LimitsSet { namespace: Namespace, limits: LimitsRequest },
    "limits.restore" => LimitsRestore { namespace: Namespace },
    "vault.list" => VaultList { namespace: Namespace },
    "vault.put" => VaultPut { namespace: Namespace, key: EnvName, value: Value, ttl_seconds: Option<u64> },
    "vault.delete" => VaultDelete { namespace: Namespace, key: EnvName },
    "audit" => Audit { query: AuditQuery },
    "approvals.list" => ApprovalsList,
    /// `digest`: of the request as the person saw it.
    "approvals.decide" => ApprovalsDecide { id: String, digest: String, answer: ringfence_engine::Answer },
    /// Each request is sent as it comes, before the reply.
    "approvals.watch" => ApprovalsWatch,
    /// The request for approval is sent before the reply, which waits for the decision.
    "egress" => Egress { wish: EgressRequest },
    /// `follow`: also future events, until the command hangs up; `output`: also what programs print.
    "events" => Events { follow: bool, output: bool },
    /// Without a namespace: those of all namespaces.
    "executions.list" => ExecutionsList { namespace: Option<Namespace>, limit: usize },
    "executions.cancel" => ExecutionsCancel { execution: String },
    /// The output is sent before the reply; `follow`: until the program ends.
    "logs" => Logs { execution: String, follow: bool },
    "session.create" => SessionCreate { options: Box<SessionOptions> },
    "session.list" => SessionList { namespace: Option<Namespace> },
    "session.exec" => SessionExec { call: Box<SessionCall> },
    "session" => Session { session: SessionId, action: SessionAction },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum SessionAction {
    Interrupt,
    Kill,
    Diff,
    /// Writes the changes that have this token.
    Commit {
        token: String,
        #[serde(default)]
        conflicts: Conflicts,
    },
    Bridge {
        from: Option<SessionId>,
        name: EnvName,
        renamed: Option<EnvName>,
        value: Option<serde_json::Value>,
    },
    Snapshots(SnapshotAction),
    Put {
        path: WorkspacePath,
        bytes: Bytes,
    },
    Get {
        path: WorkspacePath,
    },
    Files {
        path: Option<WorkspacePath>,
    },
}

/// An action on the snapshots of a workspace: a session's, or the one that is kept for a namespace.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum SnapshotAction {
    Create {
        description: String,
    },
    List,
    Restore {
        id: String,
    },
    Delete {
        id: String,
    },
    /// Without a snapshot: the latest.
    Compare {
        id: Option<String>,
    },
}

/// A request of the operator for a host.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EgressRequest {
    /// Host that programs are to reach, as example.com or example.com:8443
    pub(crate) domain: String,
    /// Namespace whose programs they are
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) namespace: Namespace,
    /// The one session whose programs they are
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,
    /// Why, for the person who is asked
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionOptions {
    pub(crate) namespace: Namespace,
    pub(crate) language: Language,
    pub(crate) env: BTreeMap<EnvName, EnvValue>,
    pub(crate) secrets: BTreeSet<EnvName>,
    pub(crate) limits: LimitsRequest,
    pub(crate) idle_ms: Option<u64>,
    pub(crate) workspace: WorkspaceSource,
    pub(crate) packages: Vec<String>,
    /// Empty: the hosts of the policy.
    #[serde(default)]
    pub(crate) allow: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionCall {
    pub(crate) session: SessionId,
    pub(crate) code: String,
    /// Derived from the script's name or first line.
    pub(crate) language: Option<Language>,
    pub(crate) name: Option<ScriptName>,
    pub(crate) args: Vec<Argument>,
    pub(crate) stdin: Bytes,
    pub(crate) timeout_ms: Option<u64>,
}

/// A change to the list of requests for approval.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum News {
    Asked(Box<ApprovalRequest>),
    /// Decided or withdrawn; without a decision if it is no longer known.
    Decided {
        id: String,
        approved: Option<bool>,
        decided_by: Option<String>,
    },
}

const BEGINNING: &[u8] = b"{\"method\":\"";

impl Request {
    pub(super) fn read(line: &[u8]) -> Result<Self, RequestError> {
        let refused = |what: &str| {
            RequestError::invalid(
                format!("the request is not understood: {what}."),
                "Use the `ringfence` command of the server's version.",
            )
        };
        if !line.starts_with(BEGINNING) {
            return Err(refused("it does not begin with its method"));
        }
        // The parser's message may repeat a part of the line, which may be a secret.
        serde_json::from_slice(line).map_err(|_| refused("no such method, or other parameters"))
    }

    /// Writes one line with its end, in a buffer that is large enough from the start: one that grows leaves copies.
    pub(super) fn write(&self) -> serde_json::Result<Zeroizing<Vec<u8>>> {
        const REST_BYTES: usize = 8 << 10;
        let secret = match self {
            Self::VaultPut { value, .. } => value.0.len().div_ceil(3) * 4,
            _ => 0,
        };
        let mut line = Zeroizing::new(Vec::with_capacity(secret + REST_BYTES));
        serde_json::to_writer(&mut *line, self)?;
        line.push(b'\n');
        Ok(line)
    }
}

pub(crate) struct Value(pub(crate) SecretValue);

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value")
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0.expose().as_bytes(), &STANDARD))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Borrowed from the line: a string with escapes would be copied, and is refused.
        decode(<&str>::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

fn decode(text: &str) -> Result<Value, String> {
    if text.len() > SECRET_BYTES_MAX.div_ceil(3) * 4 {
        return Err("a secret is too long".to_owned());
    }
    let mut bytes = Zeroizing::new(vec![0; text.len().div_ceil(4) * 3]);
    let length = STANDARD
        .decode_slice(text, &mut bytes)
        .map_err(|_| "it is not base64".to_owned())?;
    bytes.truncate(length);
    let text = String::from_utf8(std::mem::take(&mut *bytes)).map_err(|error| {
        error.into_bytes().zeroize();
        "a secret is text".to_owned()
    })?;
    SecretValue::new(text)
        .map(Value)
        .map_err(|error| error.to_string())
}

#[derive(Debug)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        STANDARD.decode(&*text).map(Self).map_err(de::Error::custom)
    }
}

/// A query of the audit record.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Only entries of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    /// The largest number of entries
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    /// Only entries of this action, such as vault.changed, or of a group, such as `execution.`
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Only entries since this time (RFC 3339), or since so long ago, such as 2h; a number alone is seconds
    #[arg(long = "since", value_name = "TIME", value_parser = time::read)]
    since_us: Option<i64>,
    /// Only entries before this one, by its SEQ: the next page
    #[arg(long = "before", value_name = "SEQ", value_parser = clap::value_parser!(i64).range(1..))]
    #[serde(default)]
    before_seq: Option<i64>,
    /// Only entries with this outcome: ok, failed, denied, pending (has not ended since) or lost (its server died)
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    /// Only entries of this execution
    #[arg(long = "execution", value_name = "ID")]
    execution_id: Option<String>,
}

impl AuditQuery {
    pub(crate) fn query(self) -> Result<Query, RequestError> {
        let invalid = |reason: String| {
            RequestError::invalid(format!("{reason}."), "See `ringfence audit list --help`.")
        };
        let actions = self.action.as_deref().map(render::action).transpose();
        let outcome = self.outcome.map(|word| {
            let shown: String = word.chars().take(80).collect();
            let known = Outcome::WORDS.join(", ");
            let unknown = format!("{shown:?} is not a word of the audit record; known are {known}");
            word.parse().map_err(|_| invalid(unknown))
        });
        Ok(Query {
            namespace: self.namespace.map(String::from),
            actions: actions.map_err(invalid)?,
            outcome: outcome.transpose()?,
            execution_id: self.execution_id,
            since_us: self.since_us,
            before_seq: self.before_seq.map(i64::unsigned_abs),
            limit: self.limit.into(),
            newest_first: true,
            ..Query::default()
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// Output of a program before the answer, in base64.
    Output {
        stream: OutputStream,
        bytes: Bytes,
    },
    /// A request for approval that was added or decided, before the answer.
    News(News),
    Ok(Rendered),
    Error(RequestError),
}

impl Response {
    /// Writes the response as one line; fails if the command does not take it within `IDLE`.
    pub(super) async fn send(&self, to: &mut (impl AsyncWrite + Unpin)) -> Result<(), Unanswered> {
        let line = serde_json::to_string(self).map_err(|_| None)? + "\n";
        let written = timeout(IDLE, to.write_all(line.as_bytes())).await;
        written.ok().and_then(Result::ok).ok_or(None)
    }

    pub(super) fn output(chunk: OutputChunk) -> Self {
        Self::Output {
            stream: chunk.stream,
            bytes: Bytes(chunk.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_engine::{Answer, ScopeChoice};
    use std::time::Duration;

    fn put(value: &str) -> Request {
        Request::VaultPut {
            namespace: Namespace::default_name(),
            key: "KEY".parse().unwrap(),
            value: Value(SecretValue::new(value.to_owned()).unwrap()),
            ttl_seconds: Some(60),
        }
    }

    #[test]
    fn secret_survives_a_round_trip_and_its_buffer_never_grows() {
        for value in ["x", "a\"\\\n\u{1}é漢", &"s".repeat(SECRET_BYTES_MAX)] {
            let line = put(value).write().unwrap();
            let encoded = value.len().div_ceil(3) * 4;
            assert!(line.capacity() >= encoded + (8 << 10) && line.len() < encoded + 200);
            let Request::VaultPut {
                value: Value(read), ..
            } = Request::read(&line).unwrap()
            else {
                panic!("another request");
            };
            assert_eq!(read.expose(), value);
        }
    }

    fn session_requests() -> Vec<Request> {
        let session = || "0190b8f0-5c1e-7000-8000-00000000abcd".parse().unwrap();
        let (id, path) = (|| "x".to_owned(), || "a/b".to_owned().try_into().unwrap());
        let actions = [
            SessionAction::Kill,
            SessionAction::Interrupt,
            SessionAction::Diff,
            SessionAction::Commit {
                token: "00ff".to_owned(),
                conflicts: Conflicts::Overwrite,
            },
            SessionAction::Bridge {
                from: None,
                name: "x".to_owned().try_into().unwrap(),
                renamed: None,
                value: Some(serde_json::json!([1, "two"])),
            },
            SessionAction::Snapshots(SnapshotAction::Create {
                description: "a \"word\"".to_owned(),
            }),
            SessionAction::Snapshots(SnapshotAction::List),
            SessionAction::Snapshots(SnapshotAction::Restore { id: id() }),
            SessionAction::Snapshots(SnapshotAction::Delete { id: id() }),
            SessionAction::Snapshots(SnapshotAction::Compare { id: None }),
            SessionAction::Put {
                path: path(),
                bytes: Bytes(vec![0, 255]),
            },
            SessionAction::Get { path: path() },
            SessionAction::Files { path: None },
        ];
        let list = Request::SessionList { namespace: None };
        let actions = actions.into_iter().map(|action| Request::Session {
            session: session(),
            action,
        });
        [list].into_iter().chain(actions).collect()
    }

    fn execution_requests() -> Vec<Request> {
        vec![
            Request::ExecutionsList {
                namespace: None,
                limit: 5,
            },
            Request::ExecutionsCancel {
                execution: "0".to_owned(),
            },
            Request::Logs {
                execution: "0".to_owned(),
                follow: true,
            },
            Request::Events {
                follow: true,
                output: false,
            },
        ]
    }

    #[test]
    fn every_method_survives_a_round_trip() {
        let namespace = Namespace::default_name;
        let limits = LimitsRequest {
            max_cpu_cores: Some(0.5),
            ..LimitsRequest::default()
        };
        let query = AuditQuery {
            namespace: None,
            action: Some("vault.".to_owned()),
            outcome: None,
            execution_id: None,
            since_us: Some(-1),
            before_seq: Some(3),
            limit: 5,
        };
        let requests = [
            Request::Stats,
            Request::Queue,
            Request::Inspect {
                namespace: namespace(),
            },
            Request::LimitsGet {
                namespace: namespace(),
            },
            Request::LimitsSet {
                namespace: namespace(),
                limits,
            },
            Request::LimitsRestore {
                namespace: namespace(),
            },
            Request::VaultList {
                namespace: namespace(),
            },
            put("value"),
            Request::VaultDelete {
                namespace: namespace(),
                key: "K".parse().unwrap(),
            },
            Request::Audit { query },
            Request::ApprovalsList,
            Request::ApprovalsDecide {
                id: "0a1b2c3d".to_owned(),
                digest: "d".to_owned(),
                answer: Answer::Approve(ScopeChoice::Namespace(Some(Duration::from_secs(60)))),
            },
            Request::ApprovalsWatch,
            Request::Egress {
                wish: EgressRequest {
                    namespace: namespace(),
                    session: None,
                    domain: "example.com".to_owned(),
                    reason: "to read".to_owned(),
                },
            },
        ];
        for request in requests
            .into_iter()
            .chain(session_requests())
            .chain(execution_requests())
        {
            let line = request.write().unwrap();
            let read = Request::read(&line).unwrap();
            assert_eq!(*read.write().unwrap(), *line);
            let begins = format!("{{\"method\":\"{}\"", request.method());
            assert!(line.starts_with(begins.as_bytes()), "{begins}");
        }
    }

    #[test]
    fn invalid_requests_are_refused_and_not_repeated() {
        for line in [
            "",
            "{}",
            "null",
            r#"{"method":"stats","params":{"x":1}}"#,
            r#"{"method":"stats","hunter2":1}"#,
            r#"{"method":"hunter2"}"#,
            r#"{"params":{},"method":"stats"}"#,
            r#" {"method":"stats"}"#,
            r#"{"method":"inspect"}"#,
            r#"{"method":"inspect","params":{"namespace":"../hunter2"}}"#,
            r#"{"method":"inspect","params":{"namespace":"a","hunter2":1}}"#,
            r#"{"method":"vault.put","params":{"namespace":"a","key":"K","value":"hunter2!","ttl_seconds":null}}"#,
            r#"{"method":"vault.put","params":{"namespace":"a","key":"K","value":"","ttl_seconds":null}}"#,
            r#"{"method":"vault.put","params":{"namespace":"a","key":"K","value":"/w==","ttl_seconds":null}}"#,
            r#"{"method":"limits.set","params":{"namespace":"a","limits":{"hunter2":1}}}"#,
            "{\"method\":\"stats\"}{\"method\":\"stats\"}",
        ] {
            let error = Request::read(line.as_bytes()).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let long = STANDARD.encode("x".repeat(SECRET_BYTES_MAX + 1));
        assert!(decode(&long).is_err());
    }

    #[test]
    fn refusal_of_an_audit_query_names_the_known_words() {
        let question = |action: Option<&str>, outcome: Option<&str>| AuditQuery {
            namespace: None,
            action: action.map(str::to_owned),
            outcome: outcome.map(str::to_owned),
            execution_id: None,
            since_us: None,
            before_seq: None,
            limit: 1,
        };
        assert!(question(Some("vault."), Some("denied")).query().is_ok());
        let error = question(Some("vault.acessed"), None).query().unwrap_err();
        assert!(
            error.message.contains("Did you mean `vault.accessed`?"),
            "{error}"
        );
        let error = question(None, Some("maybe")).query().unwrap_err();
        assert!(error.message.contains("ok, failed, denied, pending"), "{error}");
    }
}
