//! Tests of the places that secrets are written to, and of those that they are not.

use super::*;
use proptest::prelude::*;
use std::{
    future::ready,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

fn to(text: &str) -> Destination {
    Destination::read(text, Some(443)).expect("a destination")
}

fn bound(name: &str, value: &str, places: &[&str]) -> BoundSecret {
    let places: Vec<SecretPlace> = places.iter().map(|text| text.parse().expect("a place")).collect();
    let now = places.clone();
    BoundSecret::new(name, value, places, move || Box::pin(ready(now.clone()))).expect("random")
}

fn fill(
    secrets: &[BoundSecret],
    to: &Destination,
    headers: &mut HeaderMap,
    target: &mut String,
) -> Result<Vec<String>, Unwritable> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(super::fill(secrets, to, headers, target)).poll(&mut context) {
        Poll::Ready(filled) => filled,
        Poll::Pending => panic!("its places are ready"),
    }
}

#[test]
fn secret_place_is_a_host_name_and_one_slot() {
    for (text, printed) in [
        ("api.test", "api.test:443 header authorization"),
        ("API.test.:8443 header X-Key", "api.test:8443 header x-key"),
        (
            "*.api.test header authorization: Bearer {}",
            "*.api.test:443 header authorization: Bearer {}",
        ),
        ("api.test  query key", "api.test:443 query key"),
        ("api.test query key=", "api.test:443 query key="),
    ] {
        let place: SecretPlace = text.parse().expect(text);
        assert_eq!(place.to_string(), printed);
        assert_eq!(printed.parse(), Ok(place), "{printed}");
    }
    for text in [
        "",
        "*",
        "10.0.0.1",
        "10.0.0.0/8",
        "api.test/path",
        "api.test:80",
        "http://api.test",
        "localhost",
        "api.test cookie",
        "api.test header",
        "api.test header a b",
        "api.test header host",
        "api.test header content-length",
        "api.test header transfer-encoding",
        "api.test header x-key: none",
        "api.test header x-key: {} {}",
        "api.test header x-key: \u{e4} {}",
        "api.test query",
        "api.test query a&b",
        "api.test query a=b",
    ] {
        let error = text.parse::<SecretPlace>().expect_err(text);
        assert!(
            !error.hint().is_empty() && !error.to_string().is_empty(),
            "{text}"
        );
    }
}

#[test]
fn placeholder_is_replaced_only_at_its_host_and_in_its_header() {
    let secrets = [bound("K", "value-1", &["api.test header x-key"])];
    let placeholder = secrets[0].placeholder().to_owned();
    let filled = |host: &str, header: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(
            header,
            HeaderValue::from_str(&format!("k={placeholder}")).expect("a value"),
        );
        let mut target = format!("/?x-key={placeholder}");
        let filled = fill(&secrets, &to(host), &mut headers, &mut target).expect("filled");
        assert!(target.contains(&placeholder), "{target}");
        let value = headers
            .get(header)
            .map(|value| value.to_str().expect("text").to_owned());
        (value, filled.len())
    };
    assert_eq!(filled("api.test", "x-key"), (Some("k=value-1".to_owned()), 1));
    let sent = format!("k={placeholder}");
    for (host, header) in [
        ("api.test", "authorization"),
        ("api.test:8443", "x-key"),
        ("other.test", "x-key"),
        ("a.api.test", "x-key"),
        ("93.184.216.34", "x-key"),
    ] {
        assert_eq!(filled(host, header), (Some(sent.clone()), 0), "{host} {header}");
    }
}

#[test]
fn program_values_in_a_secret_place_are_removed() {
    let if_present = [bound(
        "K",
        "value-1",
        &["api.test header x-key", "api.test query key"],
    )];
    let always = [bound(
        "K",
        "value-1",
        &["api.test header x-key: Key {}", "api.test query key="],
    )];
    let sent = |secrets: &[BoundSecret]| {
        let mut headers = HeaderMap::new();
        headers.append("x-key", HeaderValue::from_static("mine"));
        headers.append("x-key", HeaderValue::from_static("mine too"));
        headers.append("x-other", HeaderValue::from_static("other"));
        let mut target = "/p?a=1&key=mine&k%65y=mine&key&b=2".to_owned();
        fill(secrets, &to("api.test"), &mut headers, &mut target).expect("filled");
        let values = headers.get_all("x-key").iter();
        let keys: Vec<String> = values
            .map(|value| value.to_str().expect("text").to_owned())
            .collect();
        assert_eq!(headers["x-other"], "other");
        (keys, target)
    };
    assert_eq!(sent(&if_present), (Vec::new(), "/p?a=1&b=2".to_owned()));
    assert_eq!(
        sent(&always),
        (
            vec!["Key value-1".to_owned()],
            "/p?a=1&b=2&key=value-1".to_owned()
        )
    );
}

#[test]
fn secrets_of_one_header_are_distinguished_and_basic_is_decoded() {
    let secrets = [
        bound("A", "value-a", &["api.test header authorization"]),
        bound(
            "B",
            "value-b",
            &["api.test header authorization", "api.test query key"],
        ),
    ];
    let [a, b] = secrets.each_ref().map(BoundSecret::placeholder);
    let sent = |value: String| {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::AUTHORIZATION,
            HeaderValue::from_str(&value).expect("a value"),
        );
        let mut target = format!("/?key={b}&key={a}");
        fill(&secrets, &to("api.test"), &mut headers, &mut target).expect("filled");
        assert_eq!(target, "/?key=value-b");
        headers[header::AUTHORIZATION].to_str().expect("text").to_owned()
    };
    assert_eq!(sent(format!("Bearer {b}")), "Bearer value-b");
    let basic = STANDARD.encode(format!("me:{a}"));
    assert_eq!(
        sent(format!("basic {basic}")),
        format!("basic {}", STANDARD.encode("me:value-a"))
    );
    assert_eq!(
        sent(format!("a={a}, b={b}, c={a}")),
        "a=value-a, b=value-b, c=value-a"
    );
    let basic = STANDARD.encode(format!("{a}:{b}"));
    assert_eq!(
        sent(format!("Basic {basic}")),
        format!("Basic {}", STANDARD.encode("value-a:value-b"))
    );
}

#[test]
fn secret_with_invalid_header_bytes_is_refused() {
    let secrets = [bound("K", "two\nlines", &["api.test header x-key: {}"])];
    let refused = fill(
        &secrets,
        &to("api.test"),
        &mut HeaderMap::new(),
        &mut "/".to_owned(),
    );
    assert_eq!(refused, Err(Unwritable::Bytes("K".to_owned())));
}

#[test]
fn outdated_secret_is_refused_where_it_would_be_written() {
    let places = |texts: &[&str]| -> Vec<SecretPlace> {
        texts.iter().map(|text| text.parse().expect("a place")).collect()
    };
    let leased = places(&[
        "api.test header x-key",
        "api.test query key",
        "b.test header x-key: {}",
    ]);
    let now = Arc::new(Mutex::new(leased.clone()));
    let current = now.clone();
    let secret = BoundSecret::new("K", "value-1", leased, move || {
        Box::pin(ready(current.lock().expect("places").clone()))
    });
    let secrets = [secret.expect("random")];
    let placeholder = secrets[0].placeholder();
    let sent = |host: &str, key: &str, query: &str| {
        let mut headers = HeaderMap::from_iter([(
            HeaderName::from_static("x-key"),
            HeaderValue::from_str(key).expect("a value"),
        )]);
        fill(&secrets, &to(host), &mut headers, &mut format!("/?key={query}")).map(|names| names.len())
    };
    let outdated = Err(Unwritable::Outdated("K".to_owned()));
    assert_eq!(sent("api.test", placeholder, "mine"), Ok(1));
    // A wider place with the same header and parameter is as good.
    *now.lock().expect("places") = places(&["*.test header x-key", "api.test query key"]);
    assert_eq!(sent("api.test", placeholder, placeholder), Ok(1));
    for removed in [places(&["c.test header x-key"]), Vec::new()] {
        *now.lock().expect("places") = removed;
        assert!(
            secrets[0].belongs_to(&to("api.test")),
            "its answers are still read"
        );
        assert_eq!(
            sent("api.test", &format!("Bearer {placeholder}"), "mine"),
            outdated
        );
        assert_eq!(sent("api.test", "mine", placeholder), outdated);
        assert_eq!(sent("b.test", "mine", "mine"), outdated, "it is always written");
        assert_eq!(sent("api.test", "mine", "mine"), Ok(0));
        assert_eq!(
            sent("c.test", placeholder, placeholder),
            Ok(0),
            "not a place of the lease"
        );
    }
}

proptest! {
    #[test]
    fn random_places_and_queries_do_not_panic(text in ".{0,60}", query in "[a-z%=&+?#0-9]{0,40}") {
        if let Ok(place) = text.parse::<SecretPlace>() {
            prop_assert_eq!(place.to_string().parse(), Ok(place));
        }
        let secrets = [bound("K", "v&a=l u%e", &["api.test query a"])];
        let mut target = format!("/{query}");
        fill(&secrets, &to("api.test"), &mut HeaderMap::new(), &mut target).expect("filled");
        prop_assert!(!target.contains("v&a=l"));
    }
}
