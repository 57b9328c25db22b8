//! When a directory is counted, which trees are stopped for its content, and what is excused.

use super::*;
use std::fs;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringfence-quota-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn open(&self) -> OwnedFd {
        File::open(&self.0).unwrap().into()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn limits(disk_bytes: u64) -> Limits {
    Limits {
        memory_bytes: 1 << 20,
        cpu_millicores: 1000,
        timeout_ms: 1000,
        processes: 1,
        output_bytes: 1,
        disk_bytes,
    }
}

#[test]
fn growth_counts_additions_and_total_counts_everything() {
    let scratch = Scratch::new("both");
    fs::write(scratch.0.join("old"), vec![7; 3 << 20]).unwrap();
    let open = scratch.open();
    let begin = |quota| Watch::begin(&open, quota, &limits(2 << 20), None, Known::default()).unwrap();
    let (mut growth, mut total) = (begin(Quota::Growth), begin(Quota::Total));
    assert!(!growth.walk(None) && !total.walk(None), "nothing was added");
    assert!(growth.bytes() == 0 && total.bytes() >= 3 << 20);
    fs::write(scratch.0.join("new"), vec![7; 512 << 10]).unwrap();
    assert!(!growth.walk(None));
    assert!(!total.walk(None), "it is over its limit, but not twice");
    fs::write(scratch.0.join("more"), vec![7; 2 << 20]).unwrap();
    assert!(growth.walk(None) && total.walk(None));
    assert!(
        !Watch::begin(&open, Quota::Total, &limits(2 << 20), None, Known::default())
            .unwrap()
            .has_room(),
        "a run may not begin at three times the limit"
    );
}

#[test]
fn excess_is_excused_while_the_server_writes() {
    let scratch = Scratch::new("writing");
    let held = Scratch::new("writing-lock");
    let path = held.0.join("lock");
    let lock = File::create(&path).unwrap();
    let open = scratch.open();
    let begun = Watch::begin(
        &open,
        Quota::Total,
        &limits(2 << 20),
        Some(&path),
        Known::default(),
    );
    let mut watch = begun.unwrap();
    fs::write(scratch.0.join("draft"), vec![7; 5 << 20]).unwrap();
    lock.lock().unwrap();
    assert!(!watch.walk(None), "it is being written");
    watch.excused_since = Some(Instant::now().checked_sub(EXCUSED_MAX).unwrap());
    assert!(watch.walk(None), "for too long");
    watch.excused_since = None;
    fs::write(scratch.0.join("more"), vec![7; 2 << 20]).unwrap();
    assert!(watch.walk(None), "more than three times the limit");
    fs::remove_file(scratch.0.join("more")).unwrap();
    assert!(!watch.walk(None));
    lock.unlock().unwrap();
    assert!(watch.walk(None), "the write has ended, and it is too much");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    fs::remove_file(scratch.0.join("draft")).unwrap();
    assert!(!watch.walk(None));
    assert_eq!(watch.excused_since, None);
}

#[test]
fn full_directory_is_attributed_to_trees_that_write() {
    let scratch = Scratch::new("writers");
    let proc: OwnedFd = File::open("/proc").unwrap().into();
    let begin = || {
        Watch::begin(
            &scratch.open(),
            Quota::Total,
            &limits(1 << 20),
            None,
            Known::default(),
        )
        .unwrap()
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "a process that holds nothing of the workspace"
    )]
    let idle = std::process::Command::new("sleep").arg("1000").spawn();
    let mut idle = idle.unwrap();
    // Its start uses processor time: it counts as idle once it sleeps.
    let is_asleep = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", idle.id())).unwrap();
        stat.contains("(sleep) S ")
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_asleep() {
        assert!(Instant::now() < deadline, "it does not sleep");
        std::thread::yield_now();
    }
    let holders = |pid: u32| {
        Some(Holders {
            proc: &proc,
            init: PathBuf::new(),
            devices: Vec::new(),
            pids: vec![pid.to_string().into()],
        })
    };
    let (mut own, mut others) = (begin(), begin());
    assert!(!own.walk(holders(std::process::id())) && !others.walk(holders(idle.id())));
    for number in 0..2 * STRIKES_MAX {
        fs::write(scratch.0.join(number.to_string()), vec![7; 3 << 20]).unwrap();
        assert!(own.walk(holders(std::process::id())), "it has written");
        assert!(!others.walk(holders(idle.id())), "it has not");
    }
    idle.kill().unwrap();
    idle.wait().unwrap();
}

#[test]
fn known_count_is_reused_far_from_the_limit() {
    let scratch = Scratch::new("known");
    for number in 0..=FEW_ENTRIES {
        fs::write(scratch.0.join(number.to_string()), "").unwrap();
    }
    let begin = |known| {
        Watch::begin(
            &scratch.open(),
            Quota::Total,
            &limits(64 << 20),
            None,
            known_to_be(known),
        )
        .unwrap()
    };
    let mut first = begin(None);
    let counted = first.bytes();
    assert!(!first.end());
    // Others write to this file system, too: with the largest possible values it does not fill.
    let known = Count {
        bytes: 7,
        filled: (u64::MAX, u64::MAX),
        ..first.count()
    };
    assert_eq!(begin(Some(known)).bytes(), 7, "it was not counted again");
    let near = Count {
        bytes: 65 << 20,
        ..known
    };
    assert_eq!(begin(Some(near)).bytes(), counted, "near the limit it is counted");
    let filled = first.count().filled;
    let grown = Count {
        filled: (filled.0.saturating_sub(80 << 20), filled.1),
        ..known
    };
    assert_eq!(begin(Some(grown)).bytes(), counted, "and if the disk has filled");
}

fn known_to_be(count: Option<Count>) -> Known {
    Known {
        count,
        filled_max: None,
    }
}

#[test]
fn writers_are_stopped_at_the_file_system_limit() {
    let scratch = Scratch::new("floor");
    let proc: OwnedFd = File::open("/proc").unwrap().into();
    let known = Known {
        count: None,
        filled_max: Some(0),
    };
    let begun = Watch::begin(&scratch.open(), Quota::Total, &limits(64 << 20), None, known);
    let mut watch = begun.unwrap();
    let mut walk = || {
        watch.walk(Some(Holders {
            proc: &proc,
            init: PathBuf::new(),
            devices: Vec::new(),
            pids: vec![std::process::id().to_string().into()],
        }))
    };
    walk();
    fs::write(scratch.0.join("more"), vec![7; 1 << 20]).unwrap();
    assert!(walk());
    let space = Space::of(scratch.open().as_fd()).unwrap();
    assert!(space.used > 0 && space.free > 0);
    assert!(Count::of(scratch.open().as_fd()).unwrap().bytes_at_most(space) >= 1 << 20);
}

fn counted(scratch: &Scratch, unlistable: Unlistable) -> Contents {
    usage(
        scratch.open().as_fd(),
        unlistable,
        Until::deadline(Instant::now() + WALK_TIME_MAX),
    )
    .unwrap()
}

#[test]
fn walk_cut_off_by_its_deadline_reports_no_excess() {
    let scratch = Scratch::new("late");
    let begun = Watch::begin(
        &scratch.open(),
        Quota::Growth,
        &limits(1 << 20),
        None,
        Known::default(),
    );
    let mut watch = begun.unwrap();
    fs::write(scratch.0.join("new"), vec![7; 3 << 20]).unwrap();
    watch.deadline = Instant::now();
    assert!(!watch.walk(None), "the walk is cut off");
    let late = usage(
        scratch.open().as_fd(),
        Unlistable::Counted,
        Until::deadline(Instant::now()),
    );
    assert_eq!(late.unwrap_err().bytes, 0);
    assert!(watch.count_now().is_none());
    assert!(watch.end(), "the control: with time it is reported");
}

#[test]
fn entries_are_counted_and_links_are_not_followed() {
    let scratch = Scratch::new("names");
    std::os::unix::fs::symlink("/usr", scratch.0.join("link")).unwrap();
    fs::create_dir(scratch.0.join("d")).unwrap();
    for number in 0..50 {
        fs::write(scratch.0.join(format!("d/{number}")), "").unwrap();
    }
    assert_eq!(counted(&scratch, Unlistable::Counted).entries, 52);
}

/// Nests directories to a depth that no path can name.
fn nest(scratch: &Scratch, levels: usize) {
    let mut below = scratch.open();
    for level in 0..levels {
        let name = PathBuf::from(format!("{level:0>200}"));
        file::make_directory(below.as_fd(), &name, 0o700).unwrap();
        // A directory that is found on the way back up.
        file::make_directory(below.as_fd(), Path::new("!"), 0o700).unwrap();
        below = file::open_listing_beneath(below.as_fd(), &name).unwrap();
    }
    file::make_file(below.as_fd(), Path::new("deepest"), 0o600).unwrap();
}

#[test]
fn tree_deeper_than_path_max_is_counted_completely() {
    let scratch = Scratch::new("deep");
    nest(&scratch, 300);
    let found = counted(&scratch, Unlistable::Opened);
    assert_eq!((found.entries, found.hidden), (2 * 300 + 1, 0));
    let begun = Watch::begin(
        &scratch.open(),
        Quota::Total,
        &limits(2 << 20),
        None,
        Known::default(),
    );
    assert!(
        begun.unwrap().has_room(),
        "it hides nothing, and may be used again"
    );
}

#[test]
fn idle_tree_is_walked_rarely_and_active_tree_every_second() {
    let scratch = Scratch::new("still");
    let proc: OwnedFd = File::open("/proc").unwrap().into();
    let holders = |pids: &[&str]| {
        Some(Holders {
            proc: &proc,
            init: PathBuf::new(),
            devices: Vec::new(),
            pids: pids.iter().map(PathBuf::from).collect(),
        })
    };
    let mut watch = Watch::begin(
        &scratch.open(),
        Quota::Total,
        &limits(2 << 20),
        None,
        Known::default(),
    )
    .unwrap();
    // True if it was walked, so many seconds after the last time; the file system is as full as it is by now.
    let mut walks_after = |seconds, pids: &[&str]| {
        let past = Instant::now() - Duration::from_secs(seconds);
        (watch.walked_at, watch.activity_checked_at, watch.next) = (past, past, past);
        watch.filled = resource::space_used(watch.directory.as_fd()).unwrap();
        watch.is_passed(Instant::now() + WALK_TIME_MAX, || holders(pids));
        watch.walked_at != past
    };
    assert!(walks_after(2, &[]), "nothing is known of the tree yet");
    // Others may write to the same file system at this moment.
    assert!((0..100).any(|_| !walks_after(2, &[])), "it is idle");
    assert!(walks_after(31, &[]), "for half a minute");
    let busy = Instant::now();
    while Holders::processor_time(&holders(&["self"]).unwrap()) == Duration::ZERO {
        assert!(busy.elapsed() < Duration::from_secs(30));
    }
    assert!(walks_after(2, &["self"]), "it was active");
}

/// Returns what a Python program holds that has printed a line.
fn unlinked_by(scratch: &Scratch, code: &str) -> Unlinked {
    let proc: OwnedFd = File::open("/proc").unwrap().into();
    #[expect(clippy::disallowed_methods, reason = "a process that holds files")]
    let mut holder = std::process::Command::new("python3");
    let holder = holder.args(["-c", code]).current_dir(&scratch.0);
    let pipe = std::process::Stdio::piped;
    let mut holder = holder.stdin(pipe()).stdout(pipe()).spawn().unwrap();
    io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let held = Holders {
        proc: &proc,
        pids: vec![holder.id().to_string().into()],
        init: PathBuf::new(),
        devices: vec![fs::metadata("/dev/shm").unwrap().dev()],
    };
    let mut until = Until::deadline(Instant::now() + WALK_TIME_MAX);
    let unlinked = held.unlinked(scratch.open().as_fd(), &mut until);
    holder.kill().unwrap();
    holder.wait().unwrap();
    unlinked
}

#[test]
fn deleted_file_counts_by_its_size_while_a_page_of_it_is_mapped() {
    // Its name is one that anonymous memory might have.
    const CODE: &str = "
import ctypes, mmap, os, threading
with open('memfd:big', 'w+b') as file:
    file.write(bytes(3 << 20))
    file.flush()
    page = mmap.mmap(file.fileno(), 4096)
os.unlink('memfd:big')
os.closerange(3, 100)
def hold():
    print(flush=True)
    input()
";
    // The first thread ends (exit(2)) before another.
    const HEADLESS: &str = "
def wait():
    while ') Z ' not in open('/proc/self/stat').read(): pass
    hold()
threading.Thread(target=wait).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)";
    let scratch = Scratch::new("mapped");
    // Only with capabilities can one look behind a mapping.
    let mut mappings = fs::read_dir("/proc/self/map_files").unwrap().flatten();
    let sees_files = mappings.any(|mapping| fs::metadata(mapping.path()).is_ok());
    for end in ["hold()", HEADLESS] {
        let unlinked = unlinked_by(&scratch, &format!("{CODE}{end}"));
        let counted = unlinked.bytes;
        assert!(
            !unlinked.is_hidden && counted >= if sees_files { 3 << 20 } else { 4096 },
            "{end}: {counted}"
        );
    }
}

#[test]
fn deleted_file_whose_mapping_moves_all_the_time_counts_as_hidden() {
    const CODE: &str = "
import ctypes, mmap, os, threading
with open('x', 'w+b') as file:
    file.write(bytes(4096))
    file.flush()
    c = ctypes.CDLL(None)
    c.mmap.restype = c.mremap.restype = ctypes.c_void_p
    size, fixed = ctypes.c_size_t(4096), 3  # MREMAP_MAYMOVE | MREMAP_FIXED
    space = c.mmap(None, ctypes.c_size_t(1 << 22), 0, 0x22, -1, ctypes.c_long(0))
    place = c.mmap(None, size, 1, 1, file.fileno(), ctypes.c_long(0))
os.unlink('x')
def move(at):
    for number in range(1 << 40):
        to = space + 4096 * (number % 1024)
        c.mremap(ctypes.c_void_p(at), size, size, fixed, ctypes.c_void_p(to))
        at = to
threading.Thread(target=move, args=(place,)).start()
print(flush=True)
input()";
    let scratch = Scratch::new("moving");
    // A reading may meet the moment between two moves.
    assert!((0..100).any(|_| unlinked_by(&scratch, CODE).is_hidden));
}

#[test]
fn mappings_that_are_gone_cost_one_more_reading_of_their_list() {
    let proc: OwnedFd = File::open("/proc").unwrap().into();
    let task = PathBuf::from(std::process::id().to_string());
    let holders = Holders {
        proc: &proc,
        pids: vec![task.clone()],
        init: PathBuf::new(),
        devices: Vec::new(),
    };
    let gone = crate::sample::Deleted {
        range: "1000-2000".to_owned(),
        file: "00:00 7".to_owned(),
        device: 0,
        inode: 7,
        length: 4096,
    };
    let (mut found, mut again) = (Unlinked::default(), None);
    assert!(!holders.add_mapping(&task, &gone, &mut found, &mut again));
    again.as_mut().unwrap().insert(gone.file.clone());
    assert!(
        holders.add_mapping(&task, &gone, &mut found, &mut again),
        "it was read again"
    );
    assert!(found.is_hidden && found.bytes == 4096);
}

#[test]
fn holders_are_looked_at_until_the_deadline_or_an_order() {
    let scratch = Scratch::new("held");
    let directory = scratch.open();
    let proc: OwnedFd = File::open("/proc").unwrap().into();
    let holders = Holders {
        proc: &proc,
        pids: vec![std::process::id().to_string().into()],
        init: PathBuf::new(),
        devices: Vec::new(),
    };
    let mut held = File::create(scratch.0.join("x")).unwrap();
    io::Write::write_all(&mut held, &[7; 4096]).unwrap();
    fs::remove_file(scratch.0.join("x")).unwrap();
    let later = Instant::now() + WALK_TIME_MAX;
    assert!(
        holders
            .unlinked(directory.as_fd(), &mut Until::deadline(later))
            .bytes
            > 0
    );
    let late = holders.unlinked(directory.as_fd(), &mut Until::deadline(Instant::now()));
    assert!(late.bytes == 0 && late.is_hidden);
    let mut ordered = Until {
        orders: Some(&|| Pending::End),
        ..Until::deadline(later)
    };
    let cut = holders.unlinked(directory.as_fd(), &mut ordered);
    assert!(cut.bytes == 0 && !cut.is_hidden && ordered.is_over);
}

#[test]
fn file_in_memory_does_not_count_as_deleted() {
    const CODE: &str = "
import os
held = os.memfd_create('x')
os.write(held, bytes(3 << 20))
print(flush=True)
input()";
    let scratch = Scratch::new("memory");
    assert_eq!(unlinked_by(&scratch, CODE).bytes, 0);
}

/// Page 0x400000 of this program copies itself elsewhere, unmaps the file, writes an end of line, and waits.
///
/// claim: [RES-9]
#[cfg(target_arch = "x86_64")]
#[test]
fn deleted_program_counts_while_it_runs_without_a_mapping_of_it() {
    const CODE: &str = "
import os, struct
code = bytes.fromhex('b80900000031ffbe00100000ba0700000041ba2200000049c7c0ffffffff4531c90f054889c74889c3488d3509000000'
    'b930000000f3a4ffe3b80b000000bf00004000be001000000f056a0ab801000000bf010000004889e6ba010000000f05b8220000000f05ebf7')
head = struct.pack('<16sHHIQQQIHHHHHH', b'\x7fELF\x02\x01\x01', 2, 62, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0)
head += struct.pack('<IIQQQQQQ', 1, 5, 0, 0x400000, 0x400000, 4096, 4096, 4096)
with open('x', 'wb') as file:
    file.write((head + code).ljust(3 << 20, b'x'))
    os.fchmod(file.fileno(), 0o700)
program = os.open('x', os.O_RDONLY)
os.unlink('x')
os.execve(program, ['x'], {})";
    let unlinked = unlinked_by(&Scratch::new("executed"), CODE);
    assert!(
        !unlinked.is_hidden && unlinked.bytes >= 3 << 20,
        "{}",
        unlinked.bytes
    );
}

/// claim: [RES-9]
#[test]
fn deleted_file_of_another_disk_of_the_sandbox_does_not_count() {
    const CODE: &str = "
import mmap, os, tempfile
held = tempfile.TemporaryFile(dir='/dev/shm')
held.write(bytes(3 << 20))
held.flush()
mapped = tempfile.NamedTemporaryFile(dir='/dev/shm')
mapped.write(bytes(3 << 20))
mapped.flush()
page = mmap.mmap(mapped.fileno(), 4096)
mapped.close()
os.closerange(4, 100)
print(flush=True)
input()";
    let unlinked = unlinked_by(&Scratch::new("elsewhere"), CODE);
    assert!(!unlinked.is_hidden && unlinked.bytes == 0, "{}", unlinked.bytes);
}

#[test]
fn only_growth_since_all_files_were_seen_counts_as_hidden() {
    let scratch = Scratch::new("baseline");
    let proc: OwnedFd = File::open("/proc").unwrap().into();
    let begun = Watch::begin(
        &scratch.open(),
        Quota::Growth,
        &limits(1 << 20),
        None,
        Known::default(),
    );
    let mut watch = begun.unwrap();
    // As if others had filled the file system since.
    (watch.filled_before, watch.bytes_before) = (0, 0);
    watch.walk(None);
    assert_eq!((watch.filled_before, watch.bytes_before), (0, 0));
    let holders = Holders {
        proc: &proc,
        pids: vec![std::process::id().to_string().into()],
        init: PathBuf::new(),
        devices: Vec::new(),
    };
    watch.walk(Some(holders));
    assert_eq!(
        (watch.filled_before, watch.bytes_before),
        (watch.filled.0, watch.now.bytes)
    );
}

#[test]
fn account_leaves_the_next_check_as_it_was() {
    let scratch = Scratch::new("account");
    let begun = Watch::begin(
        &scratch.open(),
        Quota::Own,
        &limits(64 << 20),
        None,
        Known::default(),
    );
    let mut watch = begun.unwrap();
    let state = |watch: &Watch| (watch.walked_at, watch.filled, watch.now, watch.next);
    let before = state(&watch);
    fs::write(scratch.0.join("new"), vec![7; 1 << 20]).unwrap();
    assert!(watch.account() >= 1 << 20);
    assert_eq!(state(&watch), before);
}

#[test]
fn directories_that_are_replaced_during_a_walk_hide_nothing() {
    let scratch = Scratch::new("replaced");
    let path = |number: u32| scratch.0.join(number.to_string());
    let numbers = 0..2 * ENTRIES_PER_LOOK;
    numbers
        .clone()
        .for_each(|number| fs::create_dir(path(number)).unwrap());
    let replace = || {
        for number in numbers.clone() {
            if fs::remove_dir(path(number)).is_ok() && number % 2 == 0 {
                fs::write(path(number), "").unwrap();
            } else {
                drop(std::os::unix::fs::symlink("/", path(number)));
            }
        }
        Pending::Other
    };
    let until = Until {
        orders: Some(&replace),
        ..Until::deadline(Instant::now() + WALK_TIME_MAX)
    };
    let found = usage(scratch.open().as_fd(), Unlistable::Opened, until).unwrap();
    assert_eq!(found.hidden, 0);
    assert_eq!(found.entries, u64::from(2 * ENTRIES_PER_LOOK));
}

#[test]
fn walk_ends_at_an_order_that_ends_or_interrupts_the_program() {
    use std::rc::Rc;
    let scratch = Scratch::new("ordered");
    for number in 0..=ENTRIES_PER_LOOK {
        fs::write(scratch.0.join(number.to_string()), "").unwrap();
    }
    let begun = Watch::begin(
        &scratch.open(),
        Quota::Own,
        &limits(64 << 20),
        None,
        Known::default(),
    );
    let next = Rc::new(Cell::new(Pending::Other));
    let look = next.clone();
    let watch = begun.unwrap().heeding(Box::new(move || look.get()));
    assert!(watch.count_now().is_some(), "another order can wait");
    next.set(Pending::Interrupt);
    assert!(watch.count_now().is_none());
    assert!(watch.count_now().is_some(), "interrupts cannot prevent all walks");
    next.set(Pending::End);
    assert!(watch.count_now().is_none() && watch.count_now().is_none());
}
