//! A clock that was set back: the record continues, and `verify` counts it. A preloaded library sets back the server's
//! clock, because the kernel has no namespace for CLOCK_REALTIME.

use super::state::State;
use crate::client::*;
use std::{fs, process::Command};

const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;
const YESTERDAY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    int (*next)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, time);
    if (clock == CLOCK_REALTIME) time->tv_sec -= 24 * 60 * 60;
    return result;
}
"#;

#[test]
fn a_clock_set_back_is_reported_and_no_record_is_lost() {
    let has_compiler = || Command::new("cc").arg("--version").output().is_ok();
    if !has_capability("cc", has_compiler) {
        return;
    }
    let state = State::new("clock");
    let mut agent = state.serve();
    assert_eq!(agent.run(json!({"code": "1"}))["success"], true);
    assert!(agent.close().status.success());
    assert_eq!(state.assert_verifies().set_back, 0);
    let library = state.path().join("yesterday.so");
    let source = library.with_extension("c");
    fs::write(&source, YESTERDAY).unwrap();
    let mut compile = Command::new("cc");
    compile
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-ldl");
    assert!(compile.status().unwrap().success());
    let state = state.with("LD_PRELOAD", library.to_str().unwrap());
    let mut agent = state.serve();
    let result = agent.run(json!({"code": "open('a.txt', 'w').write('a')"}));
    assert_eq!(result["success"], true, "{result}");
    state.assert_artifact(&result, &result["artifacts"][0]);
    let since = agent.facts("audit_execution", json!({"limit": 1, "detail": true}));
    let expect = json!({"records.0.action": "tool.called"});
    assert_fields_of("newest first is by number, not by clock", &since, expect);
    assert!(agent.close().status.success());
    let verdict = state.assert_verifies();
    assert_eq!((verdict.set_back, verdict.breaks.len()), (1, 0));
    let times: Vec<i64> = state.records().iter().map(|record| record.time_us).collect();
    let (first, last) = (times[0], times[times.len() - 1]);
    assert!(
        first - last > DAY_US / 2,
        "the clock was set back: {first} {last}"
    );
}
