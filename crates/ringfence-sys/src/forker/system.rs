//! Linux system calls, by number.

use core::{arch::asm, ffi::CStr, ptr};

const fn number_of(x86_64: usize, aarch64: usize) -> usize {
    if cfg!(target_arch = "x86_64") {
        x86_64
    } else {
        aarch64
    }
}

#[rustfmt::skip]
#[repr(usize)]
#[derive(Clone, Copy)]
#[cfg_attr(not(node), expect(dead_code, reason = "some are for Node.js"))]
pub enum SystemCall {
    Read = number_of(0, 63),
    Write = number_of(1, 64),
    Close = number_of(3, 57),
    Pread64 = number_of(17, 67),
    Madvise = number_of(28, 233),
    Dup = number_of(32, 23),
    Sendmsg = number_of(46, 211),
    Recvmsg = number_of(47, 212),
    Clone = number_of(56, 220),
    Wait4 = number_of(61, 260),
    Getpid = number_of(39, 172),
    Kill = number_of(62, 129),
    Fcntl = number_of(72, 25),
    Chdir = number_of(80, 49),
    Umask = number_of(95, 166),
    Setpgid = number_of(109, 154),
    Setsid = number_of(112, 157),
    Setresuid = number_of(117, 147),
    Setresgid = number_of(119, 149),
    Capset = number_of(126, 91),
    Statfs = number_of(137, 43),
    Prctl = number_of(157, 167),
    Gettid = number_of(186, 178),
    ExitGroup = number_of(231, 94),
    Openat = number_of(257, 56),
    SetRobustList = number_of(273, 99),
    GetRobustList = number_of(274, 100),
    Readlinkat = number_of(267, 78),
    Ppoll = number_of(271, 73),
    Eventfd2 = number_of(290, 19),
    Dup3 = number_of(292, 24),
    Pipe2 = number_of(293, 59),
    Setns = number_of(308, 268),
    Getrandom = number_of(318, 278),
    // The same on every machine.
    PidfdOpen = 434,
    CloseRange = 436,
    LandlockRestrictSelf = 446,
}

/// The value that the kernel returned, or its errno.
pub type Returned = Result<usize, u64>;

/// # Safety
/// The requirements of the call with these arguments.
pub unsafe fn call<const N: usize>(call: SystemCall, arguments: [usize; N]) -> Returned {
    let mut all = [0; 5];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument;
    }
    let returned: isize;
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") call as usize => returned,
            in("rdi") all[0], in("rsi") all[1], in("rdx") all[2], in("r10") all[3], in("r8") all[4],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0",
            in("x8") call as usize,
            inlateout("x0") all[0] => returned,
            in("x1") all[1], in("x2") all[2], in("x3") all[3], in("x4") all[4],
            options(nostack)
        );
    }
    if returned < 0 {
        Err(returned.unsigned_abs() as u64)
    } else {
        Ok(returned as usize)
    }
}

const SIGCHLD: usize = 17;
const CLONE_CHILD_CLEARTID: usize = 0x0020_0000;
const CLONE_CHILD_SETTID: usize = 0x0100_0000;
const PR_GET_TID_ADDRESS: usize = 40;

/// Forks as the C library does: with the address at which it keeps the thread's number (`CLONE_CHILD_SETTID`), and with
/// the list of the locks that the kernel releases when the thread ends (`get_robust_list(2)`). Returns 0 in the child.
///
/// # Safety
/// No other thread runs.
pub unsafe fn fork() -> Returned {
    let mut number_at = 0_usize;
    let (mut locks, mut length) = (0_usize, 0_usize);
    unsafe {
        let listed = call(
            SystemCall::GetRobustList,
            [0, address(&raw mut locks), address(&raw mut length)],
        );
        let known = call(
            SystemCall::Prctl,
            [PR_GET_TID_ADDRESS, address(&raw mut number_at)],
        );
        let flags = match known {
            Ok(_) if number_at != 0 => SIGCHLD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID,
            _ => SIGCHLD,
        };
        #[cfg(target_arch = "x86_64")]
        let arguments = [flags, 0, 0, number_at, 0];
        #[cfg(target_arch = "aarch64")]
        let arguments = [flags, 0, 0, 0, number_at];
        let forked = call(SystemCall::Clone, arguments);
        if forked == Ok(0) && listed.is_ok() && locks != 0 {
            // A child starts without the list, which lies at the same address as in the parent.
            let _ = call(SystemCall::SetRobustList, [locks, length]);
        }
        forked
    }
}

/// `struct pollfd`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PollFd {
    pub descriptor: i32,
    pub events: i16,
    pub revents: i16,
}

pub const POLLIN: i16 = 1;

impl PollFd {
    pub const fn readable(descriptor: i32) -> Self {
        Self {
            descriptor,
            events: POLLIN,
            revents: 0,
        }
    }
}

/// Calls ppoll(2). `left` is a time limit in seconds and nanoseconds; the kernel writes back the rest of it.
pub fn poll(polled: &mut [PollFd], left: Option<&mut [usize; 2]>) -> Returned {
    let left = left.map_or(0, |time| address(time.as_mut_ptr()));
    let arguments = [address(polled.as_mut_ptr()), polled.len(), left, 0, 0];
    unsafe { call(SystemCall::Ppoll, arguments) }
}

pub const O_CLOEXEC: usize = 0o2_000_000;

/// Opens a file for reading.
pub fn open(path: &CStr) -> Result<i32, u64> {
    const AT_FDCWD: usize = -100_isize as usize;
    let arguments = [AT_FDCWD, address(path.as_ptr()), O_CLOEXEC, 0];
    unsafe { call(SystemCall::Openat, arguments) }.map(|descriptor| descriptor as i32)
}

/// Opens a pipe: its ends for reading and for writing.
pub fn pipe() -> Result<[i32; 2], u64> {
    let mut ends = [-1; 2];
    unsafe { call(SystemCall::Pipe2, [address(ends.as_mut_ptr()), O_CLOEXEC]) }?;
    Ok(ends)
}

pub fn close(descriptor: i32) {
    let _ = unsafe { call(SystemCall::Close, [number(descriptor)]) };
}

/// Converts a pointer to an argument. The kernel may write there.
pub fn address<T>(pointer: *const T) -> usize {
    pointer.expose_provenance()
}

/// Converts a descriptor to an argument.
pub const fn number(descriptor: i32) -> usize {
    descriptor as usize
}

pub fn exit(status: usize) -> ! {
    loop {
        let _ = unsafe { call(SystemCall::ExitGroup, [status]) };
    }
}

pub const SIGKILL: usize = 9;

/// Kills the process group that this process leads.
pub fn kill_self() -> ! {
    let _ = unsafe { call(SystemCall::Kill, [0, SIGKILL]) };
    exit(1)
}

/// A child that has ended, from wait4(2): its status, times in microseconds, and memory in KiB.
pub struct EndedChild {
    pub pid: usize,
    pub status: i32,
    pub user: u64,
    pub system: u64,
    pub memory: u64,
}

/// Reaps the next child that has ended, including one that this process has not forked.
pub fn ended_child() -> Option<EndedChild> {
    const WNOHANG: usize = 1;
    const ANY_KIND: usize = 0x4000_0000;
    let mut status = 0_i32;
    let mut usage = [0_u64; 18];
    let arguments = [
        usize::MAX,
        address(&raw mut status),
        WNOHANG | ANY_KIND,
        address(usage.as_mut_ptr()),
    ];
    match unsafe { call(SystemCall::Wait4, arguments) } {
        Ok(pid) if pid > 0 => Some(EndedChild {
            pid,
            status,
            user: usage[0] * 1_000_000 + usage[1],
            system: usage[2] * 1_000_000 + usage[3],
            memory: usage[4],
        }),
        _ => None,
    }
}

#[repr(C)]
struct Slice {
    base: usize,
    length: usize,
}

#[repr(C)]
struct Message {
    name: usize,
    name_length: usize,
    slices: *mut Slice,
    slice_count: usize,
    control: *mut Rights,
    control_length: usize,
    flags: usize,
}

/// A control message with descriptors (`struct cmsghdr`).
#[repr(C, align(8))]
struct Rights {
    length: usize,
    level: i32,
    kind: i32,
    descriptors: [i32; DESCRIPTORS_MAX],
}

pub const DESCRIPTORS_MAX: usize = 24;
const HEAD: usize = 16;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;

/// Sends a message, with a descriptor if there is one. It is lost if the other end is closed.
pub fn send(socket: i32, message: &[u64], descriptor: Option<i32>) {
    const MSG_NOSIGNAL: usize = 0x4000;
    let mut slice = Slice {
        base: address(message.as_ptr()),
        length: size_of_val(message),
    };
    let mut rights = Rights {
        length: HEAD + size_of::<i32>(),
        level: SOL_SOCKET,
        kind: SCM_RIGHTS,
        descriptors: [descriptor.unwrap_or(-1); DESCRIPTORS_MAX],
    };
    let control = descriptor.map(|_| &raw mut rights);
    let head = Message {
        name: 0,
        name_length: 0,
        slices: &raw mut slice,
        slice_count: 1,
        control: control.unwrap_or(ptr::null_mut()),
        control_length: if descriptor.is_some() { HEAD + 8 } else { 0 },
        flags: 0,
    };
    let _ = unsafe {
        call(
            SystemCall::Sendmsg,
            [number(socket), address(&raw const head), MSG_NOSIGNAL],
        )
    };
}

/// A received message: numbers of bytes and descriptors, and true if none of them was truncated.
pub struct Received {
    pub bytes: usize,
    pub descriptors: [i32; DESCRIPTORS_MAX],
    pub count: usize,
    pub is_whole: bool,
}

pub fn receive(socket: i32, buffer: &mut [u8]) -> Result<Received, u64> {
    const MSG_CTRUNC: usize = 8;
    const MSG_TRUNC: usize = 0x20;
    const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
    let mut slice = Slice {
        base: address(buffer.as_mut_ptr()),
        length: buffer.len(),
    };
    let mut rights = Rights {
        length: 0,
        level: 0,
        kind: 0,
        descriptors: [-1; DESCRIPTORS_MAX],
    };
    let mut head = Message {
        name: 0,
        name_length: 0,
        slices: &raw mut slice,
        slice_count: 1,
        control: &raw mut rights,
        control_length: size_of::<Rights>(),
        flags: 0,
    };
    let bytes = unsafe {
        call(
            SystemCall::Recvmsg,
            [number(socket), address(&raw mut head), MSG_CMSG_CLOEXEC],
        )
    }?;
    let is_rights = head.control_length > HEAD && rights.level == SOL_SOCKET && rights.kind == SCM_RIGHTS;
    Ok(Received {
        bytes,
        descriptors: rights.descriptors,
        count: match is_rights {
            true => (rights.length - HEAD) / size_of::<i32>(),
            false => 0,
        },
        is_whole: head.flags & (MSG_CTRUNC | MSG_TRUNC) == 0,
    })
}
