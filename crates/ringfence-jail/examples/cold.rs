//! Times the jail alone: for each line on standard input it runs the command once behind all layers, through a helper
//! that is already running, and prints the milliseconds from the request until the whole tree is dead.
//! `yes | head -100 | target/release/examples/cold /bin/true`
#![expect(clippy::print_stdout, reason = "its standard output is its result")]

use ringfence_jail::{
    Claim, Host, JailSpec, Layout, Plan, Program, Refused, Run, Written,
    cgroup::Parent,
    client::{self, Helper},
    helper, plan,
    wire::{self, Event},
};
use ringfence_sys::wait;
use ringfence_types::{Limits, Tier};
use std::{error::Error, io, os::fd::AsFd, time::Instant};

const LIMITS: Limits = Limits {
    memory_bytes: 512 << 20,
    cpu_millicores: 1000,
    timeout_ms: 10_000,
    processes: 64,
    output_bytes: 1_000_000,
    disk_bytes: 512 << 20,
};

fn main() -> Result<(), Box<dyn Error>> {
    let argv: Vec<String> = std::env::args().skip(1).collect();
    if argv.first().is_some_and(|word| word == helper::HELPER_WORD) {
        std::process::exit(helper::run(&[]));
    }
    let host = Host::inspect(Parent::find(), Refused::default());
    let plan = plan::build(spec(), &host)?;
    let run_command = Run::Exec {
        argv,
        environment: Vec::new(),
        report: false,
    };
    let claim = plan::claim(run_command, LIMITS, &host);
    let helper = Helper::start(&std::env::current_exe()?)?;
    for line in io::stdin().lines() {
        line?;
        let begun = Instant::now();
        run(&helper, &plan, &claim)?;
        println!("{:.3}", begun.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(helper.stop()?)
}

fn run(helper: &Helper, plan: &Plan, claim: &Claim) -> Result<(), Box<dyn Error>> {
    let ends = helper.start_sandbox(plan, None)?;
    client::claim(ends.events.as_fd(), claim, &[""; 0])?;
    loop {
        let [ready] = wait::readable([Some(ends.events.as_fd())], None)?;
        if !ready {
            continue;
        }
        match wire::receive::<Event>(ends.events.as_fd())? {
            Some((Event::Parked(_) | Event::Running, _descriptors)) => {}
            Some((Event::Ended(ending), _)) if ending.status == Some(0) => return Ok(()),
            other => return Err(format!("the command did not end well: {other:?}").into()),
        }
    }
}

fn spec() -> JailSpec {
    JailSpec {
        tier: Tier::Full,
        layout: Layout::own_root(),
        trees: Vec::new(),
        links: Vec::new(),
        program: Program::Claimed,
        host_workspace: None,
        layers: None,
        written: Written::MayRun,
        limits: LIMITS,
    }
}
