//! Changes that a script made to an overlay of a directory: they are shown, and written to the directory if accepted by
//! flag or answer. Otherwise they are discarded.

use super::fault;
use crate::{
    lock::lock,
    render::{self, Rendered},
    terminal::Terminal,
};
use ringfence_engine::{Caller, Conflicts, HeldChanges};
use ringfence_types::{ExecuteRequest, RequestError, WorkspaceMode, WorkspaceSource};
use serde_json::{Value, json};
use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf, Stdin};

/// Longest answer in bytes; the rest of the line is ignored.
const ANSWER_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitChoice {
    Ask,
    Commit(Conflicts),
    Discard,
}

impl CommitChoice {
    /// The choice of the flag, or `Ask` without one. A flag is refused for a workspace that cannot be an overlay.
    pub(super) fn of(flag: Option<Self>, request: &ExecuteRequest) -> Result<Self, RequestError> {
        let may_overlay = match &request.workspace {
            WorkspaceSource::Host { mode, .. } => *mode == WorkspaceMode::Overlay,
            WorkspaceSource::Listed(_) => true,
            WorkspaceSource::Private | WorkspaceSource::Namespace => false,
        };
        match flag {
            None => Ok(Self::Ask),
            Some(choice) if may_overlay => Ok(choice),
            Some(_) => Err(RequestError::invalid(
                "--commit and --discard are for the changes of an overlay.",
                "Add --workspace DIR:overlay.",
            )),
        }
    }
}

/// Our standard input, read by the script while it runs and for the answer afterwards. Both share one buffer, so that
/// no line is lost between them.
#[derive(Clone)]
pub(super) struct Keyboard(Arc<Mutex<Stdin>>);

impl Keyboard {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(tokio::io::stdin())))
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            if self.read(&mut byte).await? == 0 || byte == *b"\n" {
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if line.len() < ANSWER_BYTES_MAX {
                line.push(byte[0]);
            }
        }
    }
}

impl AsyncRead for Keyboard {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_read(context, buffer)
    }
}

pub(super) struct Question {
    pub(super) choice: CommitChoice,
    pub(super) has_succeeded: bool,
    /// None if there is no person to answer.
    pub(super) keyboard: Option<Keyboard>,
    pub(super) is_shown: bool,
    pub(super) terminal: Terminal,
}

/// Shows the changes and commits or discards them. In the returned facts, `committed` is what was written, or null.
pub(super) async fn decide(changes: HeldChanges, question: Question) -> Result<Value, RequestError> {
    let (choice, terminal) = (question.choice, question.terminal);
    let token = changes.token();
    let Rendered { text, mut facts } = render::held_changes(&changes);
    facts["committed"] = Value::Null;
    if changes.difference().is_empty() {
        return Ok(facts);
    }
    let say = |text: &str| {
        if question.is_shown {
            terminal.dim(text);
        }
    };
    if question.is_shown {
        terminal.difference(&text);
    }
    let path = changes.directory().to_owned();
    let directory = path.display().to_string();
    let conflicting = changes.difference().conflicts.len();
    let refused = match (choice, question.keyboard) {
        (CommitChoice::Commit(_), _) if question.has_succeeded => None,
        (CommitChoice::Commit(_), _) => Some("the script has failed: nothing was written".to_owned()),
        (CommitChoice::Discard, _) => Some("discarded: nothing was written".to_owned()),
        (CommitChoice::Ask, _) if let Err(error) = changes.check_shown() => {
            Some(format!("nothing was written: {}", error.message))
        }
        (CommitChoice::Ask, Some(keyboard)) => {
            match is_accepted(terminal, keyboard, &directory, conflicting).await? {
                true => None,
                false => return Ok(facts),
            }
        }
        (CommitChoice::Ask, None) => Some(format!(
            "nothing was written to {directory} (accept such changes with --commit, or say --discard)"
        )),
    };
    if let Some(why) = refused {
        say(&why);
        return Ok(facts);
    }
    let conflicts = match choice {
        CommitChoice::Commit(conflicts) => conflicts,
        // The question has given their number.
        CommitChoice::Ask | CommitChoice::Discard => Conflicts::Overwrite,
    };
    let caller = Caller::new("cli run");
    let committed = changes.commit(&caller, &token, conflicts).await?;
    render::committed(&path, &committed).text.lines().for_each(say);
    facts["committed"] = json!(committed);
    Ok(facts)
}

pub(super) async fn is_accepted(
    terminal: Terminal,
    keyboard: Keyboard,
    directory: &str,
    conflicting: usize,
) -> Result<bool, RequestError> {
    let question = match conflicting {
        0 => format!("write these changes to {directory}? [y/N] "),
        _ => format!(
            "the host has changed {conflicting} of these in {directory} meanwhile; write over that? [y/N] "
        ),
    };
    let wanted = says_yes(terminal, keyboard, &question).await?;
    if !wanted {
        terminal.dim("nothing was written");
    }
    Ok(wanted)
}

pub(super) async fn says_yes(
    terminal: Terminal,
    mut keyboard: Keyboard,
    question: &str,
) -> Result<bool, RequestError> {
    // A question that cannot be read is not answered.
    terminal.ask(question).map_err(|error| fault("ask", &error))?;
    let answer = keyboard.line().await;
    let answer = answer.map_err(|error| fault("read the answer", &error))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::Language;

    #[test]
    fn commit_and_discard_require_a_possible_overlay() {
        let choice = |workspace: WorkspaceSource, flag| {
            let mut request = ExecuteRequest::new(Language::Shell, "true");
            request.workspace = workspace;
            CommitChoice::of(flag, &request).ok()
        };
        let (commit, discard) = (
            Some(CommitChoice::Commit(Conflicts::Refuse)),
            Some(CommitChoice::Discard),
        );
        let host = |mode| WorkspaceSource::Host {
            directory: "/srv/x".into(),
            mode,
        };
        assert_eq!(choice(host(WorkspaceMode::Overlay), commit), commit);
        assert_eq!(choice(host(WorkspaceMode::Overlay), discard), discard);
        assert_eq!(
            choice(host(WorkspaceMode::Overlay), None),
            Some(CommitChoice::Ask)
        );
        assert_eq!(choice("project".parse().unwrap(), commit), commit);
        assert_eq!(choice(host(WorkspaceMode::Rw), commit), None);
        assert_eq!(choice(WorkspaceSource::Private, discard), None);
        assert_eq!(choice(WorkspaceSource::Private, None), Some(CommitChoice::Ask));
    }
}
