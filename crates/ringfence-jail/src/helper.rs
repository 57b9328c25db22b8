//! The helper: a single-threaded re-execution of the server's binary that makes sandboxes, so that the server, which
//! has threads, never forks; the command `run` forks it instead, before it has threads. It reads start messages from a
//! socket and forks one supervisor for each. When the server ends, so does that connection, and the helper.

pub use crate::{refused::HELPER_WORD, worker::Workers};

use crate::{
    Refused,
    client::{Helper, Pipes, Template},
    forked,
    refused::PROBE_WORD,
    seccomp::{self, Profile},
    supervise::{self, Started},
    wire::{self, Start},
};
use ringfence_sys::{
    channel, file,
    process::{self, ArgumentArea, Fork},
    resource,
    wait::{self, Child},
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
};

/// The process title of a forked helper: the same as the arguments of a re-executed one.
const TITLE: &str = "ringfence __jail-helper";

/// Runs the helper; `main` calls it when its first argument is [`HELPER_WORD`]. Returns its exit status.
pub fn run(workers: Workers) -> i32 {
    if std::env::args_os().nth(2).is_some_and(|word| word == PROBE_WORD) {
        let answer = serde_json::to_writer(io::stdout(), &Refused::probe());
        return i32::from(answer.is_err());
    }
    // Off number 0, which becomes the null device, so that nothing reads from the control connection by accident.
    let control = file::inherited(0).and_then(|control| process::duplicate_above(control, 3));
    status(control.and_then(|control| serve(control, workers)))
}

/// Forks the helper from this process, which has one thread, instead of executing the binary again. For a process that
/// has read its arguments at most: those stay in its memory, and the environment is overwritten.
pub fn fork(workers: Workers) -> io::Result<Helper> {
    resource::raise_open_files()?;
    let started_with = ArgumentArea::find()?;
    let (control, theirs) = channel::pair()?;
    if let Fork::Parent(pid) = process::fork()? {
        return Ok(Helper { pid, control });
    }
    let prepared = || {
        started_with.overwrite(TITLE)?;
        process::close_all_except(&[theirs.as_fd()])?;
        std::env::set_current_dir("/")?;
        process::place_descriptor(File::open("/dev/null")?, 1)
    };
    process::exit_now(status(prepared().and_then(|()| serve(theirs, workers))))
}

fn status(served: io::Result<()>) -> i32 {
    match served {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("ringfence helper: {error}");
            1
        }
    }
}

fn serve(control: OwnedFd, workers: Workers) -> io::Result<()> {
    let threads = process::thread_count()?;
    if threads != 1 {
        let what = format!("it has {threads} threads; `ringfence::init()` comes first in `main`");
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    process::set_name("ringfence-help")?;
    // The session stays the same: the kernel's scheduler shares processors between sessions, and lets those that are
    // new and seldom run wait for seconds on a busy machine (sched(7), autogroup).
    process::new_group()?;
    process::ignore_children()?;
    // Data that passes through here must not be in a core dump.
    resource::refuse_core_dumps()?;
    forked::count_filters_of_host().map_err(io::Error::other)?;
    for memory_cgroup in [false, true] {
        // Compiled here once, and ready in every fork.
        seccomp::program(Profile::Full { memory_cgroup })?;
        seccomp::program(Profile::Init { memory_cgroup })?;
    }
    seccomp::final_filter()?;
    process::place_descriptor(File::open("/dev/null")?, 0)?;
    let mut control = Some(control);
    while let Some(open) = &control {
        let Some((start, descriptors)) = wire::receive::<Start>(open.as_fd())? else {
            break;
        };
        let incomplete = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "a start message without its descriptors",
            )
        };
        let started = started(start, descriptors).ok_or_else(incomplete)?;
        fork_supervisor(started, &mut control, workers)?;
    }
    // The supervisors see the server's end by their own connections. They die with this process, and have to clean up.
    while wait::wait(Child::Any)?.is_some() {}
    Ok(())
}

fn started(start: Start, mut descriptors: Vec<OwnedFd>) -> Option<Started> {
    let rest = descriptors.split_off(6.min(descriptors.len()));
    let [server, plan, stdin, stdout, stderr, report]: [OwnedFd; 6] = descriptors.try_into().ok()?;
    let pipes = Pipes {
        stdin,
        stdout,
        stderr,
        report,
    };
    let template = match start.from_template {
        true => Some(Template::from_descriptors(rest)?),
        false => None,
    };
    Some(Started {
        template,
        server,
        plan: plan.into(),
        plan_bytes: start.plan_bytes,
        pipes,
    })
}

/// Forks a supervisor. If that fails, the run's socket is dropped, which the server sees as a failed run.
fn fork_supervisor(started: Started, control: &mut Option<OwnedFd>, workers: Workers) -> io::Result<()> {
    match process::fork() {
        Ok(Fork::Parent(_)) => Ok(()),
        Ok(Fork::Child) => {
            process::die_with_parent()?;
            process::stop_ignoring_children()?;
            *control = None; // only the helper may read from the server
            supervise::run(started, workers)
        }
        Err(error) => {
            eprintln!("ringfence helper: fork: {error}");
            Ok(())
        }
    }
}
