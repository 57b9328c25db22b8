//! The tools for the files of a workspace, and the toolset `snapshots`, which saves, restores and compares workspaces.

use super::{Answer, Answered, call::Call, execute_code::content, service::LargeAnswer};
use crate::{
    api::{
        CreateStateSnapshot, DeleteStateSnapshot, DiffWorkspace, EditFile, GetFile, ListFiles,
        ListStateSnapshots, PutFile, RestoreStateSnapshot, invalid,
    },
    render::{self, Rendered},
    sentence::counted,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ringfence_engine::{Edit, FileFacts};
use ringfence_types::{Namespace, RequestError, WorkspacePath};
use serde_json::json;

/// The largest file that one answer contains: base64 and JSON make it larger by half.
const GET_BYTES_MAX: u64 = 4 << 20;
const SHOWN_BYTES_MAX: usize = 64 << 10;
const LINES_MAX: usize = 200;

impl Call<'_> {
    pub(super) async fn put_file(&self, given: PutFile, namespace: Namespace) -> Answered {
        if given.archive == Some(true) {
            return self.put_directory(given, namespace).await;
        }
        let path = path(given.path)?.ok_or_else(no_path)?;
        let bytes = content(given.text, given.base64, &path)?;
        let where_it_is = match &given.session_id {
            // A program without a session has a workspace of its own.
            None => "programs see it with workspace: \"namespace\" of execute_code\n",
            Some(_) => "",
        };
        let workspace = self.namespace(&namespace).workspace(given.session_id);
        let facts = workspace.put_file(&path, bytes).await?;
        let text = format!(
            "{} has {} now\n{where_it_is}",
            facts.path,
            counted(facts.size_bytes, "byte")
        );
        let sha256 = facts.sha256;
        let structured = json!({"success": true, "path": facts.path, "files": 1, "size_bytes": facts.size_bytes, "sha256": sha256});
        Ok(Answer::plain(text, structured))
    }

    async fn put_directory(&self, given: PutFile, namespace: Namespace) -> Answered {
        let below = directory(given.path)?;
        if given.text.is_some() {
            return Err(invalid(
                "`text` is not an archive.",
                "Send the tar archive, plain or in gzip, as `base64`.",
            ));
        }
        let archive = given.base64.map(|text| STANDARD.decode(text));
        let archive = archive.and_then(Result::ok).ok_or_else(|| {
            invalid(
                "an archive needs `base64`, in standard base64 with padding.",
                "Send the tar archive, plain or in gzip, as `base64`.",
            )
        })?;
        let workspace = self.namespace(&namespace).workspace(given.session_id);
        let put = workspace.put_directory(below, archive).await?;
        let text = format!(
            "{} with {} bytes, now in {}\n",
            counted(put.files, "file"),
            put.size_bytes,
            put.path
        );
        let structured = json!({
            "success": true, "path": put.path, "files": put.files, "size_bytes": put.size_bytes, "sha256": put.sha256,
        });
        Ok(Answer::plain(text, structured))
    }

    pub(super) async fn edit_file(&self, given: EditFile, namespace: Namespace) -> Answered {
        let path = parsed(given.path)?;
        let edit = Edit {
            old: given.old,
            new: given.new,
            all: given.all == Some(true),
        };
        let workspace = self.namespace(&namespace).workspace(given.session_id);
        let edited = workspace.edit_file(&path, edit).await?;
        let text = format!("replaced {}\n", counted(edited.replaced, "place"));
        let structured = json!({"success": true, "replaced": edited.replaced, "sha256": edited.sha256});
        Ok(Answer::plain(text, structured))
    }

    pub(super) async fn get_file(&self, given: GetFile, namespace: Namespace) -> Answered {
        let room = self.server.large_answer(self.context).await?;
        if given.archive == Some(true) {
            return self.get_directory(given, namespace, room).await;
        }
        let path = path(given.path)?.ok_or_else(no_path)?;
        let workspace = self.namespace(&namespace).workspace(given.session_id);
        let (facts, bytes) = workspace.with_bytes_max(GET_BYTES_MAX).get_file(&path).await?;
        room.keep_for(bytes.len());
        let mut structured = json!({
            "success": true, "path": facts.path, "size_bytes": facts.size_bytes, "sha256": facts.sha256,
            "mode": facts.mode, "modified_unix_ms": facts.modified_unix_ms, "left_out": [], "left_out_count": 0,
        });
        let text = match String::from_utf8(bytes) {
            Ok(text) => {
                structured["text"] = json!(text);
                if text.len() <= SHOWN_BYTES_MAX {
                    text
                } else {
                    line(&facts)
                        + "too long to be shown; its text is in the structured content, and a program reads parts of it\n"
                }
            }
            Err(binary) => {
                structured["base64"] = json!(STANDARD.encode(binary.as_bytes()));
                line(&facts) + "not text; its base64 is in the structured content\n"
            }
        };
        Ok(Answer::plain(text, structured))
    }

    async fn get_directory(&self, given: GetFile, namespace: Namespace, room: LargeAnswer) -> Answered {
        let below = directory(given.path)?;
        let workspace = self.namespace(&namespace).workspace(given.session_id);
        let workspace = workspace.with_bytes_max(GET_BYTES_MAX);
        let got = workspace.get_directory(below).await?;
        room.keep_for(got.tar.len());
        let mut text = format!(
            "{}: {} files and directories in a tar archive of {} bytes\n",
            got.path,
            got.entries,
            got.tar.len()
        );
        for name in &got.left_out {
            text += &format!("left out: {name}\n");
        }
        let structured = json!({
            "success": true, "path": got.path, "size_bytes": got.tar.len(), "sha256": got.sha256,
            "base64": STANDARD.encode(&got.tar), "left_out": got.left_out, "left_out_count": got.left_out_count,
        });
        Ok(Answer::plain(text, structured))
    }

    pub(super) async fn list_files(&self, given: ListFiles, namespace: Namespace) -> Answered {
        let below = directory(given.path)?;
        let workspace = self.namespace(&namespace).workspace(given.session_id);
        let files = workspace.list_files(below.as_ref()).await?;
        let mut text: String = files.iter().take(LINES_MAX).map(line).collect();
        if files.len() > LINES_MAX {
            text += &format!("and {} more\n", files.len() - LINES_MAX);
        } else if files.is_empty() {
            text += "there is nothing\n";
        }
        Ok(Answer::plain(text, json!({"success": true, "files": files})))
    }
}

fn path(given: Option<String>) -> Result<Option<WorkspacePath>, RequestError> {
    given.map(parsed).transpose()
}

fn parsed(path: String) -> Result<WorkspacePath, RequestError> {
    WorkspacePath::try_from(path).map_err(|reason| {
        invalid(
            format!("{reason}."),
            "Name it below the workspace, as data/in.csv.",
        )
    })
}

/// Reads the path of a directory; `.` is the workspace itself, as is no path.
fn directory(given: Option<String>) -> Result<Option<WorkspacePath>, RequestError> {
    path(given.filter(|path| path != "."))
}

fn no_path() -> RequestError {
    invalid(
        "`path` is missing.",
        "Name a file below the workspace, as data/in.csv.",
    )
}

fn line(facts: &FileFacts) -> String {
    let end = if facts.kind == "directory" { "/" } else { "" };
    match &facts.sha256 {
        Some(digest) => format!("{}{end} {} bytes sha256 {digest}\n", facts.path, facts.size_bytes),
        None => format!("{}{end} {} bytes, {}\n", facts.path, facts.size_bytes, facts.kind),
    }
}

impl Call<'_> {
    pub(super) async fn create_snapshot(&self, given: CreateStateSnapshot, namespace: Namespace) -> Answered {
        let description = given.description.unwrap_or_default();
        let workspace = self.namespace(&namespace).workspace(given.session_id);
        let made = workspace.save(description);
        Ok(Answer::from(render::snapshot_made(&made.await?)))
    }

    pub(super) async fn restore_snapshot(
        &self,
        given: RestoreStateSnapshot,
        namespace: Namespace,
    ) -> Answered {
        let id = given.snapshot_id;
        let restored = self.namespace(&namespace).restore_snapshot(&id, given.session_id);
        Ok(Answer::from(render::snapshot_restored(&id, restored.await?)))
    }

    pub(super) async fn list_snapshots(&self, _: ListStateSnapshots, namespace: Namespace) -> Answered {
        let listed = self.namespace(&namespace).snapshots().await?;
        Ok(Answer::from(render::snapshots(&listed)))
    }

    pub(super) async fn diff(&self, given: DiffWorkspace, namespace: Namespace) -> Answered {
        let workspace = self.namespace(&namespace).workspace(given.session_id);
        let difference = workspace.diff(given.snapshot_id.as_deref());
        Ok(Answer::from(render::difference(&difference.await?)))
    }

    pub(super) async fn delete_snapshot(&self, given: DeleteStateSnapshot, namespace: Namespace) -> Answered {
        let id = given.snapshot_id;
        self.namespace(&namespace).delete_snapshot(&id).await?;
        Ok(Rendered::new("deleted\n", json!({"snapshot_id": id})).into())
    }
}
