//! The directory of control sockets, and what may lie in it.

use super::*;
use std::os::unix::fs::PermissionsExt;

/// A state directory that goes away, deeper than an address can name.
pub(in crate::control) struct State(pub(in crate::control) PathBuf);

impl State {
    pub(in crate::control) fn new(name: &str) -> Self {
        let base = std::env::temp_dir().join(format!("ringfence-control-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&base));
        let deep = base.join("d".repeat(100)).join("e".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        Self(deep)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(self.0.parent().unwrap().parent().unwrap()));
    }
}

#[test]
fn a_directory_that_others_may_enter_is_not_used() {
    let state = State::new("open");
    assert!(SocketDir::open(&state.0).unwrap().is_none());
    SocketDir::make(&state.0).unwrap();
    assert!(SocketDir::open(&state.0).unwrap().is_some());
    fs::set_permissions(state.0.join(CONTROL), fs::Permissions::from_mode(0o711)).unwrap();
    assert!(SocketDir::open(&state.0).is_err() && SocketDir::make(&state.0).is_err());
}

#[test]
fn a_link_is_not_followed() {
    let state = State::new("link");
    let elsewhere = state.0.join("elsewhere");
    make_own_directory(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, state.0.join(CONTROL)).unwrap();
    assert!(SocketDir::open(&state.0).is_err() && SocketDir::make(&state.0).is_err());
}

#[test]
fn only_names_of_ours_are_servers_and_what_a_dead_one_left_goes() {
    let state = State::new("names");
    let place = SocketDir::make(&state.0).unwrap();
    let names = [
        "7.sock",
        "3.sock",
        "x.sock",
        "3.sock~",
        "-1.sock",
        "4294967295.new",
        "1.new",
    ];
    for name in names {
        fs::write(place.path(name), "").unwrap();
    }
    assert_eq!(place.servers().unwrap(), [3, 7]);
    place.sweep_unfinished().unwrap();
    assert!(!place.path("4294967295.new").exists() && place.path("1.new").exists());
    place.remove(7);
    place.remove(7);
    assert_eq!(place.servers().unwrap(), [3]);
}
