//! The part of a template that forks: a shared object of its own, which the interpreter loads and calls. No Python and
//! no JavaScript runs between a fork and its walls.
//!
//! [`serve`] waits for orders and forks one child for each. The child enters the namespaces that came with the order,
//! drops every privilege and returns to the interpreter, which waits for the claim and calls [`confine`]. In the parent
//! it never returns: it reports the end of each child, and ends the process when the control connection is closed.
//!
//! The object has no C library, so that it fits every Python; it needs only `memset` from one. For Node.js it is
//! compiled a second time, with [`node`].
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

/// Filled in by Python, with ctypes, or by [`node`].
#[repr(C)]
pub struct Setup {
    /// Connection on which orders arrive.
    control: i32,
    /// First the filter of all forks, then those for a shared directory: for a read-only one, and for another; then the
    /// last filter of all forks.
    filter_count: u32,
    filters: *const Filter,
    /// The fork of the C library and CPython, if the template may have threads or handlers; null: the bare system call.
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

/// Positions in the descriptors of an order: six namespaces to join, the pid namespace to fork into, the Landlock
/// rules, the child's descriptors 0 to 4, and the connection for replies. Time namespaces and cgroup files follow.
const JOINED: usize = 6;
const PID: usize = 6;
const RULES: usize = 7;
const STREAMS: usize = 8;
const REPLY: usize = 13;
const FIXED_COUNT: usize = 14;

/// Descriptor numbers of the rules and the reply connection in the child. Those of an order do not collide with them:
/// the kernel gives each the lowest free number, in their order, and 0 to 4 are taken.
const RULES_NUMBER: i32 = 5;
const REPLY_NUMBER: i32 = 6;

const ORDER_BYTES_MAX: usize = 4096;
const CHILDREN_MAX: usize = 4096;
/// Uid and gid of every program, inside its sandbox.
const ID: usize = 1000;

/// Kinds of replies. Each reply is five numbers, which `ringfence_jail::wire` reads.
const FORKED: u64 = 0;
const READY: u64 = 1;
const REFUSED: u64 = 2;
const ENDED: u64 = 3;

/// Steps that the kernel can refuse; the reader of the replies names them.
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

/// Static, because a fork copies the stack.
static mut FORKER: Forker = Forker {
    polled: [NOT_POLLED; CHILDREN_MAX + 1],
    children: [NO_CHILD; CHILDREN_MAX],
    count: 0,
};

const NO_CHILD: Child = Child { pid: 0, reply: 0 };
const NOT_POLLED: PollFd = PollFd {
    descriptor: 0,
    events: 0,
    revents: 0,
};

/// The running children. `polled` has the control connection and then the pidfd of each child.
struct Forker {
    polled: [PollFd; CHILDREN_MAX + 1],
    children: [Child; CHILDREN_MAX],
    count: usize,
}

/// Forks until the control connection is closed, and then ends the process. Returns only in each child.
///
/// # Safety
/// `setup` and all that it points to live as long as the process; the caller calls this once.
#[cfg_attr(not(node), unsafe(no_mangle))]
pub unsafe extern "C" fn serve(setup: &Setup) {
    pages::drop_unmapped();
    let forker = unsafe { &mut *(&raw mut FORKER) };
    forker.polled[0] = PollFd::readable(setup.control);
    loop {
        if poll(&mut forker.polled[..=forker.count], None).is_err() {
            continue; // a signal
        }
        // Also those that a program has made children of this process: they delay the end of their sandbox.
        while let Some(ended) = ended_child() {
            forker.reap(&ended);
        }
        if forker.polled[0].revents != 0 && unsafe { forker.handle_order(setup) } {
            return;
        }
    }
}

impl Forker {
    fn reap(&mut self, ended: &system::EndedChild) {
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
        // Later children find no trace of it in this memory.
        self.children[at] = self.children[self.count];
        self.children[self.count] = NO_CHILD;
        self.polled[at + 1] = self.polled[self.count + 1];
        self.polled[self.count + 1] = NOT_POLLED;
    }

    /// Receives an order and forks one child. Returns true in the child.
    unsafe fn handle_order(&mut self, setup: &Setup) -> bool {
        let mut workspace = [0; ORDER_BYTES_MAX];
        let room = ORDER_BYTES_MAX - 1; // for the NUL at its end
        let Ok(order) = receive(setup.control, &mut workspace[..room]) else {
            return false; // interrupted
        };
        if order.bytes == 0 {
            exit(0);
        }
        let is_child =
            order.is_whole && order.count >= FIXED_COUNT && unsafe { self.fork(setup, &order, &workspace) };
        if is_child {
            // The child keeps no descriptors or pids of its siblings.
            self.polled[..=self.count].fill(NOT_POLLED);
            self.children[..self.count].fill(NO_CHILD);
            self.count = 0;
        } else {
            // A supervisor without a reply sees the connection closed.
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
                    refused.send(reply);
                    exit(1)
                }
            },
            Ok(_) => false,
            Err(refused) => {
                refused.send(reply);
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
            // A duplicate for reporting the child's end: the order's own descriptor is closed.
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
    /// Forks as the interpreter does, except for the handlers in the child, which run behind the walls.
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
    fn send(&self, reply: i32) {
        send(reply, &[REFUSED, self.step as u64, self.errno, 0, 0], None);
    }
}

/// Forks a trial, which finds the pages that forks touch. Negative in the trial. To be called before [`serve`].
///
/// # Safety
/// This process has one thread.
#[cfg(not(node))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn try_run() -> i32 {
    unsafe { pages::try_run(system::fork) }
}

/// Reports the pages that a trial has touched; called by the trial at its end.
#[cfg(not(node))]
#[unsafe(no_mangle)]
pub extern "C" fn found() {
    pages::report_touched();
}

/// Raises all walls but those that depend on the claim, replies, and closes the reply connection.
unsafe fn raise_walls(setup: &Setup, order: &Received, workspace: &[u8]) -> Result<(), Refused> {
    let given = &order.descriptors;
    // The order's first byte is the number of time namespaces; the path of the workspace follows.
    let times = FIXED_COUNT + usize::from(workspace[0]);
    let path = address(workspace[1..].as_ptr());
    unsafe {
        for file in given.get(times..order.count).unwrap_or_default() {
            Step::Cgroup.take(call(
                SystemCall::Write,
                [number(*file), address(b"0".as_ptr()), 1],
            ))?;
        }
        let more = given.get(FIXED_COUNT..times).unwrap_or_default();
        // Forks of Node.js join no time namespace: Node.js ends itself if its start lies in the future.
        #[cfg(node)]
        let more = &more[..0];
        for namespace in given[..JOINED].iter().chain(more) {
            Step::Namespaces.take(call(SystemCall::Setns, [number(*namespace), 0]))?;
        }
        // setsid(2) is refused to a session leader, and umask(2) cannot fail.
        let _ = (call(SystemCall::Setsid, []), call(SystemCall::Umask, [0o022]));
        give_up_rights()?;
        Step::Workspace.take(call(SystemCall::Chdir, [path]))?;
        let placed = (0..).zip(&given[STREAMS..REPLY]);
        let placed = placed.chain([(RULES_NUMBER, &given[RULES]), (REPLY_NUMBER, &given[REPLY])]);
        for (at, descriptor) in placed {
            // Programs that it starts inherit its streams and nothing else.
            let flags = if at > 2 { O_CLOEXEC } else { 0 };
            Step::Descriptors.take(call(SystemCall::Dup3, [number(*descriptor), number(at), flags]))?;
        }
        // Processes of its user may inspect it, as after an exec.
        Step::Identity.take(call(SystemCall::Prctl, [PR_SET_DUMPABLE, 1]))?;
        install(setup, 0..1)?;
        if let Some(whole) = setup.whole.as_ref() {
            (whole.in_child)(); // it may close files of its own
        }
        #[cfg(node)]
        Step::Descriptors.take(node::reset_after_fork())?;
        #[cfg(not(node))]
        Step::Descriptors.take(close_from(number(REPLY_NUMBER) + 1))?;
    }
    pages::populate();
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
        // Ends after the last capability that this kernel knows.
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

/// Raises the last walls: filters for a directory that the claim shares, the last filter, file rules. Kills on failure.
///
/// # Safety
/// `setup` is the one of [`serve`]; `workspace` is a NUL-terminated path that lives until this returns, or null.
#[cfg_attr(not(node), unsafe(no_mangle))]
pub unsafe extern "C" fn confine(setup: &Setup, workspace: *const c_char) {
    if unsafe { raise_last_walls(setup, workspace) }.is_err() {
        kill_self();
    }
}

unsafe fn raise_last_walls(setup: &Setup, workspace: *const c_char) -> Result<(), Refused> {
    const ST_RDONLY: u64 = 1;
    /// Index of the flags in `struct statfs`, counted in words.
    const FLAGS: usize = 10;
    /// `LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF` and `_LOG_SUBDOMAINS_OFF`: a program without an execve(2), and one
    /// with rules of its own, could fill the host's audit log. Before ABI 7 there is no log, and flags are refused.
    const LOG_NOTHING: usize = 0b101;
    const EINVAL: u64 = 22;
    let last = setup.filter_count as usize - 1;
    unsafe {
        if !workspace.is_null() {
            // The directory that is mounted there now was not there at the first chdir(2).
            Step::Workspace.take(call(SystemCall::Chdir, [address(workspace)]))?;
            let mut about = [0_u64; 15];
            Step::Workspace.take(call(
                SystemCall::Statfs,
                [address(c".".as_ptr()), address(about.as_mut_ptr())],
            ))?;
            let writable = usize::from(about[FLAGS] & ST_RDONLY == 0);
            install(setup, 1 + writable..2 + writable)?;
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

// Hidden, because a library that the program loads may define its own.
core::arch::global_asm!(".hidden rust_eh_personality");

/// Required by the compiler's library. A panic ends the process and unwinds nothing.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
