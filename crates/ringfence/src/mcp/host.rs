//! The toolset `host`: commands and files of the machine, each allowed by a rule or by a person.

use super::{
    Answer, Answered,
    call::Call,
    request_egress::{ApprovalCall, patience, reason_of},
};
use crate::{
    api::{
        HostExec, HostFileCopy, HostFileList, HostFileRead, HostFileWrite, ListHostAccess, Operation as _,
        RequestHostAccess,
    },
    render,
};
use ringfence_engine::{HostCommand, HostWriting};
use ringfence_types::{Namespace, RequestError};
use rmcp::model::CallToolResponse;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

const TIMEOUT_SECONDS: u64 = 30;

impl Call<'_> {
    pub(super) async fn host_exec(&self, given: HostExec, namespace: Namespace) -> Answered {
        let seconds = given.timeout.map_or(TIMEOUT_SECONDS, |seconds| seconds.0);
        let command = HostCommand {
            namespace,
            command: given.command,
            directory: given.directory.map(PathBuf::from),
            timeout: Duration::from_secs(seconds),
        };
        // The command ends with the call.
        let refusal = [
            "the call was cancelled before the command had ended.",
            "The command was ended, too.",
        ];
        let ran = self.engine().host_exec(self.caller(), command);
        let ran = self.until_left(ran, refusal).await?;
        Ok(Answer::from(render::host_run(&ran, self.offer().text_max)))
    }

    pub(super) async fn request_host_access(
        &self,
        given: RequestHostAccess,
        namespace: Namespace,
    ) -> Result<CallToolResponse, RequestError> {
        let approval_call = ApprovalCall {
            call: self,
            what: given.pattern.clone(),
            field: "pattern",
            patience: patience(given.wait_seconds.as_ref().map(|seconds| seconds.0))?,
        };
        let reason = reason_of(given.reason)?;
        let words = (
            RequestHostAccess::NAME,
            namespace.as_str(),
            &given.pattern,
            &given.directory,
            &reason,
            self.caller().as_str(),
        );
        let bound = serde_json::to_vec(&words).unwrap_or_default();
        let command = HostCommand {
            namespace,
            command: given.pattern,
            directory: given.directory.map(PathBuf::from),
            timeout: Duration::from_secs(TIMEOUT_SECONDS),
        };
        let requested = self
            .unrecorded()
            .request_host_access(self.caller(), command, reason);
        approval_call.answer(&bound, requested).await
    }

    pub(super) async fn list_host_access(&self, _: ListHostAccess, namespace: Namespace) -> Answered {
        let list = self.namespace(&namespace).host_access().await?;
        Ok(Answer::from(render::host_access(&list)))
    }

    pub(super) async fn host_file_read(&self, given: HostFileRead, namespace: Namespace) -> Answered {
        let room = self.server.large_answer(self.context).await?;
        let path = Path::new(&given.path);
        let file = self.namespace(&namespace).host_file_read(path).await?;
        room.keep_for(file.bytes.len());
        Ok(Answer::from(render::host_file(&file)))
    }

    pub(super) async fn host_file_write(&self, given: HostFileWrite, namespace: Namespace) -> Answered {
        let writing = match given.preview {
            Some(true) => HostWriting::Preview,
            _ => HostWriting::Now,
        };
        let (path, bytes) = (PathBuf::from(given.path), given.content.into_bytes());
        let access = self.namespace(&namespace);
        let written = access.host_file_write(path, bytes, writing).await?;
        Ok(Answer::from(render::host_written(&written, writing)))
    }

    pub(super) async fn host_file_list(&self, given: HostFileList, namespace: Namespace) -> Answered {
        let path = Path::new(&given.path);
        let listing = self.namespace(&namespace).host_file_list(path).await?;
        Ok(Answer::from(render::host_listing(path, &listing)))
    }

    pub(super) async fn host_file_copy(&self, given: HostFileCopy, namespace: Namespace) -> Answered {
        let source = Path::new(&given.source);
        let access = self.namespace(&namespace);
        let copied = access.host_file_copy(source, &given.destination).await?;
        Ok(Answer::from(render::host_copied(source, &copied)))
    }
}
