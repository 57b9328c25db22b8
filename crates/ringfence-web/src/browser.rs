//! One page in a browser: navigate, wait, read. The browser runs in a sandbox whose walls and egress are the caller's;
//! here it is only driven, over its pipes. What it says is hostile: the page may have taken it over.

mod page;

use crate::{
    Target,
    cdp::{Cdp, CdpError},
    fence::line,
};
use page::Watch;
use ringfence_redact::Redactor;
use ringfence_types::closed_words;
use serde_json::json;
use std::{path::Path, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};

/// After the page was waited for: to read it, and to draw it.
const READ_TIME: Duration = Duration::from_secs(8);
const HTML_BYTES_MAX: usize = 8 << 20;
const ERROR_CHARS_MAX: usize = 300;

/// What a page is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitUntil {
    DomContentLoaded,
    Load,
    /// Half a second without requests.
    NetworkIdle,
}

closed_words!(WaitUntil: DomContentLoaded = "domcontentloaded", Load = "load", NetworkIdle = "networkidle");

impl WaitUntil {
    /// The protocol's word.
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
    /// The tree as HTML; what is not displayed is marked as hidden.
    pub html: String,
    /// A PNG, as the browser drew it.
    pub screenshot: Option<Vec<u8>>,
    pub accessibility: Option<String>,
    pub console_errors: Vec<String>,
    /// There was more of it.
    pub is_cut: bool,
    /// What was waited for did not happen in time.
    pub is_timed_out: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// It did not start, or is gone.
    #[error("the browser has ended: {0}")]
    Gone(String),
    /// The browser's word for why.
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

/// How Chromium is started, with its profile below this directory. It has no sandbox of its own: the one that it runs
/// in does not allow namespaces. It accepts any certificate of the key with this digest (SHA-256, base64): egress
/// answers with that key where it has checked the certificate itself.
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

/// Drives a browser that has just been started, over what it reads and what it writes.
pub async fn browse(
    request: &BrowserRequest<'_>,
    from: impl AsyncRead + Send + Unpin + 'static,
    to: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<BrowserPage, BrowserError> {
    let mut browser = Cdp::new(from, to, page::HEARD);
    let waits_until = Instant::now() + request.time;
    let mut watch = Watch::default();
    let opened = timeout_at(waits_until, open(&mut browser, request, &mut watch));
    opened.await.map_err(|_| BrowserError::TimedOut)??;
    let waited = async {
        page::wait_for(&mut browser, &mut watch, request.wait_until.event()).await?;
        match request.selector {
            Some(selector) => page::wait_for_selector(&mut browser, &mut watch, selector).await,
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
        read(&mut browser, request, &mut watch),
    );
    let page = read.await.map_err(|_| BrowserError::TimedOut)??;
    Ok(BrowserPage {
        is_timed_out,
        status: watch.status,
        console_errors: watch.console_errors.iter().map(error).collect(),
        ..page
    })
}

async fn open(
    browser: &mut Cdp,
    request: &BrowserRequest<'_>,
    watch: &mut Watch,
) -> Result<(), BrowserError> {
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
    let went = browser
        .call("Page.navigate", json!({"url": request.url.as_str()}))
        .await?;
    if let Some(why) = went["errorText"].as_str() {
        let short: String = why.chars().take(100).collect();
        return Err(match why.starts_with("net::ERR_CERT_") {
            true => BrowserError::Certificate(short),
            false => BrowserError::NotReached(short),
        });
    }
    watch.begin(&went);
    // What was said until now is about the empty page, too.
    while let Some(event) = browser.said() {
        watch.hear_of_present(&event);
    }
    Ok(())
}

async fn read(
    browser: &mut Cdp,
    request: &BrowserRequest<'_>,
    watch: &mut Watch,
) -> Result<BrowserPage, BrowserError> {
    let screenshot = match request.screenshot {
        true => Some(page::screenshot(browser).await?),
        false => None,
    };
    let read = page::html(browser, watch, HTML_BYTES_MAX).await?;
    // After what is not seen was marked as hidden, which takes it out of this tree, too.
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
