//! What a program shows beside its text: values with richer forms, figures, and pictures for those who can see.

use crate::client::*;
use std::time::{Duration, Instant};

/// A stand-in for the plotting library: its figures are one pixel each, and a comment that no client shall get.
const PYPLOT: &str = "import struct, zlib
figures = {}
class Figure:
    def __init__(self, number): self.number = number
    def plot(self, *data): pass
    def savefig(self, file, format):
        def chunk(kind, data):
            return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
        file.write(b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 2, 0, 0, 0))
                   + chunk(b'tEXt', b'Comment\\0hunter2') + chunk(b'IDAT', zlib.compress(bytes([0, self.number, 0, 0])))
                   + chunk(b'IEND', b''))
def figure(number=None):
    number = number or len(figures) + 1
    return figures.setdefault(number, Figure(number))
def get_fignums(): return sorted(figures)
def show(): pass
";

fn with_pyplot(server: &mut Server, code: &str) -> Value {
    let files = json!([
        {"path": "matplotlib/__init__.py", "text": ""},
        {"path": "matplotlib/pyplot.py", "text": PYPLOT},
    ]);
    server.call("execute_code", json!({"code": code, "files": files}))
}

/// The mime types of its content blocks after the text.
fn pictures(answer: &Value) -> Vec<&str> {
    let blocks = list_of(&answer["content"]);
    assert_eq!(blocks[0]["type"], "text");
    let rest = blocks[1..].iter();
    rest.map(|block| {
        assert_eq!(block["type"], "image", "{block}");
        text_of(&block["mimeType"])
    })
    .collect()
}

#[test]
fn a_figure_that_is_left_open_is_an_artifact_and_a_picture() {
    let mut server = Server::start();
    for (code, success) in [
        (
            "import matplotlib.pyplot as plt\nplt.figure().plot([1, 2])\nplt.show()",
            true,
        ),
        ("import matplotlib.pyplot as plt\nplt.figure()\n1 / 0", false),
        (
            "import matplotlib.pyplot as plt\nplt.figure()\nraise SystemExit(3)",
            false,
        ),
    ] {
        let answer = with_pyplot(&mut server, code);
        let result = &answer["structuredContent"];
        assert_eq!(result["success"], success, "{result}");
        result.shows(json!({"display": [{"mime": "image/png", "artifact": "output/figure-1.png"}]}));
        assert_eq!(result["artifacts"][0]["name"], "output/figure-1.png");
        assert_eq!(pictures(&answer), ["image/png"]);
        // Of the file only the pixels come through.
        let drawn = text_of(&answer["content"][1]["data"]);
        let file = text_of(&result["artifacts"][0]["content_b64"]);
        assert!(drawn.starts_with("iVBORw0KGgo") && drawn != file, "{drawn}");
        assert!(drawn.len() < file.len(), "{drawn}\n{file}");
    }
    // No more pictures are given than a model wants.
    let code = "import matplotlib.pyplot as plt\nfor _ in range(20): plt.figure()";
    let answer = with_pyplot(&mut server, code);
    assert_eq!(pictures(&answer).len(), 4);
    let saved = "import matplotlib.pyplot as plt\nplt.figure().savefig(open('a.png', 'wb'), 'png')";
    // One that was saved comes once, though its figure is open, too.
    let saved = with_pyplot(&mut server, saved);
    assert_eq!(pictures(&saved), ["image/png"]);
    assert_eq!(saved["structuredContent"]["artifacts_total"], 1, "{saved}");
    saved.shows(json!({"structuredContent.display": [{"mime": "image/png", "artifact": "a.png"}]}));
    let result = &answer["structuredContent"];
    assert_eq!(list_of(&result["display"]).len(), 16);
    assert_eq!(list_of(&result["artifacts"]).len(), 10);
    assert_eq!(result["artifacts_total"], 16);
    let text = answer.text();
    assert_contains(text, ["and 6 more artifacts, 16 in all; next: get_artifacts"]);
}

/// claim: [ART-3]
#[test]
fn what_only_claims_to_be_a_picture_is_an_artifact_and_nothing_more() {
    let mut server = Server::start();
    let code = "import struct, zlib
head = b'IHDR' + struct.pack('>IIBBBBB', 65535, 65535, 16, 6, 0, 0, 0)
open('bomb.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + struct.pack('>I', 13) + head + struct.pack('>I', zlib.crc32(head)))
open('torn.jpg', 'wb').write(bytes.fromhex('ffd8ffe000104a464946'))
open('text.png', 'w').write('no picture')";
    let answer = server.call("execute_code", json!({"code": code}));
    assert_eq!(answer["structuredContent"]["success"], true, "{answer}");
    assert_eq!(list_of(&answer["structuredContent"]["artifacts"]).len(), 3);
    assert_eq!(pictures(&answer), [""; 0]);
}

#[test]
fn a_value_is_shown_in_the_forms_that_it_has() {
    let code = "class Table:
    def __repr__(self): return 'a table'
    def _repr_html_(self): return '<table>é</table>'
    def _repr_svg_(self): return 'x' * (300 << 10)
Table()";
    let result = run_json("python", code, &[]);
    assert_eq!(result["result_repr"], "a table", "{result}");
    result.shows(json!({"display": [
        {"mime": "image/svg+xml", "artifact": "output/display-1.svg"},
        {"mime": "text/html", "text": "<table>é</table>"},
    ]}));
    assert_eq!(result["artifacts"][0]["size_bytes"], 300 << 10);
    assert_eq!(run_json("python", "1 + 1", &[])["display"], json!([]));
    assert_eq!(run_json("node", "1 + 1", &[])["display"], json!([]));
}

#[test]
fn a_forged_report_shows_nothing_that_is_not_there() {
    let code = "import os
def tell(tag, payload): os.write(3, tag + len(payload).to_bytes(4, 'big') + payload)
open(os.environ['RINGFENCE_OUTPUT_DIR'] + '/script.png', 'w').write('<script>')
tell(b'A', b'image/png\\noutput/gone.png')
tell(b'A', b'image/png\\n/etc/passwd')
tell(b'A', b'image/png\\noutput/script.png')
tell(b'D', b'text/javascript\\nalert(1)')
tell(b'D', b'text/html\\nmine')";
    let result = run_json("python", code, &[]);
    result.shows(json!({"display": [{"mime": "text/html", "text": "mine"}]}));
}

#[test]
fn pictures_that_take_long_do_not_keep_the_result_waiting() {
    let mut server = Server::start();
    // As many pixels as are allowed, four times, of which each file says in a few kilobytes that they are black.
    let code = "import matplotlib.pyplot as plt, struct, zlib
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
head = struct.pack('>IIBBBBB', 16384, 16384, 1, 0, 0, 0, 0)
rows = zlib.compress(bytes(16384 * 2049), 9)
for n in range(4):
    with open('%d.png' % n, 'wb') as file:
        file.write(b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', head) + chunk(b'IDAT', rows) + chunk(b'IEND', b''))
plt.figure()";
    let begun = Instant::now();
    let answer = with_pyplot(&mut server, code);
    let ran_ms = answer["structuredContent"]["duration_ms"].as_f64().unwrap();
    let waited = begun
        .elapsed()
        .saturating_sub(Duration::from_secs_f64(ran_ms / 1000.0));
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    assert_eq!(list_of(&answer["structuredContent"]["artifacts"]).len(), 5);
    // What was drawn before is given, and what the program shows was drawn first.
    assert!(!pictures(&answer).is_empty());
}
