//! Where a test's sandbox lives, and how its processes are told from those of others.

use crate::client::processes_with;
use ringfence::{Sandbox, SandboxBuilder};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A directory that goes away, with a helper of its own name: its processes have that name in their command lines.
pub struct Scene {
    pub directory: PathBuf,
    helper: PathBuf,
}

impl Scene {
    pub fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("ringfence-library-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).unwrap();
        let helper = directory.join("helper");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ringfence"), &helper).unwrap();
        Self { directory, helper }
    }

    pub fn builder(&self) -> SandboxBuilder {
        let state = self.directory.join("state");
        Sandbox::builder().state_dir(state).helper(&self.helper)
    }

    pub async fn sandbox(&self) -> Sandbox {
        self.builder().build().await.unwrap()
    }

    /// The helper, its supervisors, and what they made that runs no other program yet.
    pub fn processes(&self) -> Vec<u32> {
        processes_with(self.helper.to_str().unwrap())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// Is there such a process, be it dead and not buried.
pub fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Does it become true, however busy the machine is.
pub async fn soon(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    true
}
