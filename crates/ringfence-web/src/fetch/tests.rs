//! Redirects, robots.txt and broken answers, over loopback.

use super::*;
use crate::{ConnectFuture, Stream};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Connects every name to one listener, except `denied.test`.
struct Loopback(SocketAddr);

impl Dial for Loopback {
    fn connect<'a>(&'a self, to: &'a Target, _method: &'a str) -> ConnectFuture<'a> {
        Box::pin(async move {
            let refused = |rule: &str| DialError {
                rule: rule.to_owned(),
                what: format!("No network access to {}", to.authority()),
                hint: String::new(),
            };
            if to.host() == "denied.test" {
                return Err(refused("egress.name"));
            }
            let stream = TcpStream::connect(self.0)
                .await
                .map_err(|_| refused("egress.unreachable"))?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// Serves each request with `answer`; returns the dialler and the list of received requests.
async fn serve(answer: fn(&str) -> String) -> (Loopback, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dial = Loopback(listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let received = seen.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let received = received.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 8192];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                let answer = answer(&request);
                received.lock().unwrap().push(request);
                drop(stream.write_all(answer.as_bytes()).await);
            });
        }
    });
    (dial, seen)
}

fn fetcher() -> Fetcher {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let tls = tls
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Fetcher::new(Arc::new(tls))
}

async fn fetch(url: &str, robots: Robots, dial: &Loopback) -> Result<Fetched, FetchError> {
    let wanted = Fetch {
        url: &Target::read(url).unwrap(),
        limits: FetchLimits {
            wire_bytes: 1000,
            time: Duration::from_secs(5),
        },
        robots,
        dial,
        owner: "default",
    };
    fetcher().fetch(&wanted).await
}

fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn to(location: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nSet-Cookie: id=1\r\nContent-Length: 0\r\n\r\n")
}

#[tokio::test]
async fn redirects_are_followed_without_cookies_or_referrer() {
    let (dial, seen) = serve(|request| match request {
        request if request.starts_with("GET /a ") => to("http://other.test/b"),
        request if request.starts_with("GET /b ") => to("/c"),
        _ => ok("there"),
    })
    .await;
    let fetched = fetch("http://one.test/a", Robots::Ignored, &dial).await.unwrap();
    assert_eq!(fetched.url.as_str(), "http://other.test/c");
    assert_eq!(fetched.redirects, ["http://other.test/b", "http://other.test/c"]);
    assert_eq!(fetched.body, b"there");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    for request in seen.iter() {
        let low = request.to_lowercase();
        assert!(
            !low.contains("cookie") && !low.contains("referer") && !low.contains("authorization"),
            "{request}"
        );
    }
}

#[tokio::test]
async fn every_redirect_is_judged() {
    let (dial, _) = serve(|request| match request {
        request if request.starts_with("GET /denied ") => to("http://denied.test/"),
        request if request.starts_with("GET /file ") => to("file:///etc/passwd"),
        request if request.starts_with("GET /user ") => to("http://u:p@other.test/"),
        _ => to("/loop"),
    })
    .await;
    let denied = fetch("http://one.test/denied", Robots::Ignored, &dial)
        .await
        .unwrap_err();
    assert!(matches!(denied, FetchError::Denied(_)), "{denied}");
    for path in ["file", "user"] {
        let refused = fetch(&format!("http://one.test/{path}"), Robots::Ignored, &dial)
            .await
            .unwrap_err();
        assert!(matches!(refused, FetchError::Redirect { .. }), "{refused}");
    }
    let around = fetch("http://one.test/loop", Robots::Ignored, &dial)
        .await
        .unwrap_err();
    assert_eq!(around, FetchError::TooManyRedirects);
}

/// claim: [WEB-11]
#[tokio::test]
async fn robots_txt_is_requested_once_per_owner() {
    let (dial, seen) = serve(|_| ok("")).await;
    let (fetcher, url) = (fetcher(), Target::read("http://one.test/a").unwrap());
    for (owner, expected) in [("one", 1), ("one", 1), ("two", 2)] {
        let limits = FetchLimits {
            wire_bytes: 1000,
            time: Duration::from_secs(5),
        };
        let wanted = Fetch {
            url: &url,
            limits,
            robots: Robots::Obeyed,
            dial: &dial,
            owner,
        };
        fetcher.fetch(&wanted).await.unwrap();
        let seen = seen.lock().unwrap();
        let robots = seen
            .iter()
            .filter(|request| request.starts_with("GET /robots.txt"));
        assert_eq!(robots.count(), expected, "{owner}");
    }
}

#[tokio::test]
async fn robots_txt_is_checked_first_and_a_server_error_denies() {
    let (dial, seen) = serve(|request| match request {
        request if request.contains("ost: allows.test") && request.starts_with("GET /robots.txt") => {
            ok("User-agent: *\nDisallow: /private")
        }
        request if request.contains("ost: fails.test") && request.starts_with("GET /robots.txt") => {
            "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_owned()
        }
        request if request.starts_with("GET /robots.txt") => {
            "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_owned()
        }
        _ => ok("page"),
    })
    .await;
    let denied = |result: Result<Fetched, FetchError>| matches!(result, Err(FetchError::Robots { .. }));
    assert!(
        fetch("http://allows.test/public", Robots::Obeyed, &dial)
            .await
            .is_ok()
    );
    assert!(denied(
        fetch("http://allows.test/private/x", Robots::Obeyed, &dial).await
    ));
    assert!(denied(fetch("http://fails.test/", Robots::Obeyed, &dial).await));
    assert!(fetch("http://none.test/", Robots::Obeyed, &dial).await.is_ok());
    let before = seen.lock().unwrap().len();
    assert!(fetch("http://fails.test/", Robots::Ignored, &dial).await.is_ok());
    assert_eq!(seen.lock().unwrap().len(), before + 1);
}

#[tokio::test]
async fn long_body_is_cut_and_broken_answer_is_an_error() {
    let (dial, _) = serve(|request| match request {
        request if request.starts_with("GET /long ") => ok(&"x".repeat(5000)),
        request if request.starts_with("GET /short ") => {
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_owned()
        }
        _ => "SSH-2.0-x\r\n".to_owned(),
    })
    .await;
    let long = fetch("http://one.test/long", Robots::Ignored, &dial)
        .await
        .unwrap();
    assert_eq!((long.body.len(), long.is_cut), (1000, true));
    for path in ["short", "ssh"] {
        let failed = fetch(&format!("http://one.test/{path}"), Robots::Ignored, &dial)
            .await
            .unwrap_err();
        assert!(
            matches!(
                failed,
                FetchError::Failed {
                    why: ExchangeError::Http(_),
                    ..
                }
            ),
            "{failed:?}"
        );
    }
}
