//! What becomes of the changes that a script made to an overlay of a directory: they are shown, asked about, and then
//! written to the directory, or gone. Without an answer they are gone.

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

/// Of an answer; the rest of the line is ignored.
const ANSWER_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitChoice {
    Ask,
    Commit(Conflicts),
    Discard,
}

impl CommitChoice {
    /// A flag, or none: then it is asked.
    pub(super) fn of(flag: Option<Self>, request: &ExecuteRequest) -> Result<Self, RequestError> {
        let may_overlay = match &request.workspace {
            WorkspaceSource::Host { mode, .. } => *mode == WorkspaceMode::Overlay,
            WorkspaceSource::Listed(_) => true,
            WorkspaceSource::Private | WorkspaceSource::Namespace => false,
        };
        match flag {
            None => Ok(Self::Ask),
            Some(wish) if may_overlay => Ok(wish),
            Some(_) => Err(RequestError::invalid(
                "--commit and --discard are for the changes of an overlay.",
                "Add --workspace DIR:overlay.",
            )),
        }
    }
}

/// Our standard input, for the script as long as it runs and for the answer afterwards: a line that is typed meanwhile
/// is lost to neither.
#[derive(Clone)]
pub(super) struct Keyboard(Arc<Mutex<Stdin>>);

impl Keyboard {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(tokio::io::stdin())))
    }

    /// The next line, or as much of it as an answer can have.
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
    pub(super) wish: CommitChoice,
    pub(super) has_succeeded: bool,
    /// None: there is no person to answer.
    pub(super) keyboard: Option<Keyboard>,
    pub(super) is_told: bool,
    pub(super) terminal: Terminal,
}

/// Shows them, and does what is wished. The facts have what was written, if anything was, as `committed`.
pub(super) async fn decide(changes: HeldChanges, question: Question) -> Result<Value, RequestError> {
    let (wish, terminal) = (question.wish, question.terminal);
    let token = changes.token();
    let Rendered { text, mut facts } = render::held_changes(&changes);
    facts["committed"] = Value::Null;
    if changes.difference().is_empty() {
        return Ok(facts);
    }
    let say = |text: &str| {
        if question.is_told {
            terminal.dim(text);
        }
    };
    if question.is_told {
        terminal.difference(&text);
    }
    let place = changes.directory().to_owned();
    let directory = place.display().to_string();
    let conflicting = changes.difference().conflicts.len();
    let refused = match (wish, question.keyboard) {
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
    let conflicts = match wish {
        CommitChoice::Commit(conflicts) => conflicts,
        // The question has named them.
        CommitChoice::Ask | CommitChoice::Discard => Conflicts::Overwrite,
    };
    let caller = Caller::new("cli run");
    let committed = changes.commit(&caller, &token, conflicts).await?;
    render::committed(&place, &committed).text.lines().for_each(say);
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
    fn accepting_and_giving_up_are_said_of_an_overlay_alone() {
        let wish = |workspace: WorkspaceSource, flag| {
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
        assert_eq!(wish(host(WorkspaceMode::Overlay), commit), commit);
        assert_eq!(wish(host(WorkspaceMode::Overlay), discard), discard);
        assert_eq!(wish(host(WorkspaceMode::Overlay), None), Some(CommitChoice::Ask));
        assert_eq!(wish("project".parse().unwrap(), commit), commit);
        assert_eq!(wish(host(WorkspaceMode::Rw), commit), None);
        assert_eq!(wish(WorkspaceSource::Private, discard), None);
        assert_eq!(wish(WorkspaceSource::Private, None), Some(CommitChoice::Ask));
    }
}
