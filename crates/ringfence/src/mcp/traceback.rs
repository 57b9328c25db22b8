//! Folds the frames of a traceback that no reader needs: those of libraries and of the interpreter itself. The caller's
//! own frames, and every other line, stay as they are.

#[derive(Default)]
struct Folded<'a> {
    lines: Vec<&'a str>,
    frames: usize,
    owners: Vec<String>,
}

impl Folded<'_> {
    /// Writes the frames, folded if there are several: a single one is as short as the line in its place would be.
    fn end(&mut self, text: &mut String) {
        let folded = std::mem::take(self);
        if folded.frames > 1 {
            // The last frame of an error with properties opens a brace.
            let brace = if folded.lines.last().is_some_and(|line| line.ends_with(" {")) {
                " {"
            } else {
                ""
            };
            let owners = folded.owners.join(", ");
            *text += &format!("  ... {} frames in {owners}{brace}\n", folded.frames);
        } else {
            for line in folded.lines {
                *text += line;
                *text += "\n";
            }
        }
    }
}

pub(super) fn folded(text: &str) -> String {
    let (mut short, mut open) = (String::new(), Folded::default());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(owner) = owner(line) else {
            open.end(&mut short);
            short += line;
            short += "\n";
            continue;
        };
        open.frames += 1;
        open.lines.push(line);
        if !open.owners.contains(&owner) {
            open.owners.push(owner);
        }
        // The source line below a frame of Python, and the marks below that.
        while let Some(below) = lines.next_if(|below| is_python(line) && below.starts_with("    ")) {
            open.lines.push(below);
        }
    }
    open.end(&mut short);
    short
}

fn is_python(line: &str) -> bool {
    line.starts_with("  File \"")
}

/// Returns the library that a frame belongs to; `None` for a frame of the caller's, or another line.
fn owner(line: &str) -> Option<String> {
    if is_python(line) {
        of_python(line.strip_prefix("  File \"")?.split('"').next()?)
    } else {
        of_node(line.trim_start().strip_prefix("at ")?)
    }
}

fn of_python(path: &str) -> Option<String> {
    if let Some(module) = path.strip_prefix("<frozen ") {
        return Some(module.trim_end_matches('>').to_owned());
    }
    let installed = ["/site-packages/", "/dist-packages/", "/packages/layer/python/"];
    let below = installed
        .iter()
        .find_map(|directory| path.rsplit_once(directory))
        .map(|(_, below)| below)
        .or_else(|| {
            path.split_once("/lib/python3")?
                .1
                .split_once('/')
                .map(|(_, below)| below)
        })?;
    let name = below.split('/').next()?;
    Some(name.trim_end_matches(".py").to_owned())
}

fn of_node(frame: &str) -> Option<String> {
    let place = frame.rsplit_once('(').map_or(frame, |(_, place)| place);
    // Our driver is evaluated; the caller's code has a file.
    if ["node:", "async node:", "[eval]"]
        .iter()
        .any(|ours| place.starts_with(ours))
    {
        return Some("Node.js".to_owned());
    }
    let (_, below) = place.rsplit_once("/node_modules/")?;
    let parts = if below.starts_with('@') { 2 } else { 1 };
    Some(below.split('/').take(parts).collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_library_frames_become_one_line() {
        let python = "Traceback (most recent call last):\n  File \"main.py\", line 2, in <module>\n    requests.get(u)\n\
            \x20 File \"/packages/layer/python/requests/api.py\", line 73, in get\n    return request(\"get\", url)\n           ^^^^^^^\n\
            \x20 File \"/packages/layer/python/requests/sessions.py\", line 5, in send\n    x\n\
            \x20 File \"/usr/lib/python3/dist-packages/urllib3/pool.py\", line 7, in urlopen\n    y\n\
            \x20 File \"/opt/python/lib/python3.11/socket.py\", line 9, in f\n    z\n\
            OSError: no\n";
        assert_eq!(
            folded(python),
            "Traceback (most recent call last):\n  File \"main.py\", line 2, in <module>\n    requests.get(u)\n\
             \x20 ... 4 frames in requests, urllib3, socket\nOSError: no\n"
        );
        let node = "Error: no\n    at f (/workspace/main.js:1:7)\n    at Module._compile (node:internal/modules/cjs/loader:1554:14)\n\
            \x20   at node:internal/main/run_main_module:36:49\n    at [eval]:150:20\n    at g (/packages/layer/node_modules/@a/b/index.js:1:1)\n    at /workspace/main.js:9:1\n";
        assert_eq!(
            folded(node),
            "Error: no\n    at f (/workspace/main.js:1:7)\n  ... 4 frames in Node.js, @a/b\n    at /workspace/main.js:9:1\n"
        );
    }

    #[test]
    fn error_properties_keep_their_brace() {
        let node = "Error: no\n    at f (node:fs:1:1)\n    at g (node:vm:1:1) {\n  code: 'ENOENT'\n}\n";
        assert_eq!(
            folded(node),
            "Error: no\n  ... 2 frames in Node.js {\n  code: 'ENOENT'\n}\n"
        );
    }

    #[test]
    fn other_text_and_single_frames_are_unchanged() {
        for text in [
            "",
            "at home\n",
            "  File \"main.py\", line 1\n    x\n",
            "  File \"/usr/lib/python3.11/json/decoder.py\", line 1, in f\n    x\nValueError: no\n",
            "    at node:internal/x:1:1\n",
        ] {
            assert_eq!(folded(text), text);
        }
    }
}
