//! The part of a template that forks: a shared object of its own, which the interpreter loads and calls. No Python and
//! no JavaScript runs between a fork and its walls.
//!
//! [`serve`] waits for orders and forks one child for each. The child enters the namespaces that came with the order,
//! gives up every right, and returns to the interpreter, which waits for the claim and calls [`confine`]. In the parent
//! it never returns: it reports each child's end, and ends the process when the connection for orders is closed.
//!
//! There is no C library here, so that the object fits every Python; of that it needs only `memset`. For Node.js it is
//! compiled once more, with what that needs ([`node`]).
#![no_std]

#[cfg(node)]
mod node;
mod pages;
mod system;

use core::{ffi::c_char, panic::PanicInfo};
use system::{
    O_CLOEXEC, PollFd, Received, Returned, SIGKILL, SystemCall, address, call, close, ended_child, exit,
    kill_self, number, poll, receive, send,
};

/// Written by Python, with ctypes, or by [`node`].
#[repr(C)]
pub struct Setup {
    /// Where orders come from.
    control: i32,
    /// The filter of all forks, then those for a shared directory, of which the second is for one that is read-only,
    /// then the last of all forks.
    filter_count: u32,
    filters: *const Filter,
    /// What the C library and CPython do for a fork, in a template that may have threads or handlers of its own; null:
    /// the system call alone.
    whole: *const WholeFork,
}

/// `struct sock_fprog`.
#[repr(C)]
pub struct Filter {
    length: u16,
    code: *const u64,
}

#[repr(C)]
pub struct WholeFork {
    before: extern "C" fn(),
    fork: extern "C" fn() -> i32,
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
}

/// Places among the descriptors of an order: six namespaces to join, the pid namespace to fork into, the rules, what
/// the child has as 0 to 4, and the connection for replies. Time namespaces and files of cgroups follow.
const JOINED: usize = 6;
const PID: usize = 6;
const RULES: usize = 7;
const STREAMS: usize = 8;
const REPLY: usize = 13;
const GIVEN: usize = 14;

/// The child's numbers for the rules and the connection. Descriptors of an order are not in their way: each is made in
/// the lowest place that is free, in their order, and 0 to 4 are taken.
const RULES_NUMBER: i32 = 5;
const REPLY_NUMBER: i32 = 6;

const ORDER_BYTES_MAX: usize = 4096;
const CHILDREN_MAX: usize = 4096;
/// Of every program, inside its sandbox.
const ID: usize = 1000;

/// The kinds of replies, each five numbers, as `ringfence_jail::wire` reads them.
const FORKED: u64 = 0;
const READY: u64 = 1;
const REFUSED: u64 = 2;
const ENDED: u64 = 3;

/// What the kernel can refuse; names are given where replies are read.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Step {
    Fork,
    Cgroup,
    Namespaces,
    Capabilities,
    Identity,
    Workspace,
    Descriptors,
    Filters,
    Rules,
}

struct Refused {
    step: Step,
    errno: u64,
}

impl Step {
    fn take(self, answer: Returned) -> Result<usize, Refused> {
        answer.map_err(|errno| Refused { step: self, errno })
    }
}

#[derive(Clone, Copy)]
struct Child {
    pid: usize,
    reply: i32,
}

/// Not on the stack, which a fork copies.
static mut FORKER: Forker = Forker {
    polled: [NOT_POLLED; CHILDREN_MAX + 1],
    children: [NO_CHILD; CHILDREN_MAX],
    count: 0,
};

const NO_CHILD: Child = Child { pid: 0, reply: 0 };
const NOT_POLLED: PollFd = PollFd {
    descriptor: 0,
    events: 0,
    found: 0,
};

/// The children that run. Each has its own descriptor in what is polled, behind the control connection.
struct Forker {
    polled: [PollFd; CHILDREN_MAX + 1],
    children: [Child; CHILDREN_MAX],
    count: usize,
}

/// Forks until the control connection ends, and then ends the process. Returns in each child.
///
/// # Safety
/// `setup` and all that it points at are there as long as the process; nothing else calls this.
#[cfg_attr(not(node), unsafe(no_mangle))]
pub unsafe extern "C" fn serve(setup: &Setup) {
    pages::keep_mapped();
    let forker = unsafe { &mut *(&raw mut FORKER) };
    forker.polled[0] = PollFd::readable(setup.control);
    loop {
        if poll(&mut forker.polled[..=forker.count], None).is_err() {
            continue; // a signal
        }
        // Also those that a program has made children of this process: they hold up the end of their sandbox.
        while let Some(ended) = ended_child() {
            forker.bury(&ended);
        }
        if forker.polled[0].found != 0 && unsafe { forker.obey(setup) } {
            return;
        }
    }
}

impl Forker {
    fn bury(&mut self, ended: &system::EndedChild) {
        let known = self.children[..self.count].iter();
        let Some(at) = { known }.position(|child| child.pid == ended.pid) else {
            return;
        };
        let reply = self.children[at].reply;
        let status = u64::from(ended.status.cast_unsigned());
        send(
            reply,
            &[ENDED, status, ended.user, ended.system, ended.memory],
            None,
        );
        close(reply);
        close(self.polled[at + 1].descriptor);
        self.count -= 1;
        // Nothing of it stays behind, where later children would find it.
        self.children[at] = self.children[self.count];
        self.children[self.count] = NO_CHILD;
        self.polled[at + 1] = self.polled[self.count + 1];
        self.polled[self.count + 1] = NOT_POLLED;
    }

    /// Forks one child. Returns whether this is it.
    unsafe fn obey(&mut self, setup: &Setup) -> bool {
        let mut workspace = [0; ORDER_BYTES_MAX];
        let room = ORDER_BYTES_MAX - 1; // a zero ends it
        let Ok(order) = receive(setup.control, &mut workspace[..room]) else {
            return false; // interrupted
        };
        if order.bytes == 0 {
            exit(0);
        }
        let is_child =
            order.is_whole && order.count >= GIVEN && unsafe { self.fork(setup, &order, &workspace) };
        if is_child {
            // What it has of its siblings.
            self.polled[..=self.count].fill(NOT_POLLED);
            self.children[..self.count].fill(NO_CHILD);
            self.count = 0;
        } else {
            // A supervisor that got no reply reads the end of the connection.
            order.descriptors[..order.count]
                .iter()
                .for_each(|given| close(*given));
        }
        is_child
    }

    unsafe fn fork(&mut self, setup: &Setup, order: &Received, workspace: &[u8]) -> bool {
        let reply = order.descriptors[REPLY];
        match unsafe { self.try_to_fork(setup, order) } {
            Ok(0) => match unsafe { raise_walls(setup, order, workspace) } {
                Ok(()) => true,
                Err(refused) => {
                    refused.tell(reply);
                    exit(1)
                }
            },
            Ok(_) => false,
            Err(refused) => {
                refused.tell(reply);
                false
            }
        }
    }

    unsafe fn try_to_fork(&mut self, setup: &Setup, order: &Received) -> Result<usize, Refused> {
        if self.count == CHILDREN_MAX {
            return Err(TOO_MANY);
        }
        let whole = unsafe { setup.whole.as_ref() };
        unsafe {
            Step::Fork.take(call(SystemCall::Setns, [number(order.descriptors[PID]), 0]))?;
            // The child's end is reported by it, whatever becomes of the order's own.
            let reply = Step::Fork.take(call(SystemCall::Dup, [number(order.descriptors[REPLY])]))? as i32;
            let forked = match whole {
                None => Step::Fork.take(system::fork()),
                Some(whole) => whole.fork(),
            };
            let pid = match forked {
                Ok(0) => return Ok(0),
                Ok(pid) => pid,
                Err(refused) => {
                    close(reply);
                    return Err(refused);
                }
            };
            let Ok(process) = call(SystemCall::PidfdOpen, [pid, 0]) else {
                let _ = call(SystemCall::Kill, [pid, SIGKILL]);
                close(reply);
                return Err(TOO_MANY);
            };
            let process = process as i32;
            self.children[self.count] = Child { pid, reply };
            self.count += 1;
            self.polled[self.count] = PollFd::readable(process);
            send(reply, &[FORKED, 0, 0, 0, 0], Some(process));
            Ok(pid)
        }
    }
}

const EAGAIN: u64 = 11;
const TOO_MANY: Refused = Refused {
    step: Step::Fork,
    errno: EAGAIN,
};

impl WholeFork {
    /// As the interpreter forks, but for what it does in the child, which comes behind the walls.
    unsafe fn fork(&self) -> Result<usize, Refused> {
        (self.before)();
        let pid = (self.fork)();
        if pid != 0 {
            (self.in_parent)();
        }
        usize::try_from(pid).map_err(|_| TOO_MANY)
    }
}

impl Refused {
    fn tell(&self, reply: i32) {
        send(reply, &[REFUSED, self.step as u64, self.errno, 0, 0], None);
    }
}

/// A trial, by which the template finds what its forks touch: negative in it. To be called before [`serve`].
///
/// # Safety
/// This process has one thread.
#[cfg(not(node))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn try_run() -> i32 {
    unsafe { pages::try_run(system::fork) }
}

/// Called by a trial, at its end.
#[cfg(not(node))]
#[unsafe(no_mangle)]
pub extern "C" fn found() {
    pages::tell_found();
}

/// Everything but the rules about files, which depend on the claim. The connection's end closes with the reply.
unsafe fn raise_walls(setup: &Setup, order: &Received, workspace: &[u8]) -> Result<(), Refused> {
    let given = &order.descriptors;
    // The order's first byte says how many time namespaces came; its path follows.
    let times = GIVEN + usize::from(workspace[0]);
    let path = address(workspace[1..].as_ptr());
    unsafe {
        for file in given.get(times..order.count).unwrap_or_default() {
            Step::Cgroup.take(call(
                SystemCall::Write,
                [number(*file), address(b"0".as_ptr()), 1],
            ))?;
        }
        let more = given.get(GIVEN..times).unwrap_or_default();
        // To Node.js the time goes on: where it has begun at a time that is still to come, it ends itself.
        #[cfg(node)]
        let more = &more[..0];
        for namespace in given[..JOINED].iter().chain(more) {
            Step::Namespaces.take(call(SystemCall::Setns, [number(*namespace), 0]))?;
        }
        // It may lead a session already, and a mask cannot be refused.
        let _ = (call(SystemCall::Setsid, []), call(SystemCall::Umask, [0o022]));
        give_up_rights()?;
        Step::Workspace.take(call(SystemCall::Chdir, [path]))?;
        let placed = (0..).zip(&given[STREAMS..REPLY]);
        let placed = placed.chain([(RULES_NUMBER, &given[RULES]), (REPLY_NUMBER, &given[REPLY])]);
        for (at, descriptor) in placed {
            // Programs that it starts have its streams, and nothing else.
            let flags = if at > 2 { O_CLOEXEC } else { 0 };
            Step::Descriptors.take(call(SystemCall::Dup3, [number(*descriptor), number(at), flags]))?;
        }
        // Its own user's to look at, as after an exec.
        Step::Identity.take(call(SystemCall::Prctl, [PR_SET_DUMPABLE, 1]))?;
        install(setup, 0..1)?;
        if let Some(whole) = setup.whole.as_ref() {
            (whole.in_child)(); // which may close files of its own
        }
        #[cfg(node)]
        Step::Descriptors.take(node::begin_anew())?;
        #[cfg(not(node))]
        Step::Descriptors.take(close_from(number(REPLY_NUMBER) + 1))?;
    }
    pages::provide();
    send(REPLY_NUMBER, &[READY, 0, 0, 0, 0], None);
    close(REPLY_NUMBER);
    Ok(())
}

unsafe fn close_from(first: usize) -> Returned {
    unsafe { call(SystemCall::CloseRange, [first, u32::MAX as usize, 0]) }
}

const PR_SET_DUMPABLE: usize = 4;
const PR_SET_SECCOMP: usize = 22;
const PR_CAPBSET_DROP: usize = 24;
const CAPABILITIES_MAX: usize = 64;
/// `_LINUX_CAPABILITY_VERSION_3`, for this process.
const CAPABILITY_HEAD: [u32; 2] = [0x2008_0522, 0];

unsafe fn give_up_rights() -> Result<(), Refused> {
    unsafe {
        // Until past the last that this kernel knows.
        for capability in 0..CAPABILITIES_MAX {
            if call(SystemCall::Prctl, [PR_CAPBSET_DROP, capability, 0, 0, 0]).is_err() {
                break;
            }
        }
        Step::Identity.take(call(SystemCall::Setresgid, [ID; 3]))?;
        Step::Identity.take(call(SystemCall::Setresuid, [ID; 3]))?;
        let none = [0_u32; 6];
        let arguments = [address(CAPABILITY_HEAD.as_ptr()), address(none.as_ptr())];
        Step::Capabilities.take(call(SystemCall::Capset, arguments))?;
    }
    Ok(())
}

unsafe fn install(setup: &Setup, filters: core::ops::Range<usize>) -> Result<(), Refused> {
    const SECCOMP_MODE_FILTER: usize = 2;
    for at in filters {
        unsafe {
            let filter = address(setup.filters.add(at));
            Step::Filters.take(call(
                SystemCall::Prctl,
                [PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0],
            ))?;
        }
    }
    Ok(())
}

/// The last walls of a child: filters more, if its claim shares a directory, and the rules about files. Kills a child
/// that cannot raise them.
///
/// # Safety
/// `setup` is what [`serve`] was called with; `workspace` is a path, or null.
#[cfg_attr(not(node), unsafe(no_mangle))]
pub unsafe extern "C" fn confine(setup: &Setup, workspace: *const c_char) {
    if unsafe { raise_last_walls(setup, workspace) }.is_err() {
        kill_self();
    }
}

unsafe fn raise_last_walls(setup: &Setup, workspace: *const c_char) -> Result<(), Refused> {
    const ST_RDONLY: u64 = 1;
    /// Where `struct statfs` has its flags.
    const FLAGS: usize = 10;
    /// `LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF` and `_LOG_SUBDOMAINS_OFF`: a program without an execve(2), and one
    /// with rules of its own, could fill the host's audit log. Before ABI 7 there is no log, and flags are refused.
    const LOG_NOTHING: usize = 0b101;
    const EINVAL: u64 = 22;
    let last = setup.filter_count as usize - 1;
    unsafe {
        if !workspace.is_null() {
            // What lies there now was not there before.
            Step::Workspace.take(call(SystemCall::Chdir, [address(workspace)]))?;
            let mut about = [0_u64; 15];
            Step::Workspace.take(call(
                SystemCall::Statfs,
                [address(c".".as_ptr()), address(about.as_mut_ptr())],
            ))?;
            let writable = usize::from(about[FLAGS] & ST_RDONLY == 0);
            install(setup, 1..last - writable)?;
        }
        install(setup, last..last + 1)?;
        let rules = number(RULES_NUMBER);
        let mut restricted = call(SystemCall::LandlockRestrictSelf, [rules, LOG_NOTHING]);
        if restricted == Err(EINVAL) {
            restricted = call(SystemCall::LandlockRestrictSelf, [rules, 0]);
        }
        Step::Rules.take(restricted)?;
    }
    close(RULES_NUMBER);
    Ok(())
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    exit(101)
}

// A library of the program may have its own.
core::arch::global_asm!(".hidden rust_eh_personality");

/// The compiler's library refers to it. A panic ends the process and unwinds nothing.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
