//! The examples in README and `docs`: each configuration is read as the server would read it, each command line by the
//! real parser.

use crate::{cli, settings::parse_config};
use clap::error::ErrorKind;
use ringfence_engine::load_host_rules;
use std::{fs, path::Path};

struct Document {
    name: String,
    text: String,
}

fn documents() -> Vec<Document> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = fs::read_dir(root.join("docs")).unwrap();
    let pages = pages.map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let of = |path: std::path::PathBuf| Document {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        text: fs::read_to_string(path).unwrap(),
    };
    let all = pages.chain(["README.md", "SECURITY.md"].map(|name| root.join(name)));
    all.map(of).filter(|page| page.name != "reference.md").collect()
}

impl Document {
    fn blocks(&self, language: &str) -> Vec<&str> {
        let begin = format!("\n```{language}\n");
        let blocks = self.text.split(&begin).skip(1);
        blocks.map(|rest| rest.split("\n```").next().unwrap()).collect()
    }

    /// Command lines of `sh` blocks and of spans in the text, without those that stand for several (`a|b`).
    fn commands(&self) -> Vec<Vec<String>> {
        let lines = self.blocks("sh").join("\n").replace("\\\n", " ");
        let lines = lines
            .lines()
            .map(|line| line.split(" #").next().unwrap().to_owned());
        let prose: String = self.text.split("\n```").step_by(2).collect();
        let spans: Vec<String> = prose.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let spans = spans.into_iter().filter(|span| span.starts_with("ringfence "));
        let all = lines.chain(spans.map(|span| span.replace(['\n', '\\'], " ")));
        let from_name = |line: String| {
            let mut starts = line.match_indices("ringfence ").map(|(at, _)| at);
            let start = starts.find(|at| {
                let is_word = *at == 0 || line[..*at].ends_with([' ', '(']);
                is_word && line[at + 10..].starts_with(|c: char| c.is_ascii_lowercase())
            })?;
            let words = words(&line[start..]);
            let ends = |word: &String| ["|", ">", "2>", "&", "&&"].contains(&word.as_str());
            let end = words.iter().position(ends).unwrap_or(words.len());
            Some(words[..end].to_vec())
        };
        all.filter_map(from_name).collect()
    }
}

/// Splits a line into words like a shell without expansions; the `)` of a `$(` is dropped.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.push(std::mem::take(&mut word)),
            (')', None) => {}
            (c, _) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn configuration_in_the_documents_is_valid() {
    let mut read = 0;
    for page in documents() {
        for block in page.blocks("yaml") {
            read += 1;
            if block.contains("directories:") || block.contains("programs:") {
                // Directories of the example must exist.
                let block = block.replace("/srv/app", "/usr");
                let rules = load_host_rules(Some((Path::new("host.yaml"), &block)));
                assert!(rules.is_ok(), "{}: {:?}\n{block}", page.name, rules.err());
            } else {
                assert_eq!(parse_config(block).err(), None, "{}:\n{block}", page.name);
            }
        }
        for block in page.blocks("json") {
            read += 1;
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(block);
            assert!(parsed.is_ok(), "{}: {parsed:?}\n{block}", page.name);
        }
        assert!(
            page.blocks("toml").is_empty(),
            "{}: read these here, too",
            page.name
        );
    }
    assert!(read > 10, "{read}");
}

#[test]
fn commands_in_the_documents_exist_with_their_flags() {
    let wrong = [
        ErrorKind::UnknownArgument,
        ErrorKind::InvalidSubcommand,
        ErrorKind::ArgumentConflict,
    ];
    let mut parsed = 0;
    for page in documents() {
        for words in page
            .commands()
            .iter()
            .filter(|words| !words.concat().contains(['|', '*']))
        {
            parsed += 1;
            let error = cli::tests::parse(words).err();
            // Placeholders such as ID are no values, and the text leaves out arguments.
            let error = error.filter(|error| wrong.contains(&error.kind()));
            assert!(error.is_none(), "{}: {words:?}: {}", page.name, error.unwrap());
        }
    }
    assert!(parsed > 80, "{parsed}");
}
