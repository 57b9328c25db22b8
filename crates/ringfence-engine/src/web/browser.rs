//! A page in a real browser: Chromium in a sandbox of its own, with a fresh profile in its memory, its own network, and
//! egress as its only route. It is driven over its standard streams, and ended when the call ends.

use super::{
    Web, WebOutcome, denied, dial_error,
    page::{self, ReadPage, WebPage},
    requester, target,
};
use crate::{
    admission::{Demand, Queue},
    backend::{self, Claimed},
    caller::Caller,
    egress,
    error::{Result, busy},
    policy::reach,
    runtimes,
    sandbox::NO_BLOBS,
    streams::{Attached, StreamReader, drain},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ringfence_egress::{EgressReport, Inspection, Rules};
use ringfence_jail::{Claim, Layout, Run, wire::Order};
use ringfence_redact::Redactor;
use ringfence_types::{Denial, ErrorCode, Limits, Namespace, RequestError, Tier};
use ringfence_web::{
    BrowserError, BrowserPage, BrowserRequest, Question, Reads, Target, WaitUntil, browse, chromium_arguments,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{net::unix::pipe, sync::watch, time::timeout};

/// The limits of a browser. Its processes are mostly threads.
const LIMITS: Limits = Limits {
    memory_bytes: 1 << 30,
    cpu_millicores: 2000,
    timeout_ms: 0,
    processes: 512,
    output_bytes: 64 << 20,
    disk_bytes: 256 << 20,
};
/// Time to start, to read the page, and to render it.
const MARGIN: Duration = Duration::from_secs(15);
const TIME_MAX: Duration = Duration::from_secs(120);
const QUEUE_TIME: Duration = Duration::from_secs(10);
const END_TIME: Duration = Duration::from_secs(5);
const RETRY_AFTER_MS: u64 = 3000;
const DENIALS_MAX: usize = 20;
const STDERR_BYTES_MAX: usize = 4096;
const SELECTOR_CHARS_MAX: usize = 500;
/// Chromium's protocol uses descriptors 3 and 4; a sandbox has 0 and 1.
const LAUNCH: &str = "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null";
/// The smaller first: it starts in a third of the time and takes half of the memory.
const PROGRAMS: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
];

#[derive(Clone, Debug)]
pub struct BrowseRequest {
    pub namespace: Namespace,
    /// `http` or `https`.
    pub url: String,
    /// An element to wait for (CSS).
    pub selector: Option<String>,
    /// The event to wait for before that. Default: the page is loaded, and without a selector no request runs.
    pub wait_until: Option<WaitUntil>,
    pub timeout: Duration,
    pub screenshot: bool,
    pub accessibility: bool,
    /// Characters of text.
    pub max_length: Option<usize>,
}

impl Web {
    pub(crate) async fn browse(&self, wanted: &BrowseRequest, caller: &Caller) -> WebOutcome<WebPage> {
        let mut details = json!({});
        let result = self.open(wanted, caller, &mut details).await;
        WebOutcome { result, details }
    }

    async fn open(&self, wanted: &BrowseRequest, caller: &Caller, details: &mut Value) -> Result<WebPage> {
        let (url, length) = (target(&wanted.url)?, page::length(wanted.max_length)?);
        check(wanted)?;
        if self.sandboxes.tier != Tier::Full {
            return Err(RequestError::unsupported(
                "there is no browser in the tier `landlock`.",
                "It needs a network namespace of its own: the tier `full`.",
            ));
        }
        let program = self.chromium()?;
        let crowded = || {
            busy(
                "too many browsers or programs run.",
                "Ask again later.",
                RETRY_AFTER_MS,
            )
        };
        let permit = async |queue: &Queue, demand| {
            let permit = queue.permit(&wanted.namespace, demand, QUEUE_TIME).await;
            permit.map_err(|_| crowded())
        };
        let _place = permit(&self.browsing, Demand::default()).await?;
        let _run = permit(&self.runs, Demand::of(&LIMITS)).await?;
        let (report, opened) = self.run(wanted, &url, &program, caller).await?;
        details["egress"] = json!(egress::recorded(&report));
        let opened = opened.map_err(|error| failed(&error, &url, &report))?;
        if let Some(denial) = shown_refusal(&opened, &report) {
            return Err(denied(dial_error(denial.clone())));
        }
        details["status"] = json!(opened.status);
        let redactor = self.secrets.redactor_of_all(&wanted.namespace, &[]).await?;
        let mut shown = self.present(opened, length, &redactor).await?;
        shown.denials = report.denials;
        shown.denials.truncate(DENIALS_MAX);
        for denial in &mut shown.denials {
            denial.what = redactor.text(&denial.what).into_owned();
            denial.hint = redactor.text(&denial.hint).into_owned();
        }
        Ok(shown)
    }

    async fn present(&self, opened: BrowserPage, length: usize, redactor: &Redactor) -> Result<WebPage> {
        let head = Question {
            url: opened.url.clone(),
            content_type: "text/html; charset=utf-8".to_owned(),
            coding: String::new(),
            is_cut: opened.is_cut,
            reads: Reads::Document,
        };
        let (mut document, _) = self.document(&head, opened.html.as_bytes(), redactor).await?;
        document.needs_script = false;
        if let Some(tree) = &opened.accessibility {
            document.text.push_str("\n\nAccessibility tree:\n\n");
            document.text.push_str(tree);
        }
        if !opened.console_errors.is_empty() {
            let errors = opened.console_errors.join("\n- ");
            document
                .text
                .push_str(&format!("\n\nErrors in the console:\n\n- {errors}\n"));
        }
        let shown_url =
            Target::read(&opened.url).map_or_else(|_| "about:blank".to_owned(), |url| url.to_string());
        let read = ReadPage::new(shown_url, opened.status, document);
        let mut shown = page::presented(&read, 0, length)?;
        if let Some(drawn) = opened.screenshot {
            shown.picture = crate::picture::reencode(&self.sandboxes, drawn).await;
        }
        shown.facts["timed_out"] = json!(opened.is_timed_out);
        shown.facts["console_errors"] = json!(opened.console_errors);
        shown.facts["screenshot"] = json!(shown.picture.is_some());
        // Browser pages are not cached: a cursor cannot refer to another run.
        shown.facts["cursor"] = Value::Null;
        Ok(shown)
    }

    /// Runs the browser to its end, and returns the report of its egress.
    async fn run(
        &self,
        wanted: &BrowseRequest,
        url: &Target,
        program: &Path,
        caller: &Caller,
    ) -> Result<(EgressReport, Result<BrowserPage, BrowserError>)> {
        let time = wanted.timeout + MARGIN;
        let rules = self.egress.web_rules(&wanted.namespace);
        let inspection = self.egress.inspect_browser(&rules).await?;
        let mut started = self.start(program, &rules, inspection.as_deref(), time).await?;
        let sockets = started.take_sockets();
        let sockets = sockets.ok_or_else(|| {
            backend::fault(
                "open the browser's network",
                &std::io::ErrorKind::NotConnected.into(),
            )
        })?;
        let lease = self
            .egress
            .open_browser(&wanted.namespace, requester(caller), sockets, inspection)?;
        let sandbox = started.sandbox;
        let connect = |error| backend::fault("connect a browser", &error);
        let to = pipe::Sender::from_owned_fd(sandbox.stdin).map_err(connect)?;
        let from = pipe::Receiver::from_owned_fd(sandbox.stdout).map_err(connect)?;
        let (has_ended, sandbox_ended) = watch::channel(false);
        let stderr = StreamReader::new(sandbox.stderr, sandbox_ended).map_err(connect)?;
        let stderr = Attached(tokio::spawn(drain(stderr, STDERR_BYTES_MAX)));
        let redactor = self.secrets.redactor_of_all(&wanted.namespace, &[]).await?;
        let request = BrowserRequest {
            url,
            redactor: &redactor,
            selector: wanted.selector.as_deref(),
            wait_until: wanted.wait_until.unwrap_or(match wanted.selector {
                Some(_) => WaitUntil::Load,
                None => WaitUntil::NetworkIdle,
            }),
            time: wanted.timeout,
            screenshot: wanted.screenshot,
            accessibility: wanted.accessibility,
        };
        let opened = timeout(time, browse(&request, from, to)).await;
        let opened = opened.unwrap_or(Err(BrowserError::TimedOut));
        sandbox.events.order(&Order::Cancel);
        let ended = timeout(END_TIME, sandbox.events.ended()).await;
        if !matches!(ended, Ok(Ok(_))) {
            tracing::warn!("a browser was still ending");
        }
        has_ended.send_replace(true);
        let opened = match opened {
            Err(BrowserError::Gone(why)) => Err(BrowserError::Gone(with_last_line(&why, stderr).await)),
            other => other,
        };
        Ok((lease.report(), opened))
    }

    async fn start(
        &self,
        program: &Path,
        rules: &Rules,
        inspection: Option<&Inspection>,
        time: Duration,
    ) -> Result<Claimed> {
        let limits = Limits {
            timeout_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            ..LIMITS
        };
        reach::check(rules)?;
        let plan = self.sandboxes.plan_of_browser(program, limits.clone())?;
        let run = command(program, &plan.layout, inspection);
        let claim = Claim {
            egress: reach::spec(self.sandboxes.tier, rules),
            ..self.sandboxes.native.claim(run, limits)
        };
        let sandbox = self.sandboxes.native.spawn(Arc::new(plan), None)?;
        let (_cancel, mut cancelled) = watch::channel(false);
        Ok(sandbox.claim(&claim, NO_BLOBS, &mut cancelled).await?)
    }

    fn chromium(&self) -> Result<PathBuf> {
        let found = match &self.settings.browser {
            Some(path) => path.is_file().then(|| path.clone()),
            None => PROGRAMS
                .iter()
                .find_map(|name| runtimes::on_path(name, &self.sandboxes.runtimes)),
        };
        found.ok_or_else(|| {
            RequestError::runtime_unavailable(
                "there is no Chromium on this host.",
                "Install `chromium-headless-shell` or `chromium`, or name one in `web.browser`.",
            )
        })
    }
}

fn check(wanted: &BrowseRequest) -> Result<()> {
    if wanted.timeout.is_zero() || wanted.timeout > TIME_MAX {
        return Err(RequestError::invalid(
            format!("`timeout_ms` is not from 1 to {}.", TIME_MAX.as_millis()),
            "Leave it out: the default is 30000.",
        ));
    }
    match &wanted.selector {
        Some(selector) if selector.is_empty() || selector.chars().count() > SELECTOR_CHARS_MAX => {
            Err(RequestError::invalid(
                format!("`wait_for_selector` is empty or longer than {SELECTOR_CHARS_MAX} characters."),
                "Give a selector of CSS, as `#content`.",
            ))
        }
        _ => Ok(()),
    }
}

fn command(program: &Path, layout: &Layout, inspection: Option<&Inspection>) -> Run {
    let mut argv: Vec<String> = ["/bin/bash", "-c", LAUNCH].map(str::to_owned).into();
    argv.push(program.display().to_string());
    let key = inspection.map(|inspection| STANDARD.encode(Sha256::digest(inspection.public_key())));
    argv.extend(chromium_arguments(&layout.tmp.join("profile"), key.as_deref()));
    Run::Exec {
        argv,
        environment: runtimes::environment(layout, &[]),
        report: false,
    }
}

async fn with_last_line(why: &str, mut stderr: Attached<Vec<u8>>) -> String {
    let said = timeout(END_TIME, &mut stderr.0)
        .await
        .ok()
        .and_then(Result::ok)
        .unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let line = said
        .lines()
        .find(|line| line.contains("FATAL"))
        .or_else(|| said.lines().find(|line| !line.trim().is_empty()))
        .unwrap_or_default();
    let (line, _) = ringfence_web::clean(line);
    format!("{why}; {}", line.chars().take(300).collect::<String>())
}

/// Returns the denial that the browser shows as a page: over plain HTTP egress answers refused requests itself.
fn shown_refusal<'a>(opened: &BrowserPage, report: &'a EgressReport) -> Option<&'a Denial> {
    let host = Target::read(&opened.url).ok()?.host().to_owned();
    let mut denials = report.denials.iter();
    denials.find(|denial| denial.what.contains(&host) && opened.html.contains(&format!(">{}: ", denial.rule)))
}

/// Returns the error of a page. A denial of egress explains more than the browser's own error.
fn failed(error: &BrowserError, url: &Target, report: &EgressReport) -> RequestError {
    let denial = report
        .denials
        .iter()
        .find(|denial| denial.what.contains(url.host()));
    let hint = match (error, denial.or(report.denials.first())) {
        (BrowserError::NotReached(_), Some(denial)) => {
            return denied(dial_error(denial.clone()));
        }
        (BrowserError::Selector, _) => {
            let what = format!("`wait_for_selector`: {error}.");
            return RequestError::invalid(what, "Give a selector of CSS.");
        }
        (BrowserError::Certificate(_), _) => {
            "Where an authority of your own has signed it, have the operator name that in `egress.ca_file`."
        }
        (BrowserError::NotReached(_) | BrowserError::TimedOut, _) => "Check the URL, or try again later.",
        (BrowserError::Gone(_), _) => "`ringfence web browser` on the host shows the same error.",
    };
    RequestError::new(ErrorCode::PageUnavailable, format!("{error}."), hint)
}
