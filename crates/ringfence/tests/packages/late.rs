//! A program that runs already is shown packages: the jail alone, with layers that the test has made by hand.

use crate::client::*;
use ringfence_jail::{
    ClaimSpec, Host, JailSpec, LayerName, Layout, PACKAGES, Program, Refused, Run, Written,
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

/// For each line it reads it says what is in the layer, and whether it can write there.
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
    let claim = ClaimSpec {
        code: Vec::new(),
        files: Vec::new(),
        run: Run::Exec {
            argv: ["/bin/sh", "-c", PROGRAM].map(str::to_owned).into(),
            environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            report: false,
        },
        workspace: None,
        layer,
        egress: None,
        limits: LIMITS,
        grace_ms: 0,
    };
    let plan = plan::build(spec, &host).unwrap();
    let place = helper.place(&plan, None).unwrap();
    client::claim(place.events.as_fd(), &plan::claim(claim, &host), &[""; 0]).unwrap();
    place
}

/// The next event that is no greeting.
fn event(place: &SandboxEnds) -> Event {
    let socket = File::from(place.events.try_clone().unwrap());
    for _ in 0..10_000 {
        match wire::receive::<Event>(place.events.as_fd()) {
            Ok(Some((Event::Parked(_), _))) => {}
            Ok(Some((event, _))) => return event,
            Ok(None) => panic!("the supervisor {} is gone", socket.as_raw_fd()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("nothing was heard")
}

fn show(place: &SandboxEnds, layer: LayerName) -> Event {
    wire::send(place.events.as_fd(), &Order::Layer(layer), &[]).unwrap();
    event(place)
}

/// claim: [PKG-5]
#[test]
fn a_program_that_runs_is_shown_other_packages_and_no_others() {
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
        let place = start(&helper, &layers, first.clone());
        assert!(matches!(event(&place), Event::Running));
        let mut input = File::from(place.stdin.try_clone().unwrap());
        let mut output = BufReader::new(File::from(place.stdout.try_clone().unwrap()));
        let mut says = || {
            writeln!(input, "go").unwrap();
            let mut said = String::new();
            while !said.ends_with(".\n") {
                assert!(output.read_line(&mut said).unwrap() > 0, "{said}");
            }
            said
        };
        assert_eq!(says(), if first.is_some() { "a\n.\n" } else { ".\n" });
        assert!(matches!(show(&place, name('b')), Event::Layered));
        assert_eq!(says(), "b\n.\n");
        assert!(matches!(show(&place, name('a')), Event::Layered));
        assert_eq!(says(), "a\n.\n");
        // One that is not there changes nothing, and the program goes on.
        assert!(matches!(show(&place, name('c')), Event::NotLayered(_)));
        assert_eq!(says(), "a\n.\n");
        drop((input, place.stdin));
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        assert_eq!(fs::read_dir(&layers.0).unwrap().count(), 3);
    }
    helper.stop().unwrap();
    assert!(PACKAGES.starts_with("/packages/"));
}
