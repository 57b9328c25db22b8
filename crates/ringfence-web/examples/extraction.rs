//! Measures the extraction of the main text of labelled pages: word-F1 by kind of page, and the time per page. Takes a
//! directory of `scrapinghub/article-extraction-benchmark` (`ground-truth.json`, `html/`) or of
//! `Murrough-Foley/web-content-extraction-benchmark` (`ground-truth/`, `html/`): `cargo xtask extraction DIR...`.
#![expect(clippy::print_stdout, reason = "its standard output is its report")]

use flate2::read::GzDecoder;
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    fs,
    io::Read,
    path::Path,
    time::{Duration, Instant},
};
use url::Url;

struct Page {
    kind: String,
    url: Option<Url>,
    html: String,
    truth: String,
}

#[derive(Default)]
struct Score {
    pages: usize,
    f1: f64,
    time: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    for directory in std::env::args().skip(1) {
        let pages = read(Path::new(&directory))?;
        println!(
            "\n{directory}: {} pages\n\n| pages | word-F1 | ms a page |\n|---|---|---|",
            pages.len()
        );
        let mut scores: BTreeMap<String, Score> = BTreeMap::new();
        for page in &pages {
            let begun = Instant::now();
            let found = ringfence_web::main_text(&page.html, page.url.as_ref());
            let time = begun.elapsed();
            let f1 = f1(&found, &page.truth);
            for kind in ["all", &page.kind] {
                let score = scores.entry(kind.to_owned()).or_default();
                score.pages += 1;
                score.f1 += f1;
                score.time += time;
            }
        }
        for (kind, score) in scores {
            #[expect(clippy::cast_precision_loss, reason = "some hundreds of pages")]
            let pages = score.pages as f64;
            let ms = score.time.as_secs_f64() * 1000.0 / pages;
            println!("| {kind} ({}) | {:.3} | {ms:.1} |", score.pages, score.f1 / pages);
        }
    }
    Ok(())
}

fn read(directory: &Path) -> Result<Vec<Page>, Box<dyn Error>> {
    let html = |name: &str| -> Result<String, Box<dyn Error>> {
        let mut bytes = Vec::new();
        let file = fs::File::open(directory.join("html").join(format!("{name}.html.gz")))?;
        GzDecoder::new(file).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut pages = Vec::new();
    let one = directory.join("ground-truth.json");
    if one.exists() {
        let all: BTreeMap<String, Value> = serde_json::from_slice(&fs::read(one)?)?;
        for (name, truth) in all {
            pages.push(Page {
                kind: "article".to_owned(),
                url: Url::parse(&text(&truth["url"])).ok(),
                html: html(&name)?,
                truth: text(&truth["articleBody"]),
            });
        }
        return Ok(pages);
    }
    let mut files: Vec<_> = fs::read_dir(directory.join("ground-truth"))?.collect::<Result<_, _>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    for file in files {
        let truth: Value = serde_json::from_slice(&fs::read(file.path())?)?;
        let name = file
            .path()
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        pages.push(Page {
            kind: text(&truth["_internal"]["page_type"]["primary"]),
            url: Url::parse(&text(&truth["url"])).ok(),
            html: html(&name)?,
            truth: text(&truth["ground_truth"]["main_content"]),
        });
    }
    Ok(pages)
}

fn words(text: &str) -> HashMap<String, usize> {
    let mut words = HashMap::new();
    for word in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        *words.entry(word.to_lowercase()).or_default() += 1;
    }
    words
}

/// Returns the harmonic mean of precision and recall of words, each counted as often as it occurs.
fn f1(found: &str, truth: &str) -> f64 {
    let (found, truth) = (words(found), words(truth));
    let both: usize = found
        .iter()
        .map(|(word, count)| truth.get(word).copied().unwrap_or(0).min(*count))
        .sum();
    let all: usize = found.values().sum::<usize>() + truth.values().sum::<usize>();
    #[expect(clippy::cast_precision_loss, reason = "words of a page")]
    match all {
        0 => 1.0,
        all => 2.0 * both as f64 / all as f64,
    }
}
