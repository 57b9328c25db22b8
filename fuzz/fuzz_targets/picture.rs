//! An arbitrary picture of a program: the answer is framed and within its bounds.

use ringfence_check::{PICTURE_SIDE_MAX, picture};

/// One input.
pub fn run(bytes: &[u8]) {
    let answer = picture(bytes);
    let end = answer
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a first line");
    let head: serde_json::Value = serde_json::from_slice(&answer[..end]).expect("JSON");
    if head["ok"] == true {
        let most = u64::from(PICTURE_SIDE_MAX);
        assert!(head["width"].as_u64().is_some_and(|width| width <= most));
        assert!(head["height"].as_u64().is_some_and(|height| height <= most));
    } else {
        assert!(head["why"].is_string() && answer.len() == end + 1);
    }
}
