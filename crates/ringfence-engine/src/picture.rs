//! Pictures for clients. Showing a picture means decoding it, and decoders are attacked by their input: so a program's
//! picture is decoded in a jail, and its pixels are encoded again. That jail's output is not trusted either.

use crate::{sandbox::Sandboxes, worker};
use ringfence_check::PICTURE_SIDE_MAX;
use serde::Deserialize;

pub(crate) const PICTURE: &str = "picture";
/// Concurrent picture workers; each may use its whole memory limit.
pub(crate) const AT_ONCE: usize = 2;
/// Larger files are not decoded.
const INPUT_BYTES_MAX: usize = 32 << 20;

/// A picture that contains only its pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// `image/png` or `image/jpeg`.
    pub mime: String,
    pub bytes: Vec<u8>,
    /// Width and height are in pixels, at most 1568.
    pub width: u32,
    pub height: u32,
}

#[derive(Deserialize)]
struct Head {
    ok: bool,
    #[serde(default)]
    mime: String,
    #[serde(default)]
    width: u32,
    #[serde(default)]
    height: u32,
}

/// Re-encodes an untrusted PNG, JPEG, GIF or WebP. `None`: another format, too large, or its decoder was killed.
pub(crate) async fn reencode(sandboxes: &Sandboxes, bytes: Vec<u8>) -> Option<Picture> {
    if bytes.len() > INPUT_BYTES_MAX {
        return None;
    }
    let _permit = sandboxes.pictures.acquire().await.ok()?;
    match worker::run(sandboxes, PICTURE, None, bytes).await {
        Ok(Ok(answer)) => read(&answer),
        Ok(Err(cause)) => {
            tracing::info!(?cause, "a picture could not be redrawn");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "no picture can be redrawn");
            None
        }
    }
}

/// Reads the worker's answer: a line of JSON, then the file.
fn read(answer: &[u8]) -> Option<Picture> {
    let end = answer.iter().position(|byte| *byte == b'\n')?;
    let head: Head = serde_json::from_slice(&answer[..end]).ok()?;
    let bytes = &answer[end + 1..];
    let begins: &[u8] = match head.mime.as_str() {
        "image/png" => b"\x89PNG\r\n\x1a\n",
        "image/jpeg" => b"\xff\xd8\xff",
        _ => return None,
    };
    let sides = 1..=PICTURE_SIDE_MAX;
    let good = head.ok && sides.contains(&head.width) && sides.contains(&head.height);
    (good && bytes.starts_with(begins)).then(|| Picture {
        mime: head.mime,
        bytes: bytes.to_vec(),
        width: head.width,
        height: head.height,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_worker_answer_is_refused() {
        let check = |head: &str, bytes: &[u8], good: bool| {
            let answer = [head.as_bytes(), b"\n", bytes].concat();
            assert_eq!(read(&answer).is_some(), good, "{head}");
        };
        let (png, jpeg) = (&b"\x89PNG\r\n\x1a\n..."[..], &b"\xff\xd8\xff..."[..]);
        for (ok, mime, width, height, bytes, good) in [
            (true, "image/png", 1568, 1, png, true),
            (true, "image/jpeg", 1, 1568, jpeg, true),
            (true, "image/png", 1569, 1, png, false),
            (true, "image/png", 0, 1, png, false),
            (true, "image/png", 1, 1, jpeg, false),
            (true, "text/html", 1, 1, png, false),
            (false, "image/png", 1, 1, png, false),
        ] {
            let head = serde_json::json!({"ok": ok, "mime": mime, "width": width, "height": height});
            check(&head.to_string(), bytes, good);
        }
        check(r#"{"ok":false,"why":"no"}"#, b"", false);
        check("", b"", false);
        assert_eq!(read(b""), None);
    }

    #[test]
    fn valid_worker_answer_is_accepted() {
        let pixel = b"GIF89a\x01\0\x01\0\x80\0\0\xff\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
        let picture = read(&ringfence_check::picture(pixel)).unwrap();
        assert_eq!((picture.width, picture.height), (1, 1));
        assert_eq!(read(&ringfence_check::picture(b"no picture")), None);
    }
}
