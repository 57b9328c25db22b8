//! Replaces text in workspace files; refuses files that a read would redact, so that an edit cannot probe for secrets.

use super::files::{OpenWorkspace, WorkspaceAccess};
use crate::{
    error::Result,
    record::hex,
    store::fault,
    workspace_error,
    workspaces::{FILE_BYTES_MAX, Use},
};
use ringfence_store::{audit::Action, tree};
use ringfence_types::{RequestError, WorkspacePath};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Maximum bytes of an edited file, as of a file read in one answer.
const EDITED_BYTES_MAX: u64 = 4 << 20;
/// Maximum lines that a refusal shows, and characters of each.
const PLACES_MAX: usize = 5;
const LINE_CHARS_MAX: usize = 120;

#[derive(Clone, Debug)]
pub struct Edit {
    /// The exact present text.
    pub old: String,
    pub new: String,
    /// True: every occurrence. False: `old` must occur exactly once.
    pub all: bool,
}

#[derive(Clone, Debug)]
pub struct Edited {
    pub replaced: usize,
    /// SHA-256 of the new content, lower-case hex.
    pub sha256: String,
}

impl WorkspaceAccess<'_> {
    /// Replaces text in a file; the file is written whole or not at all.
    pub async fn edit_file(&self, path: &WorkspacePath, edit: Edit) -> Result<Edited> {
        let details = json!({"path": path, "edit": true});
        let path = path.clone();
        let edited = self.with(Use::Write, move |opened| opened.edit(&path, &edit));
        let digest = |done: &Edited, details: &mut Value| details["sha256"] = json!(done.sha256);
        self.change(Action::FilePut, details, edited, digest).await
    }
}

impl OpenWorkspace {
    fn edit(&self, path: &WorkspacePath, edit: &Edit) -> Result<Edited> {
        let _alone = self.lock_for_writing().map_err(fault)?;
        let got = tree::get(self.root(), path, EDITED_BYTES_MAX).map_err(workspace_error::of_tree)?;
        if *self.redactor.bytes(&got.bytes) != *got.bytes {
            return Err(RequestError::denied(
                "the file holds a secret or personal data, which are redacted when it is read.",
                "Have a program edit it (execute_code).",
            ));
        }
        let text = String::from_utf8(got.bytes).map_err(|_| {
            RequestError::invalid(
                "the file is not UTF-8 text.",
                "Have a program edit it (execute_code), or write it anew with put_file.",
            )
        })?;
        let (new, replaced) = replace(&text, edit)?;
        self.quota.check(self.root(), &[(path, new.len() as u64)])?;
        let put = tree::put(
            self.root(),
            path,
            new.as_bytes(),
            Some(got.entry.mode),
            FILE_BYTES_MAX,
        );
        put.map_err(|error| self.write_error(error))?;
        let digest: [u8; 32] = Sha256::digest(new.as_bytes()).into();
        Ok(Edited {
            replaced,
            sha256: hex(&digest),
        })
    }
}

/// Returns the new text, and the number of replacements.
fn replace(text: &str, edit: &Edit) -> Result<(String, usize)> {
    if edit.old.is_empty() {
        return Err(RequestError::invalid(
            "`old` is empty.",
            "Give the text to replace; put_file writes a file anew.",
        ));
    }
    let count = text.matches(&edit.old).count();
    let places = match count {
        0 => nearest(text, &edit.old),
        1 => return Ok((text.replacen(&edit.old, &edit.new, 1), 1)),
        _ if edit.all => {
            let added = (edit.new.len() as u64).saturating_sub(edit.old.len() as u64);
            let size = added
                .saturating_mul(count as u64)
                .saturating_add(text.len() as u64);
            if size > FILE_BYTES_MAX {
                return Err(RequestError::invalid(
                    "the file would be larger than 64 MiB.",
                    "Replace less.",
                ));
            }
            return Ok((text.replace(&edit.old, &edit.new), count));
        }
        _ => {
            let line_of = |(at, _)| text[..at].matches('\n').count();
            let starts = text.match_indices(&edit.old).map(line_of);
            starts.take(PLACES_MAX).collect()
        }
    };
    let lines: Vec<&str> = text.lines().collect();
    let mut excerpt = String::new();
    for number in places {
        let line: String = lines
            .get(number)
            .into_iter()
            .flat_map(|line| line.chars())
            .take(LINE_CHARS_MAX)
            .collect();
        excerpt += &format!("\n{}: {line}", number + 1);
    }
    Err(if count > 0 {
        RequestError::invalid(
            format!("`old` is there {count} times, first in the lines:{excerpt}"),
            "Give more of the text around it, so that it is there once, or `all: true`.",
        )
    } else if excerpt.is_empty() {
        RequestError::not_found(
            "`old` is not in the file, nor is any of its lines.",
            "get_file reads the file; `old` is exact, with its blanks.",
        )
    } else {
        RequestError::not_found(
            format!("`old` is not in the file; nearest are the lines:{excerpt}"),
            "`old` is exact, with its blanks and the end of each line.",
        )
    })
}

/// Returns the numbers of lines that contain the first line of `old` that is found at all, without its outer blanks.
fn nearest(text: &str, old: &str) -> Vec<usize> {
    let wanted = old.lines().map(str::trim).filter(|line| !line.is_empty());
    wanted
        .take(PLACES_MAX)
        .map(|wanted| {
            let lines = text.lines().enumerate();
            let same = lines.filter(|(_, line)| line.contains(wanted));
            same.map(|(number, _)| number)
                .take(PLACES_MAX)
                .collect::<Vec<_>>()
        })
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::ErrorCode;

    fn edit(old: &str) -> Edit {
        Edit {
            old: old.to_owned(),
            new: "new".to_owned(),
            all: false,
        }
    }

    fn edit_all(old: &str) -> Edit {
        Edit {
            all: true,
            ..edit(old)
        }
    }

    #[test]
    fn single_match_is_replaced_and_several_only_with_all() {
        let text = "a\n  b = 1\na\n";
        assert_eq!(
            replace(text, &edit("b = 1")).unwrap(),
            ("a\n  new\na\n".to_owned(), 1)
        );
        assert_eq!(
            replace(text, &edit_all("a")).unwrap(),
            ("new\n  b = 1\nnew\n".to_owned(), 2)
        );
        let several = replace(text, &edit("a")).unwrap_err();
        assert_eq!(several.code, ErrorCode::InvalidArgument);
        assert!(
            several.message.contains("2 times") && several.message.ends_with("\n1: a\n3: a"),
            "{several}"
        );
        let near = replace(text, &edit("\tb = 1\n")).unwrap_err();
        assert!(near.message.ends_with("\n2:   b = 1"), "{near}");
        assert_eq!(replace(text, &edit("zzz")).unwrap_err().code, ErrorCode::NotFound);
        assert!(replace(text, &edit_all("")).is_err());
    }
}
