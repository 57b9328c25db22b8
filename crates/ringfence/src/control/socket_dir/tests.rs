//! Tests of the directory of control sockets.

use super::*;
use std::os::unix::fs::PermissionsExt;

/// A temporary state directory with a path that is longer than a socket address.
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
fn directory_that_other_users_may_enter_is_refused() {
    let state = State::new("open");
    assert!(SocketDir::open(&state.0).unwrap().is_none());
    SocketDir::make(&state.0).unwrap();
    assert!(SocketDir::open(&state.0).unwrap().is_some());
    fs::set_permissions(state.0.join(CONTROL), fs::Permissions::from_mode(0o711)).unwrap();
    assert!(SocketDir::open(&state.0).is_err() && SocketDir::make(&state.0).is_err());
}

#[test]
fn symlink_to_the_control_directory_is_not_followed() {
    let state = State::new("link");
    let elsewhere = state.0.join("elsewhere");
    make_own_directory(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, state.0.join(CONTROL)).unwrap();
    assert!(SocketDir::open(&state.0).is_err() && SocketDir::make(&state.0).is_err());
}

#[test]
fn only_pid_sockets_are_servers_and_unfinished_ones_are_swept() {
    let state = State::new("names");
    let socket_dir = SocketDir::make(&state.0).unwrap();
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
        fs::write(socket_dir.path(name), "").unwrap();
    }
    assert_eq!(socket_dir.servers().unwrap(), [3, 7]);
    socket_dir.sweep_unfinished().unwrap();
    assert!(!socket_dir.path("4294967295.new").exists() && socket_dir.path("1.new").exists());
    socket_dir.remove(7);
    socket_dir.remove(7);
    assert_eq!(socket_dir.servers().unwrap(), [3]);
}
