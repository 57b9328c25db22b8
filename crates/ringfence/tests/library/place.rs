//! The directory of a test's sandbox, and a way to recognise its processes.

use crate::client::*;
use ringfence::{ExecuteRequest, Sandbox, SandboxBuilder};
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// A temporary directory with a helper of a unique path: its processes have that path on their command lines.
pub struct Scene {
    pub directory: TempDir,
    helper: String,
}

impl Scene {
    pub fn new(name: &str) -> Self {
        let directory = TempDir::new(name);
        let helper = directory.path("helper");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ringfence"), &helper).unwrap();
        Self { directory, helper }
    }

    /// A scene and a sandbox in it.
    pub async fn with_sandbox(name: &str) -> (Self, Sandbox) {
        let scene = Self::new(name);
        let sandbox = scene.sandbox().await;
        (scene, sandbox)
    }

    pub fn builder(&self) -> SandboxBuilder {
        let state = self.directory.path("state");
        Sandbox::builder().state_dir(state).helper(&self.helper)
    }

    pub async fn sandbox(&self) -> Sandbox {
        self.builder().build().await.unwrap()
    }

    /// The helper, its supervisors, and their children that have not started another program yet.
    pub fn processes(&self) -> Vec<u32> {
        processes_with(&self.helper)
    }
}

/// Returns the output of a shell program.
pub async fn shell(sandbox: &Sandbox, code: &str) -> String {
    sandbox.execute(ExecuteRequest::shell(code)).await.unwrap().stdout
}

/// True if the process exists, even as a zombie.
pub fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Waits up to 60 seconds, enough for a busy machine, and returns true if the condition becomes true.
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
