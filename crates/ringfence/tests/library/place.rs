//! Where a test's sandbox lives, and how its processes are told from those of others.

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

/// Processes whose command line holds this word.
pub fn processes_with(word: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        let line = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
        line.windows(word.len()).any(|window| window == word.as_bytes())
    };
    pids.filter(|pid| *pid != std::process::id())
        .filter(holds)
        .collect()
}

/// Is there such a process, be it dead and not buried.
pub fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Does it become true in ten seconds.
pub async fn soon(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    true
}
