//! Output of a program beside its text: values in rich forms, figures, and images for models that can see.

use crate::client::*;
use std::time::{Duration, Instant};

/// A stand-in for matplotlib: each figure is one pixel, with a PNG comment that must not reach a client.
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

/// The MIME types of the images after the text in a result's content.
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
fn open_figure_becomes_an_artifact_and_an_image() {
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
        result.assert_fields(json!({"display": [{"mime": "image/png", "artifact": "output/figure-1.png"}]}));
        assert_eq!(result["artifacts"][0]["name"], "output/figure-1.png");
        assert_eq!(pictures(&answer), ["image/png"]);
        // The image is encoded anew: only the pixels of the file remain.
        let drawn = text_of(&answer["content"][1]["data"]);
        let file = text_of(&result["artifacts"][0]["content_b64"]);
        assert!(drawn.starts_with("iVBORw0KGgo") && drawn != file, "{drawn}");
        assert!(drawn.len() < file.len(), "{drawn}\n{file}");
    }
    // A result has at most 4 images.
    let code = "import matplotlib.pyplot as plt\nfor _ in range(20): plt.figure()";
    let answer = with_pyplot(&mut server, code);
    assert_eq!(pictures(&answer).len(), 4);
    let saved = "import matplotlib.pyplot as plt\nplt.figure().savefig(open('a.png', 'wb'), 'png')";
    // A figure that was saved and is still open appears once.
    let saved = with_pyplot(&mut server, saved);
    assert_eq!(pictures(&saved), ["image/png"]);
    assert_eq!(saved["structuredContent"]["artifacts_total"], 1, "{saved}");
    saved.assert_fields(json!({"structuredContent.display": [{"mime": "image/png", "artifact": "a.png"}]}));
    let result = &answer["structuredContent"];
    assert_eq!(list_of(&result["display"]).len(), 16);
    assert_eq!(list_of(&result["artifacts"]).len(), 10);
    assert_eq!(result["artifacts_total"], 16);
    let text = answer.text();
    assert_contains(text, ["and 6 more artifacts, 16 in all; next: get_artifacts"]);
}

/// claim: [ART-3]
#[test]
fn invalid_image_is_only_an_artifact() {
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
fn value_is_displayed_in_its_rich_forms() {
    let code = "class Table:
    def __repr__(self): return 'a table'
    def _repr_html_(self): return '<table>é</table>'
    def _repr_svg_(self): return 'x' * (300 << 10)
Table()";
    let result = run_json("python", code, &[]);
    assert_eq!(result["result_repr"], "a table", "{result}");
    result.assert_fields(json!({"display": [
        {"mime": "image/svg+xml", "artifact": "output/display-1.svg"},
        {"mime": "text/html", "text": "<table>é</table>"},
    ]}));
    assert_eq!(result["artifacts"][0]["size_bytes"], 300 << 10);
    assert_eq!(run_json("python", "1 + 1", &[])["display"], json!([]));
    assert_eq!(run_json("node", "1 + 1", &[])["display"], json!([]));
}

#[test]
fn forged_display_report_adds_no_invalid_entries() {
    let code = "import os
def tell(tag, payload): os.write(3, tag + len(payload).to_bytes(4, 'big') + payload)
open(os.environ['RINGFENCE_OUTPUT_DIR'] + '/script.png', 'w').write('<script>')
tell(b'A', b'image/png\\noutput/gone.png')
tell(b'A', b'image/png\\n/etc/passwd')
tell(b'A', b'image/png\\noutput/script.png')
tell(b'D', b'text/javascript\\nalert(1)')
tell(b'D', b'text/html\\nmine')";
    let result = run_json("python", code, &[]);
    result.assert_fields(json!({"display": [{"mime": "text/html", "text": "mine"}]}));
}

#[test]
fn slow_image_decoding_does_not_delay_the_result() {
    let mut server = Server::start();
    // Four images of the maximum number of pixels, all black, each compressed to a few kilobytes.
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
    // Images decoded in time are returned, and displayed figures are decoded first.
    assert!(!pictures(&answer).is_empty());
}
