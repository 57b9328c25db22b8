//! A page in a browser: navigate, wait, read. The caller runs the browser in a sandbox with walls and egress of its
//! own; this module only drives it, over its pipes. Its messages are hostile, because the page may have taken it over.

mod page;

use crate::{
    Target,
    cdp::{Cdp, CdpError},
    fence::line,
};
use page::Page;
use ringfence_redact::Redactor;
use ringfence_types::closed_words;
use serde_json::json;
use std::{path::Path, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};

/// Time to read the page and take its screenshot, after the wait for it.
const READ_TIME: Duration = Duration::from_secs(8);
const HTML_BYTES_MAX: usize = 8 << 20;
const ERROR_CHARS_MAX: usize = 300;

/// Event of the page that ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitUntil {
    DomContentLoaded,
    Load,
    /// Half a second without requests.
    NetworkIdle,
}

closed_words!(WaitUntil: DomContentLoaded = "domcontentloaded", Load = "load", NetworkIdle = "networkidle");

impl WaitUntil {
    /// Returns the name of the lifecycle event in the protocol.
    fn event(self) -> &'static str {
        match self {
            Self::DomContentLoaded => "DOMContentLoaded",
            Self::Load => "load",
            Self::NetworkIdle => "networkIdle",
        }
    }
}

pub struct BrowserRequest<'a> {
    pub url: &'a Target,
    pub redactor: &'a Redactor,
    pub selector: Option<&'a str>,
    pub wait_until: WaitUntil,
    pub time: Duration,
    pub screenshot: bool,
    pub accessibility: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrowserPage {
    pub url: String,
    pub status: Option<u16>,
    /// The DOM as HTML; elements that are not displayed have the attribute `hidden`.
    pub html: String,
    /// A PNG of the page.
    pub screenshot: Option<Vec<u8>>,
    pub accessibility: Option<String>,
    pub console_errors: Vec<String>,
    /// True if the HTML was longer than the limit.
    pub is_cut: bool,
    /// True if the event, or an element of the selector, did not come in time.
    pub is_timed_out: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// It did not start, has ended, or broke the protocol.
    #[error("the browser has ended: {0}")]
    Gone(String),
    #[error("the page was not reached: {0}")]
    NotReached(String),
    #[error("the page was not reached: the browser does not trust its certificate ({0})")]
    Certificate(String),
    #[error("it is not a selector of CSS")]
    Selector,
    #[error("the browser did not answer in time")]
    TimedOut,
}

impl From<CdpError> for BrowserError {
    fn from(error: CdpError) -> Self {
        match error {
            CdpError::Gone(error) => Self::Gone(error.to_string()),
            CdpError::Refused(why) => Self::Gone(why),
        }
    }
}

/// Returns the arguments of Chromium, with its profile in this directory. It runs without its own sandbox, because
/// Ringfence's does not allow namespaces. It accepts any certificate whose key has the digest `egress_key` (SHA-256,
/// base64): egress answers with that key after it has checked the site's certificate itself.
pub fn chromium_arguments(profile: &Path, egress_key: Option<&str>) -> Vec<String> {
    const FLAGS: [&str; 24] = [
        "--headless",
        "--no-sandbox",
        "--no-zygote",
        "--remote-debugging-pipe",
        "--disable-gpu",
        "--disable-software-rasterizer",
        "--no-first-run",
        "--no-default-browser-check",
        "--no-pings",
        "--disable-background-networking",
        "--disable-breakpad",
        "--disable-component-update",
        "--disable-default-apps",
        "--disable-dev-shm-usage",
        "--disable-domain-reliability",
        "--disable-extensions",
        "--disable-quic",
        "--disable-sync",
        "--disable-features=AsyncDns,DnsOverHttps,MediaRouter,OptimizationHints,Translate,WebRtcHideLocalIpsWithMdns",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--metrics-recording-only",
        "--mute-audio",
        "--hide-scrollbars",
        "--window-size=1280,900",
    ];
    let mut arguments: Vec<String> = FLAGS.map(str::to_owned).into();
    arguments.push(format!("--user-data-dir={}", profile.display()));
    arguments.extend(egress_key.map(|digest| format!("--ignore-certificate-errors-spki-list={digest}")));
    arguments.push("about:blank".to_owned());
    arguments
}

/// Drives a browser that was just started; `from` and `to` are its pipes.
pub async fn browse(
    request: &BrowserRequest<'_>,
    from: impl AsyncRead + Send + Unpin + 'static,
    to: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<BrowserPage, BrowserError> {
    let mut browser = Cdp::new(from, to, page::KEPT_EVENTS);
    let waits_until = Instant::now() + request.time;
    let mut state = Page::default();
    let opened = timeout_at(waits_until, open(&mut browser, request, &mut state));
    opened.await.map_err(|_| BrowserError::TimedOut)??;
    let waited = async {
        page::wait_for(&mut browser, &mut state, request.wait_until.event()).await?;
        match request.selector {
            Some(selector) => page::wait_for_selector(&mut browser, &mut state, selector).await,
            None => Ok(()),
        }
    };
    let is_timed_out = match timeout_at(waits_until, waited).await {
        Ok(waited) => waited.map(|()| false)?,
        Err(_) => true,
    };
    let error = |text: &String| line(&request.redactor.text(text), ERROR_CHARS_MAX);
    let read = timeout_at(
        Instant::now() + READ_TIME,
        read(&mut browser, request, &mut state),
    );
    let page = read.await.map_err(|_| BrowserError::TimedOut)??;
    Ok(BrowserPage {
        is_timed_out,
        status: state.status,
        console_errors: state.console_errors.iter().map(error).collect(),
        ..page
    })
}

async fn open(browser: &mut Cdp, request: &BrowserRequest<'_>, state: &mut Page) -> Result<(), BrowserError> {
    browser
        .call("Browser.setDownloadBehavior", json!({"behavior": "deny"}))
        .await?;
    let target = browser
        .call("Target.createTarget", json!({"url": "about:blank"}))
        .await?;
    let attached = json!({"targetId": target["targetId"], "flatten": true});
    let attached = browser.call("Target.attachToTarget", attached).await?;
    let session = attached["sessionId"].as_str();
    let session = session.ok_or_else(|| BrowserError::Gone("it gave no session".to_owned()))?;
    browser.session = Some(session.to_owned());
    for domain in ["Page.enable", "Runtime.enable", "Network.enable", "Log.enable"] {
        browser.call(domain, json!({})).await?;
    }
    browser
        .call("Page.setLifecycleEventsEnabled", json!({"enabled": true}))
        .await?;
    let navigated = browser
        .call("Page.navigate", json!({"url": request.url.as_str()}))
        .await?;
    if let Some(why) = navigated["errorText"].as_str() {
        let short: String = why.chars().take(100).collect();
        return Err(match why.starts_with("net::ERR_CERT_") {
            true => BrowserError::Certificate(short),
            false => BrowserError::NotReached(short),
        });
    }
    state.begin(&navigated);
    // Earlier events may also be about the empty page.
    while let Some(event) = browser.buffered_event() {
        state.handle_if_current(&event);
    }
    Ok(())
}

async fn read(
    browser: &mut Cdp,
    request: &BrowserRequest<'_>,
    state: &mut Page,
) -> Result<BrowserPage, BrowserError> {
    let screenshot = match request.screenshot {
        true => Some(page::screenshot(browser).await?),
        false => None,
    };
    let read = page::html(browser, state, HTML_BYTES_MAX).await?;
    // After `page::html`, which marks invisible elements as hidden: that also removes them from this tree.
    let accessibility = match request.accessibility {
        true => Some(page::accessibility(browser, request.redactor).await?),
        false => None,
    };
    Ok(BrowserPage {
        url: request.redactor.text(&read.url).into_owned(),
        html: request.redactor.text(&read.html).into_owned(),
        is_cut: read.is_cut,
        screenshot,
        accessibility,
        ..BrowserPage::default()
    })
}
