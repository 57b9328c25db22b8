//! A running program is given a layer of packages: the jail alone, with layers that the test has made.

use crate::client::*;
use ringfence_jail::{
    Claim, Host, JailSpec, LayerName, Layout, PACKAGES, Program, Refused, Run, Written,
    cgroup::Parent,
    client::{self, Helper, SandboxEnds},
    plan,
    wire::{self, Event, Order},
};
use ringfence_types::{Limits, Tier};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

const LIMITS: Limits = Limits {
    memory_bytes: 512 << 20,
    cpu_millicores: 1000,
    timeout_ms: 60_000,
    processes: 64,
    output_bytes: 1_000_000,
    disk_bytes: 16 << 20,
};

/// For each input line, prints the content of the layer, and `written` if it can write there.
const PROGRAM: &str = "while read word; do cat /packages/layer/python/which; touch /packages/layer/new 2>/dev/null && echo written; echo .; done";

fn name(digit: char) -> LayerName {
    LayerName::try_from(digit.to_string().repeat(64)).unwrap()
}

fn start(helper: &Helper, directory: &TempDir, layer: Option<LayerName>) -> SandboxEnds {
    let cgroups = Parent::None {
        reason: "a test".to_owned(),
    };
    let host = Host::inspect(cgroups, Refused::default());
    let spec = JailSpec {
        tier: Tier::Full,
        layout: Layout::own_root(),
        trees: Vec::new(),
        links: Vec::new(),
        program: Program::Claimed,
        host_workspace: None,
        layers: Some(directory.0.clone()),
        written: Written::MayRun,
        limits: LIMITS,
    };
    let run = Run::Exec {
        argv: ["/bin/sh", "-c", PROGRAM].map(str::to_owned).into(),
        environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        report: false,
    };
    let claim = Claim {
        layer,
        ..plan::claim(run, LIMITS, &host)
    };
    let plan = plan::build(spec, &host).unwrap();
    let sandbox = helper.start_sandbox(&plan, None).unwrap();
    client::claim(sandbox.events.as_fd(), &claim, &[""; 0]).unwrap();
    sandbox
}

/// Returns the next event except `Parked`.
fn event(sandbox: &SandboxEnds) -> Event {
    let socket = File::from(sandbox.events.try_clone().unwrap());
    for _ in 0..10_000 {
        match wire::receive::<Event>(sandbox.events.as_fd()) {
            Ok(Some((Event::Parked(_), _))) => {}
            Ok(Some((event, _))) => return event,
            Ok(None) => panic!("the supervisor {} is gone", socket.as_raw_fd()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no event arrived")
}

fn send_layer(sandbox: &SandboxEnds, layer: LayerName) -> Event {
    wire::send(sandbox.events.as_fd(), &Order::Layer(layer), &[]).unwrap();
    event(sandbox)
}

/// claim: [PKG-5]
#[test]
fn a_running_program_can_be_given_another_layer_and_sees_only_that_one() {
    let layers = TempDir::new("late");
    for digit in ['a', 'b'] {
        layers.file(
            &format!("{}/python/which", name(digit).as_str()),
            &format!("{digit}\n"),
        );
    }
    layers.file("which", "all\n");
    set_mode(&layers.0, 0o700);
    let helper = Helper::start(&binary()).unwrap();
    for first in [None, Some(name('a'))] {
        let sandbox = start(&helper, &layers, first.clone());
        assert!(matches!(event(&sandbox), Event::Running));
        let mut input = File::from(sandbox.stdin.try_clone().unwrap());
        let mut output = BufReader::new(File::from(sandbox.stdout.try_clone().unwrap()));
        let mut read_layer = || {
            writeln!(input, "go").unwrap();
            let mut said = String::new();
            while !said.ends_with(".\n") {
                assert!(output.read_line(&mut said).unwrap() > 0, "{said}");
            }
            said
        };
        assert_eq!(read_layer(), if first.is_some() { "a\n.\n" } else { ".\n" });
        assert!(matches!(send_layer(&sandbox, name('b')), Event::Layered));
        assert_eq!(read_layer(), "b\n.\n");
        assert!(matches!(send_layer(&sandbox, name('a')), Event::Layered));
        assert_eq!(read_layer(), "a\n.\n");
        // A missing layer changes nothing, and the program continues.
        assert!(matches!(send_layer(&sandbox, name('c')), Event::NotLayered(_)));
        assert_eq!(read_layer(), "a\n.\n");
        drop((input, sandbox.stdin));
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        assert_eq!(fs::read_dir(&layers.0).unwrap().count(), 3);
    }
    helper.stop().unwrap();
    assert!(PACKAGES.starts_with("/packages/"));
}
