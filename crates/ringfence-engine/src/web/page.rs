//! A page for a model: fetched, parsed in a worker, fenced, and cut to the requested length. For a while the rest can
//! be read by its cursor without another request to the host.

use super::{EgressDial, Web, WebOutcome, denied, lock, requester, target};
use crate::{
    caller::Caller,
    egress,
    error::Result,
    picture::{self, Picture},
    record::hex,
};
use ringfence_redact::Redactor;
use ringfence_types::{Denial, ErrorCode, Namespace, RequestError};
use ringfence_web::{
    Document, DocumentKind, Fence, Fetch, FetchError, FetchLimits, Question, Reads, Refusal, Robots,
    parse_answer, question,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::VecDeque,
    fmt::Display,
    sync::Arc,
    time::{Duration, Instant},
};

/// Characters of one answer by default, and at most.
const LENGTH_USUAL: usize = 6_000;
const LENGTH_MAX: usize = 100_000;
/// Most pages cached for their cursors.
const KEPT_MAX: usize = 32;
const KEPT_BYTES_MAX: usize = 16 << 20;
const KEPT_FOR: Duration = Duration::from_secs(300);
const CURSOR_HASH_CHARS: usize = 12;

#[derive(Clone, Debug)]
pub struct PageRequest {
    pub namespace: Namespace,
    /// `http` or `https`.
    pub url: String,
    /// Characters of text.
    pub max_length: Option<usize>,
    /// The cursor of an earlier answer.
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct WebPage {
    /// Facts of the answer: URL, status, kind, title, hash, hidden parts, and so on.
    pub facts: Value,
    /// Its text, between lines with a mark.
    pub text: String,
    pub picture: Option<Picture>,
    pub denials: Vec<Denial>,
}

#[derive(Debug)]
pub(super) struct ReadPage {
    pub(super) url: String,
    pub(super) redirects: Vec<String>,
    pub(super) status: Option<u16>,
    pub(super) document: Document,
    pub(super) picture: Option<Picture>,
    sha256: String,
}

impl ReadPage {
    pub(super) fn new(url: String, status: Option<u16>, document: Document) -> Self {
        Self {
            sha256: hex(&Sha256::digest(document.text.as_bytes())),
            url,
            redirects: Vec::new(),
            status,
            document,
            picture: None,
        }
    }
}

#[derive(Default)]
pub(super) struct PageCache(VecDeque<CachedPage>);

struct CachedPage {
    namespace: Namespace,
    asked: String,
    page: Arc<ReadPage>,
    read: Instant,
}

impl PageCache {
    fn keep(&mut self, namespace: &Namespace, asked: &str, page: &Arc<ReadPage>) {
        self.0.retain(|kept| {
            kept.read.elapsed() < KEPT_FOR && !(kept.namespace == *namespace && kept.asked == asked)
        });
        self.0.push_back(CachedPage {
            namespace: namespace.clone(),
            asked: asked.to_owned(),
            page: page.clone(),
            read: Instant::now(),
        });
        let bytes =
            |kept: &VecDeque<CachedPage>| kept.iter().map(|one| one.page.document.text.len()).sum::<usize>();
        while self.0.len() > KEPT_MAX || bytes(&self.0) > KEPT_BYTES_MAX {
            self.0.pop_front();
        }
    }

    fn find(&self, namespace: &Namespace, asked: &str, sha256: &str) -> Option<Arc<ReadPage>> {
        let found = self.0.iter().find(|kept| {
            kept.namespace == *namespace
                && kept.asked == asked
                && kept.read.elapsed() < KEPT_FOR
                && kept.page.sha256.starts_with(sha256)
        });
        found.map(|kept| kept.page.clone())
    }
}

/// The position at which an answer continues: a character, and the beginning of the hash of the text that it refers to.
struct Cursor {
    at: usize,
    sha256: String,
}

impl Cursor {
    fn read(text: &str) -> Result<Self> {
        let parts = text.split_once('-');
        let read = parts.and_then(|(at, sha256)| {
            let is_hash =
                sha256.len() == CURSOR_HASH_CHARS && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_hash.then_some(Self {
                at: at.parse().ok()?,
                sha256: sha256.to_owned(),
            })
        });
        read.ok_or_else(|| {
            RequestError::invalid(
                "`cursor` is not one of an earlier answer.",
                "Leave it out to begin anew.",
            )
        })
    }
}

pub(super) fn length(asked: Option<usize>) -> Result<usize> {
    match asked.unwrap_or(LENGTH_USUAL) {
        length @ 1..=LENGTH_MAX => Ok(length),
        _ => Err(RequestError::invalid(
            format!("`max_length` is not from 1 to {LENGTH_MAX}."),
            "Leave it out, and follow the cursor for more.",
        )),
    }
}

impl Web {
    pub(crate) async fn page(&self, wanted: &PageRequest, caller: &Caller) -> WebOutcome<WebPage> {
        let mut details = json!({});
        let result = self.answer(wanted, caller, &mut details).await;
        WebOutcome { result, details }
    }

    async fn answer(&self, wanted: &PageRequest, caller: &Caller, details: &mut Value) -> Result<WebPage> {
        let (url, length) = (target(&wanted.url)?, length(wanted.max_length)?);
        let cursor = wanted.cursor.as_deref().map(Cursor::read).transpose()?;
        let kept = cursor
            .as_ref()
            .and_then(|cursor| lock(&self.pages).find(&wanted.namespace, url.as_str(), &cursor.sha256));
        let page = match kept {
            Some(page) => page,
            None => Arc::new(self.fetched(wanted, &url, caller, details).await?),
        };
        details["sha256"] = json!(page.sha256);
        // A cursor into another text does not apply.
        let cursor = cursor.filter(|cursor| page.sha256.starts_with(&cursor.sha256));
        let at = cursor.map_or(0, |cursor| cursor.at);
        let shown = presented(&page, at, length)?;
        if !shown.facts["cursor"].is_null() {
            lock(&self.pages).keep(&wanted.namespace, url.as_str(), &page);
        }
        Ok(shown)
    }

    async fn fetched(
        &self,
        wanted: &PageRequest,
        url: &ringfence_web::Target,
        caller: &Caller,
        details: &mut Value,
    ) -> Result<ReadPage> {
        let _permit = self.fetch_permit(&wanted.namespace).await?;
        let (fetcher, _) = self.clients().await?;
        let lease = self.egress.open_web(&wanted.namespace, requester(caller))?;
        let dial = EgressDial(Ok(&lease.connections));
        let fetch = Fetch {
            url,
            limits: FetchLimits {
                wire_bytes: self.settings.bytes_max,
                time: self.settings.timeout,
            },
            robots: match self.settings.robots {
                true => Robots::Obeyed,
                false => Robots::Ignored,
            },
            dial: &dial,
            owner: wanted.namespace.as_str(),
        };
        let fetched = fetcher.fetch(&fetch).await;
        details["egress"] = json!(egress::recorded(&lease.report()));
        let fetched = fetched.map_err(refused)?;
        details["status"] = json!(fetched.status);
        details["bytes"] = json!(fetched.body.len());
        let head = Question {
            url: fetched.url.as_str().to_owned(),
            content_type: fetched.content_type,
            coding: fetched.coding,
            is_cut: fetched.is_cut,
            reads: Reads::Document,
        };
        let redactor = self.secrets.redactor_of_all(&wanted.namespace, &[]).await?;
        let (document, picture) = self.document(&head, &fetched.body, &redactor).await?;
        let clean = |url: &String| redactor.text(url).into_owned();
        Ok(ReadPage {
            redirects: fetched.redirects.iter().map(clean).collect(),
            picture,
            ..ReadPage::new(clean(&head.url), Some(fetched.status), document)
        })
    }

    /// Parses a body in a worker, redacts its texts, and re-encodes a picture in another worker.
    pub(super) async fn document(
        &self,
        head: &Question,
        body: &[u8],
        redactor: &Redactor,
    ) -> Result<(Document, Option<Picture>)> {
        let question = question(head, body).map_err(unread)?;
        let answer = self.read(question).await.map_err(unread)?;
        let (mut document, bytes) = parse_answer(&answer).map_err(|Refusal { why }| unread(why))?;
        document.redact(redactor);
        if document.kind != DocumentKind::Image {
            return Ok((document, None));
        }
        let picture = picture::reencode(&self.sandboxes, bytes).await;
        match picture {
            Some(picture) => Ok((document, Some(picture))),
            None => Err(unread(
                "the picture is not a PNG, JPEG, GIF or WebP that can be drawn",
            )),
        }
    }
}

/// Returns a piece of a page, with its facts.
pub(super) fn presented(page: &ReadPage, at: usize, length: usize) -> Result<WebPage> {
    let document = &page.document;
    let total = document.text.chars().count();
    let piece: String = document.text.chars().skip(at).take(length).collect();
    let end = (at + piece.chars().count()).min(total);
    let next =
        (end < total && !piece.is_empty()).then(|| format!("{end}-{}", &page.sha256[..CURSOR_HASH_CHARS]));
    let fence = Fence::random().map_err(|why| {
        RequestError::fault(format!("there are no random bytes: {why}."), "Ask again later.")
    })?;
    let text = match page.picture {
        Some(_) => String::new(),
        None => fence.around(&page.url, &piece),
    };
    let hidden = &document.hidden;
    let facts = json!({
        "url": page.url,
        "redirects": page.redirects,
        "status": page.status,
        "kind": document.kind.as_str(),
        "extraction": document.extraction.as_str(),
        "title": document.title,
        "author": document.author,
        "date": document.date,
        "language": document.language,
        "charset": document.charset,
        "pages": document.pages,
        "pages_left_out": document.pages_left_out,
        "needs_script": document.needs_script,
        "hidden": {"elements": hidden.elements, "comments": hidden.comments, "invisible": hidden.invisible},
        "characters": total,
        "from": at.min(total),
        "to": end,
        "truncated": document.is_cut,
        "cursor": next,
        "sha256": page.sha256,
        "mark": fence.mark(),
        "text": text,
    });
    Ok(WebPage {
        facts,
        text,
        picture: page.picture.clone(),
        denials: Vec::new(),
    })
}

fn unread(why: impl Display) -> RequestError {
    RequestError::new(
        ErrorCode::PageUnavailable,
        format!("the response could not be read: {why}."),
        "Try another page, or another form of this one.",
    )
}

fn refused(error: FetchError) -> RequestError {
    let (code, hint) = match &error {
        FetchError::Denied(_) => (ErrorCode::PolicyDenied, ""),
        FetchError::Robots { .. } => (
            ErrorCode::PolicyDenied,
            "Use another source; the operator can set `web.robots: false` for pages that people may read.",
        ),
        FetchError::Redirect { .. } => (
            ErrorCode::PolicyDenied,
            "Fetch another page: redirects to there are not followed.",
        ),
        FetchError::Busy { .. } => (ErrorCode::Busy, "Ask again later, and less often."),
        FetchError::TooManyRedirects => (
            ErrorCode::PageUnavailable,
            "Fetch the page that it is to lead to.",
        ),
        FetchError::Failed { .. } => (ErrorCode::PageUnavailable, "Check the URL, or try again later."),
    };
    match error {
        FetchError::Denied(error) => denied(error),
        error => RequestError::new(code, format!("{error}."), hint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_split_into_consecutive_pieces() {
        let text: String = (0..1000).map(|number| format!("{number} é ")).collect();
        let page = ReadPage::new(
            "https://a.test/".to_owned(),
            Some(200),
            Document {
                text: text.clone(),
                ..Document::default()
            },
        );
        let (mut read, mut at) = (String::new(), 0);
        loop {
            let piece = presented(&page, at, 777).unwrap();
            let lines: Vec<&str> = piece.text.split('\n').collect();
            let mark = piece.facts["mark"].as_str().unwrap();
            assert!(lines[0].contains(mark) && lines[2].contains(mark), "{lines:?}");
            let to = usize::try_from(piece.facts["to"].as_u64().unwrap()).unwrap();
            read.extend(text.chars().skip(at).take(to - at));
            let Some(cursor) = piece.facts["cursor"].as_str() else {
                break;
            };
            at = Cursor::read(cursor).unwrap().at;
            assert_eq!(at, to);
        }
        assert_eq!(read, text);
        assert!(Cursor::read("12").is_err() && Cursor::read("x-0123456789ab").is_err());
        assert!(length(Some(0)).is_err() && length(Some(LENGTH_MAX + 1)).is_err());
    }
}
