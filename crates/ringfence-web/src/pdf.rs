//! The text of a PDF, page by page, up to a size and a time.

use pdf_extract::{Document, PlainTextOutput, output_doc_page};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

const PAGES_MAX: usize = 300;
const TEXT_BYTES_MAX: usize = 2 << 20;
/// Time limit; the worker has ten seconds.
const TIME_MAX: Duration = Duration::from_secs(6);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PdfText {
    pub(crate) text: String,
    pub(crate) pages: usize,
    /// Number of pages that were not read, because of a limit or because they are broken.
    pub(crate) pages_left_out: usize,
}

pub(crate) fn read(body: &[u8]) -> Result<PdfText, String> {
    let end = Instant::now() + TIME_MAX;
    let document = guarded(|| Document::load_mem(body).map_err(|error| error.to_string()))?;
    if document.is_encrypted() {
        return Err("it is encrypted".to_owned());
    }
    let numbers: Vec<u32> = document.get_pages().into_keys().collect();
    let mut text = String::new();
    let mut read = 0;
    for number in numbers.iter().take(PAGES_MAX) {
        if Instant::now() > end || text.len() > TEXT_BYTES_MAX {
            break;
        }
        let page = guarded(|| {
            let mut page = String::new();
            let mut output = PlainTextOutput::new(&mut page);
            output_doc_page(&document, &mut output, *number).map_err(|error| error.to_string())?;
            Ok(page)
        });
        // A broken page does not prevent the reading of others.
        if let Ok(page) = page {
            text.push_str(page.trim());
            text.push_str("\n\n");
            read += 1;
        }
    }
    if read == 0 && !numbers.is_empty() {
        return Err("none of its pages can be read".to_owned());
    }
    Ok(PdfText {
        text,
        pages: numbers.len(),
        pages_left_out: numbers.len() - read,
    })
}

/// Catches panics, because the library panics on malformed files.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("its parser gave up".to_owned()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Makes a file with a page for each text.
    pub(crate) fn pdf(pages: &[&str]) -> Vec<u8> {
        let kids: Vec<String> = (0..pages.len())
            .map(|page| format!("{} 0 R", 4 + 2 * page))
            .collect();
        let mut objects = vec![
            "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
            format!(
                "<< /Type /Pages /Kids [{}] /Count {} >>",
                kids.join(" "),
                pages.len()
            ),
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
        ];
        for (page, text) in pages.iter().enumerate() {
            let content = 5 + 2 * page;
            objects.push(format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {content} 0 R \
                 /Resources << /Font << /F1 3 0 R >> >> >>"
            ));
            let stream = format!("BT /F1 12 Tf 72 700 Td ({text}) Tj ET");
            objects.push(format!(
                "<< /Length {} >>\nstream\n{stream}\nendstream",
                stream.len()
            ));
        }
        let mut file = b"%PDF-1.4\n".to_vec();
        let mut offsets = Vec::new();
        for (index, object) in objects.iter().enumerate() {
            offsets.push(file.len());
            file.extend_from_slice(format!("{} 0 obj\n{object}\nendobj\n", index + 1).as_bytes());
        }
        let table = file.len();
        file.extend_from_slice(format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).as_bytes());
        for offset in offsets {
            file.extend_from_slice(format!("{offset:010} 00000 n \n").as_bytes());
        }
        let end = format!(
            "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n",
            objects.len() + 1
        );
        file.extend_from_slice(end.as_bytes());
        file
    }

    #[test]
    fn pages_are_read_one_by_one() {
        let read = read(&pdf(&["The first page.", "The second page."])).unwrap();
        assert_eq!((read.pages, read.pages_left_out), (2, 0));
        assert!(
            read.text.contains("The first page.") && read.text.contains("The second page."),
            "{}",
            read.text
        );
    }

    #[test]
    fn broken_pdf_is_an_error_and_does_not_panic() {
        assert!(read(b"%PDF-1.7\nnothing").is_err());
        let whole = pdf(&["text"]);
        for cut in (0..whole.len()).step_by(7) {
            drop(read(&whole[..cut]));
        }
    }
}
