//! Pid 1 of a sandbox: raises the walls, starts the program, buries orphans, and reports the program's end in the
//! kernel's words. When it ends, the kernel ends everything in the sandbox. Without a pid namespace (tier `landlock`)
//! it is the process to which orphans return, and the supervisor ends them.

use crate::{
    Plan, Program,
    cgroup::Entrance,
    enter::{self, Doors, Handed},
    helper::Workers,
    wire::{self, Failure, InitEvent, InitOrder},
};
use ringfence_sys::{
    process::{self, Fork, Kill},
    wait::{self, Child},
};
use ringfence_types::Tier;
use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::Path,
};

/// The program's descriptors 0 to 3.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) report: OwnedFd,
}

/// The life of pid 1, from its first instruction. Does not return.
pub(crate) fn live(
    plan: &Plan,
    handed: Handed,
    entrance: Option<Entrance>,
    pipes: Pipes,
    link: &OwnedFd,
    workers: Workers,
) -> ! {
    let lived = prepare(plan, &handed, entrance, link.as_fd()).and_then(|doors| {
        drop(handed);
        start(plan, doors, pipes, link, workers)
    });
    match lived {
        Ok(program) => watch(program, plan.tier, link.as_fd()),
        Err(failure) => {
            // The supervisor sees the end of the link if even this fails.
            drop(wire::send(link.as_fd(), &InitEvent::Failed(failure), &[]));
            process::exit_now(1)
        }
    }
}

fn prepare(
    plan: &Plan,
    handed: &Handed,
    entrance: Option<Entrance>,
    link: BorrowedFd<'_>,
) -> Result<Option<Doors>, Failure> {
    enter::step("parent death signal", process::die_with_parent())?;
    enter::step("process name", process::set_name("ringfence-init"))?;
    if plan.tier == Tier::Landlock {
        enter::step("adopt orphans", process::adopt_orphans())?;
    }
    if let Some(entrance) = entrance {
        enter::step("join cgroup", entrance.enter())?;
    }
    match enter::step("wait for the supervisor", wire::receive(link))? {
        Some((InitOrder::Go, _)) => enter::enter(plan, handed),
        _ => Err(Failure {
            step: "wait for the supervisor".into(),
            errno: 0,
            detail: "it is gone".into(),
        }),
    }
}

/// Forks the program; pid 1 keeps none of its pipes, so that their other ends see the program's and nobody else's end.
fn start(
    plan: &Plan,
    doors: Option<Doors>,
    pipes: Pipes,
    link: &OwnedFd,
    workers: Workers,
) -> Result<i32, Failure> {
    match enter::step("fork the program", process::fork())? {
        Fork::Child => {
            drop(doors);
            let failure = become_program(plan, pipes, workers);
            drop(wire::send(link.as_fd(), &InitEvent::Failed(failure), &[]));
            process::exit_now(127)
        }
        Fork::Parent(program) => {
            drop(pipes);
            let descriptors: Vec<BorrowedFd<'_>> = doors
                .iter()
                .flat_map(|doors| [doors.proc.as_fd(), doors.changes.as_fd(), doors.output.as_fd()])
                .collect();
            enter::step(
                "report the start",
                wire::send(link.as_fd(), &InitEvent::Running, &descriptors),
            )?;
            Ok(program)
        }
    }
}

/// The last steps, in the program's own process. Returns only when they fail.
fn become_program(plan: &Plan, pipes: Pipes, workers: Workers) -> Failure {
    let placed = place(plan, pipes);
    if let Err(error) = placed {
        return Failure::new("descriptors", &error);
    }
    match &plan.program {
        Program::Exec { argv, .. } => {
            let Some(path) = argv.first() else {
                return Failure {
                    step: "exec".into(),
                    errno: 0,
                    detail: "no program is named".into(),
                };
            };
            let error = process::execve(Path::new(path), argv, &plan.environment);
            Failure::new(format!("exec {path}"), &error)
        }
        Program::Worker { name } => match workers.iter().find(|(known, _)| known == name) {
            Some((_, work)) => process::exit_now(run_worker(*work)),
            None => Failure {
                step: "worker".into(),
                errno: 0,
                detail: format!("there is no worker {name}"),
            },
        },
    }
}

fn place(plan: &Plan, pipes: Pipes) -> io::Result<()> {
    process::new_session()?;
    process::reset_signals()?;
    if !matches!(plan.program, Program::Worker { .. }) {
        process::change_directory(&plan.layout.workspace)?;
    }
    let report = matches!(plan.program, Program::Exec { report: true, .. });
    // Out of the way first, so that no pipe is overwritten before it is placed.
    let moved = [pipes.stdin, pipes.stdout, pipes.stderr, pipes.report]
        .map(|pipe| process::duplicate_above(&pipe, 10));
    for (number, pipe) in (0..).zip(moved) {
        if number < 3 || report {
            process::place_descriptor(pipe?, number)?;
        }
    }
    process::close_on_exec_from(if report { 4 } else { 3 })
}

/// Runs a function of this binary as the program. A panic is status 101, as for any Rust program.
fn run_worker(work: crate::helper::Worker) -> i32 {
    let mut input = Vec::new();
    if io::stdin().lock().read_to_end(&mut input).is_err() {
        return 1;
    }
    match std::panic::catch_unwind(|| work(&input)) {
        Ok(output) => {
            let mut stdout = io::stdout().lock();
            i32::from(stdout.write_all(&output).and_then(|()| stdout.flush()).is_err())
        }
        Err(_) => 101,
    }
}

/// Waits for the program's end, burying orphans meanwhile.
fn watch(program: i32, tier: Tier, link: BorrowedFd<'_>) -> ! {
    let Ok(children) = process::child_events() else {
        process::exit_now(1)
    };
    loop {
        while let Ok(Some(ended)) = wait::wait_now(Child::Any) {
            if ended.pid == program {
                let event = InitEvent::Ended {
                    status: ended.status.into_raw(),
                };
                process::exit_now(i32::from(wire::send(link, &event, &[]).is_err()));
            }
        }
        let Ok([ordered, _]) = wait::readable([Some(link), Some(children.as_fd())], None) else {
            process::exit_now(1)
        };
        if ordered {
            match wire::receive::<InitOrder>(link) {
                Ok(Some((InitOrder::Terminate, _))) => terminate(program, tier),
                _ => process::exit_now(1), // the supervisor is gone: so is the sandbox
            }
        }
        drain(&children);
    }
}

/// The polite signal; processes that are gone already are no error.
fn terminate(program: i32, tier: Tier) {
    drop(match tier {
        Tier::Full => process::kill_all_others(Kill::Terminate),
        Tier::Landlock => process::kill(program, Kill::Terminate),
    });
}

/// Empties the event descriptor; the waiting itself is done by `wait_now`.
fn drain(children: &OwnedFd) {
    let mut buffer = [0; 512];
    while ringfence_sys::file::read(children.as_fd(), &mut buffer).is_ok_and(|count| count > 0) {}
}
