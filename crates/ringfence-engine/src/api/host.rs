//! Commands of the host: requested, judged, recorded, run behind their walls, and redacted.

use super::{Engine, NamespaceAccess};
use crate::{
    approval::{Ask, CommandSubject, Scope, Subject, Waiting},
    caller::Caller,
    error::{Result, task_died},
    events::{ApprovalFacts, EventKind},
    record::Note,
    services::Services,
    store::blocking,
};
use ringfence_host::{
    Access, Allowed, CallContext, Canceller, Command, Ending, Outcome, Output, Refused, Why, Words,
};
use ringfence_jail::cgroup::Parent;
use ringfence_store::audit::Action;
use ringfence_types::{ErrorCode, Namespace, RequestError};
use serde_json::json;
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The timeout for judging a command that needs approval, in place of its caller's.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// Maximum recorded characters of a text that is not a command.
const RECORDED_CHARS_MAX: usize = 200;

#[derive(Clone, Debug)]
pub struct HostCommand {
    pub namespace: Namespace,
    /// A program and its arguments.
    pub command: String,
    /// None: it has no working directory.
    pub directory: Option<PathBuf>,
    pub timeout: Duration,
}

/// The verdict of the rules on a command, and its possible effects.
#[derive(Clone, Debug, Default)]
pub struct HostVerdict {
    /// The words of the command, each escaped.
    pub words: String,
    pub allowed: bool,
    pub rule: Option<String>,
    pub why: String,
    pub may_be_approved: bool,
    pub program: Option<PathBuf>,
    pub arguments: Vec<String>,
    /// Its possible effects, one per line.
    pub effect: Vec<String>,
}

/// The result of a command. Output is redacted.
#[derive(Clone, Debug)]
pub struct HostRun {
    /// The rule that allowed it; none: it was approved.
    pub rule: Option<String>,
    pub approved_by: Option<String>,
    pub program: PathBuf,
    pub ending: Ending,
    /// Standard output, as far as it was kept.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Bytes of all standard output, redacted.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub duration: Duration,
}

#[derive(Clone, Debug, Default)]
pub struct HostAccessList {
    /// Name, form and reason of each rule.
    pub rules: Vec<(String, String, String)>,
    /// Path and kinds of access of each directory.
    pub directories: Vec<(PathBuf, Vec<&'static str>)>,
    /// Commands approved for this caller: words, scope, milliseconds left.
    pub approved: Vec<(String, Scope, u64)>,
    pub missing: Vec<&'static str>,
}

struct Judged {
    words: Words,
    command: Command,
    rule: Option<String>,
    why: String,
    /// The reason why it needs approval by a person; none: a rule allows it.
    asks: Option<String>,
    may_last: bool,
}

/// Returns the text with one mark at its end: a question mark that it has, or a full stop.
fn sentence(why: &str) -> String {
    match why.trim_end_matches('.') {
        question if question.ends_with('?') => question.to_owned(),
        statement => format!("{statement}."),
    }
}

fn check_timeout(timeout: Duration) -> Result<()> {
    if timeout.is_zero() || timeout > TIMEOUT_MAX {
        return Err(RequestError::invalid(
            format!("`timeout` is 1 to {} seconds.", TIMEOUT_MAX.as_secs()),
            "Leave it out, or name fewer.",
        ));
    }
    Ok(())
}

fn refused(refused: &Refused) -> RequestError {
    let hint = match refused.why {
        Why::Never => "No person is asked; do it another way, or let the operator do it.",
        Why::NoProgram | Why::NoForm => {
            "`list_host_access` has the forms; ask a person with `request_host_access`, naming exactly this command."
        }
    };
    RequestError::denied(sentence(&refused.what), hint)
}

impl Engine {
    /// Returns the verdict of the rules on a command. Nothing is run.
    pub async fn host_check(&self, caller: &Caller, request: HostCommand) -> Result<HostVerdict> {
        self.note_call(caller, &request.namespace, "host_check").await?;
        let words = Words::read(&request.command)?;
        let judged = match self.judge(&request).await {
            Ok(judged) => judged,
            Err(error) if error.code == ErrorCode::PolicyDenied || error.code == ErrorCode::NotFound => {
                self.services.host.rules()?;
                return Ok(HostVerdict {
                    words: words.to_string(),
                    why: error.message,
                    ..HostVerdict::default()
                });
            }
            Err(error) => return Err(error),
        };
        Ok(HostVerdict {
            words: words.to_string(),
            allowed: judged.asks.is_none(),
            rule: judged.rule,
            may_be_approved: judged.asks.is_some(),
            why: judged.asks.unwrap_or(judged.why),
            program: Some(judged.command.program.path.clone()),
            arguments: judged.command.arguments.clone(),
            effect: judged.command.effect.clone(),
        })
    }

    /// Judges a command and opens what it needs, as allowed by a rule or as it would run if a person approved it.
    async fn judge(&self, request: &HostCommand) -> Result<Judged> {
        let host = &self.services.host;
        let rules = host.rules()?.clone();
        let support = host.support().await?.clone();
        let words = Words::read(&request.command)?;
        let services = self.services.clone();
        let request = request.clone();
        blocking(move || {
            let prepare = |allowed: &Allowed, timeout: Duration| {
                let context = CallContext {
                    namespace: &request.namespace,
                    directory: request.directory.as_deref(),
                    timeout,
                    support: &support,
                    cgroups: &services.host.cgroups,
                };
                ringfence_host::prepare(&rules, allowed, &context)
            };
            let lacking = |command: &Command| {
                let names: Vec<&str> = command.missing.iter().map(|wall| wall.as_str()).collect();
                format!("its rule needs walls that this host lacks ({})", names.join(", "))
            };
            let may_last = rules.may_last(&words);
            let (allowed, asks) = match rules.judge(&words) {
                Ok(allowed) => (allowed, None),
                Err(e) if e.why == Why::Never => return Err(refused(&e)),
                Err(e) => (rules.approved(&words).map_err(|e| refused(&e))?, Some(e.what)),
            };
            let timeout = asks.as_ref().map_or(request.timeout, |_| APPROVAL_TIMEOUT);
            let mut command = prepare(&allowed, timeout)?;
            let asks = match (asks, command.missing.is_empty()) {
                (None, false) => {
                    command = prepare(&allowed, APPROVAL_TIMEOUT)?;
                    Some(lacking(&command))
                }
                (asks, _) => asks,
            };
            if asks.is_some() {
                command.bind_files(words.arguments())?;
            }
            Ok(Judged {
                words,
                rule: allowed.rule,
                why: allowed.why,
                command,
                asks,
                may_last,
            })
        })
        .await?
    }

    /// Runs a command that a rule allows, or that a person has approved for this caller.
    pub async fn host_exec(&self, caller: &Caller, request: HostCommand) -> Result<HostRun> {
        let services = self.services.clone();
        let text = Words::read(&request.command).map(|words| services.host.redactor.text(&words.to_string()));
        let text = text.unwrap_or_else(|_| {
            let beginning: String = request.command.chars().take(RECORDED_CHARS_MAX).collect();
            services.host.redactor.text(&ringfence_host::escaped(&beginning))
        });
        let event = services.command_event(&request.namespace, &text);
        event(EventKind::HostRequested, None);
        let decided: Result<_> = async {
            check_timeout(request.timeout)?;
            let permit = services.host.permit()?;
            Ok((permit, self.decide(caller, &request).await?))
        }
        .await;
        let (permit, (judged, approved_by)) = match decided {
            Ok(decided) => decided,
            Err(error) => {
                event(EventKind::HostDenied, Some(error.code.as_str().to_owned()));
                let details = json!({"command": text});
                let note = Note::of(caller, &request.namespace, Action::HostExecuted, details);
                return Err(services.record.refused(note, error).await);
            }
        };
        let by = judged.rule.clone().filter(|_| approved_by.is_none());
        event(
            EventKind::HostApproved,
            by.map(|rule| format!("the rule {rule}")).or(approved_by.clone()),
        );
        // From here on it belongs to the engine: an approval that was used up is for a command that runs.
        let (sender, receiver) = oneshot::channel();
        let launch = Launch {
            caller: caller.clone(),
            request,
            judged,
            approved_by,
            canceller: sender,
        };
        let task = tokio::spawn(async move {
            let done = run(&services, launch).await;
            drop(permit);
            done
        });
        let _ends = EndOnDrop(receiver);
        task.await.map_err(|_| task_died())?
    }

    /// Returns the command if it may run now, and the person who approved it unless a rule allows it.
    async fn decide(&self, caller: &Caller, request: &HostCommand) -> Result<(Judged, Option<String>)> {
        let mut judged = self.judge(request).await?;
        let Some(why) = judged.asks.clone() else {
            return Ok((judged, None));
        };
        let subject = subject(&self.services, &judged, caller, &why);
        let store = &self.services.approvals.store;
        match store.take_command(&request.namespace, &subject) {
            Some(decision) => {
                judged.command.shorten(request.timeout);
                Ok((judged, Some(decision.decided_by)))
            }
            None => Err(RequestError::denied(
                sentence(&why),
                "`list_host_access` has the forms; ask a person with `request_host_access`, naming exactly this command.",
            )),
        }
    }

    /// Asks a person to allow a command that no rule allows.
    pub async fn request_host_access(
        &self,
        caller: &Caller,
        request: HostCommand,
        reason: String,
    ) -> Result<Waiting> {
        let judged = self.judge(&request).await?;
        let Some(why) = judged.asks.clone() else {
            let rule = judged.rule.unwrap_or_default();
            return Err(RequestError::invalid(
                format!("the rule `{rule}` lets this command run already."),
                "Call `host_exec`.",
            ));
        };
        let ask = Ask {
            subject: Subject::Command(Box::new(subject(&self.services, &judged, caller, &why))),
            namespace: request.namespace,
            session: None,
            execution: None,
            caller: caller.clone(),
            reason,
            patience: None,
        };
        self.services.approvals.ask(ask).await
    }

    /// Lists the walls that commands of the host lack here; empty if host access is off or nothing is missing.
    pub async fn host_walls_missing(&self) -> Result<Vec<String>> {
        let host = &self.services.host;
        if host.rules().is_err() {
            return Ok(Vec::new());
        }
        let support = host.support().await?;
        let landlock = (!support.landlock).then(|| "Landlock: every command needs an approval".to_owned());
        let namespaces = support.namespaces.as_ref().err();
        let namespaces = namespaces.map(|why| {
            format!("namespaces ({why}): commands with a socket, with programs to start, or with the host's mounts need an approval")
        });
        let limits = matches!(host.cgroups, Parent::None { .. });
        let limits = limits.then(|| {
            "limits: no cgroup counts the memory of a command, nor the processes of one that runs as root"
                .to_owned()
        });
        Ok(landlock.into_iter().chain(namespaces).chain(limits).collect())
    }
}

impl NamespaceAccess<'_> {
    pub async fn host_access(self) -> Result<HostAccessList> {
        self.called("list_host_access").await?;
        let services = self.services;
        let rules = services.host.rules()?;
        let support = services.host.support().await?;
        let summaries = rules.summaries().into_iter();
        let directories = rules.directories.iter().filter_map(|directory| {
            let all = [Access::Read, Access::List, Access::Write];
            let allowed = all
                .into_iter()
                .filter(|access| directory.allows(self.namespace.as_str(), *access));
            let allowed: Vec<&str> = allowed.map(Access::as_str).collect();
            (!allowed.is_empty()).then(|| (directory.path.clone(), allowed))
        });
        let approved = services
            .approvals
            .store
            .commands_of(self.namespace, self.caller.as_str());
        let approved = approved
            .into_iter()
            .map(|(command, scope, left)| (command.words, scope, left));
        let landlock = (!support.landlock).then_some("Landlock");
        let namespaces = support.namespaces.is_err().then_some("namespaces");
        Ok(HostAccessList {
            rules: summaries.map(|one| (one.rule, one.form, one.why)).collect(),
            directories: directories.collect(),
            approved: approved.collect(),
            missing: landlock.into_iter().chain(namespaces).collect(),
        })
    }
}

/// Returns a command as a person approves it, with the digests of the files that it names.
fn subject(services: &Services, judged: &Judged, caller: &Caller, why: &str) -> CommandSubject {
    let program = &judged.command.program;
    let words = judged.words.to_string();
    let directory = judged.command.directory();
    CommandSubject {
        recorded: services.host.redactor.text(&words),
        words,
        program: program.path.display().to_string(),
        identity: (program.identity.device, program.identity.inode),
        directory: directory.map(|(path, _)| path.display().to_string()),
        directory_identity: directory.map(|(_, identity)| (identity.device, identity.inode)),
        files: judged.command.files.clone(),
        missing_rule: why.trim_end_matches('.').to_owned(),
        effect: judged.command.effect.clone(),
        may_last: judged.may_last,
        principal: caller.as_str().to_owned(),
    }
}

struct Launch {
    caller: Caller,
    request: HostCommand,
    judged: Judged,
    approved_by: Option<String>,
    canceller: oneshot::Sender<Canceller>,
}

/// Runs a command to its end, recorded before and after.
async fn run(services: &Arc<Services>, launch: Launch) -> Result<HostRun> {
    let (request, judged, approved_by) = (launch.request, launch.judged, launch.approved_by);
    let redactor = services.secrets.redactor_of_all(&request.namespace, &[]).await?;
    let (rule, program) = (judged.rule.clone(), judged.command.program.path.clone());
    let details = json!({
        "command": services.host.redactor.text(&judged.words.to_string()), "program": program, "rule": rule,
        "approved_by": approved_by, "directory": request.directory,
    });
    let note = Note::of(&launch.caller, &request.namespace, Action::HostExecuted, details);
    let binary = services.host.binary.clone();
    let begun = Instant::now();
    let act = async {
        let running = blocking(move || judged.command.start(&binary)).await??;
        // A caller that is gone has closed the other end: then the command ends at once.
        if let Err(canceller) = launch.canceller.send(running.canceller()) {
            canceller.cancel();
        }
        blocking(move || running.wait()).await?
    };
    let done = |outcome: &Outcome, details: &mut serde_json::Value| {
        details["ending"] = json!(ending_words(outcome.ending));
        details["stdout_bytes"] = json!(outcome.stdout.total);
        details["stderr_bytes"] = json!(outcome.stderr.total);
    };
    let outcome = services.record.around(note, act, done).await?;
    let (stdout, stderr) = (outcome.stdout, outcome.stderr);
    let clean = |output: &Output| match output.total > output.bytes.len() as u64 {
        false => redactor.bytes(&output.bytes).into_owned(),
        true => {
            // Part of a secret is secret, too: text at the cut that may be the beginning of one is removed.
            let mut clean = Vec::with_capacity(output.bytes.len());
            redactor.stream().push(&output.bytes, &mut clean);
            clean
        }
    };
    let (clean_stdout, clean_stderr) = (clean(&stdout), clean(&stderr));
    // A mark counts with its own length, not the secret's; the difference to the total was not kept.
    let bytes = |output: &Output, clean: &[u8]| output.total - output.bytes.len() as u64 + clean.len() as u64;
    Ok(HostRun {
        rule,
        approved_by,
        program,
        ending: outcome.ending,
        stdout_bytes: bytes(&stdout, &clean_stdout),
        stderr_bytes: bytes(&stderr, &clean_stderr),
        stdout: clean_stdout,
        stderr: clean_stderr,
        duration: begun.elapsed(),
    })
}

pub fn ending_words(ending: Ending) -> String {
    match ending {
        Ending::Code(code) => format!("exit code {code}"),
        Ending::Signal(signal) => format!("signal {signal}"),
        Ending::Timeout => "ended by the clock".to_owned(),
        Ending::OutOfMemory => "out of memory".to_owned(),
    }
}

/// Ends a command whose caller no longer waits.
struct EndOnDrop(oneshot::Receiver<Canceller>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        // A command that has not started is ended by its task, which finds this end closed.
        self.0.close();
        if let Ok(canceller) = self.0.try_recv() {
            canceller.cancel();
        }
    }
}

impl Services {
    /// Returns a function that publishes the events of a command.
    fn command_event(
        &self,
        namespace: &Namespace,
        what: &str,
    ) -> impl Fn(fn(ApprovalFacts) -> EventKind, Option<String>) + use<> {
        let (bus, namespace, what) = (self.telemetry.bus.clone(), namespace.to_string(), what.to_owned());
        let id = uuid::Uuid::now_v7().to_string();
        move |kind, by| {
            let facts = ApprovalFacts {
                request_id: id.clone(),
                kind: "host",
                what: what.clone(),
                decided_by: by,
                ..ApprovalFacts::default()
            };
            bus.publish(&namespace, None, kind(facts));
        }
    }
}
