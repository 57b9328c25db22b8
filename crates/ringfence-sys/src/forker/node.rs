//! Additions for forks of Node.js. The object is a Node-API addon, and is also preloaded (`LD_PRELOAD`), for its
//! [`pthread_join`] and [`pthread_cond_wait`].
//!
//! - V8 excludes its memory from forks (`MADV_DONTFORK`, for quick starts of other programs). A template undoes that.
//! - libuv's loop is reset in the child (`uv_loop_fork`). Its thread pool and signal handling are reset by the handlers
//!   that it has registered with the C library, whose fork is called.
//! - A fork lacks the template's other threads: V8's, and one of the inspector. With an empty loop, Node.js waits for
//!   the tasks of V8's threads, which only help with work that V8 can complete alone, so a fork counts them as done.
//! - Node.js joins those threads as its last act; a fork exits there.
//! - OpenSSL detects a fork by its process id, which is the same in each sandbox, so a fork gets fresh randomness.

use crate::{
    Filter, REPLY_NUMBER, Setup, WholeFork, close_from, confine, pages, serve,
    system::{O_CLOEXEC, Returned, SystemCall, address, call, close, exit, number, open, pipe},
};
use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem,
    ops::Range,
    ptr,
};

type Environment = *mut c_void;
type Value = *mut c_void;
type Information = *mut c_void;
type Callback = unsafe extern "C" fn(Environment, Information) -> Value;
/// `pthread_t`.
type Thread = usize;

unsafe extern "C" {
    fn napi_create_function(
        environment: Environment,
        name: *const c_char,
        length: usize,
        callback: Callback,
        data: *mut c_void,
        result: *mut Value,
    ) -> c_int;
    fn napi_set_named_property(
        environment: Environment,
        object: Value,
        name: *const c_char,
        value: Value,
    ) -> c_int;
    fn napi_get_cb_info(
        environment: Environment,
        information: Information,
        count: *mut usize,
        arguments: *mut Value,
        this: *mut Value,
        data: *mut *mut c_void,
    ) -> c_int;
    fn napi_get_value_int32(environment: Environment, value: Value, result: *mut i32) -> c_int;
    fn napi_create_int32(environment: Environment, value: i32, result: *mut Value) -> c_int;
    fn napi_get_value_string_utf8(
        environment: Environment,
        value: Value,
        buffer: *mut c_char,
        room: usize,
        length: *mut usize,
    ) -> c_int;
    fn napi_get_buffer_info(
        environment: Environment,
        value: Value,
        data: *mut *mut c_void,
        length: *mut usize,
    ) -> c_int;
    fn napi_get_uv_event_loop(environment: Environment, result: *mut *mut c_void) -> c_int;
    fn uv_loop_fork(event_loop: *mut c_void) -> c_int;
    fn fork() -> c_int;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_DEFAULT: *mut c_void = ptr::null_mut();
const RTLD_NEXT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

const FILTERS_MAX: usize = 8;
const EVENTS_MAX: usize = 16;
const PATH_BYTES_MAX: usize = 4096;
const RANDOM_BYTES: usize = 32;

/// State of the template and of its forks.
static mut TEMPLATE: Template = Template {
    event_loop: ptr::null_mut(),
    seed: None,
    highest: 0,
    events: [0; EVENTS_MAX],
    event_count: 0,
    is_fork: false,
    tasks: ptr::null_mut(),
    status: None,
    filters: [NO_FILTER; FILTERS_MAX],
};

struct Template {
    event_loop: *mut c_void,
    /// `RAND_seed` of OpenSSL.
    seed: Option<unsafe extern "C" fn(*const c_void, c_int)>,
    /// Highest descriptor of the template itself.
    highest: usize,
    /// Descriptors (eventfd) by which its threads are woken.
    events: [i32; EVENTS_MAX],
    event_count: usize,
    is_fork: bool,
    /// Mutex of the task queue of V8's threads.
    tasks: *mut c_void,
    /// Exit status of a fork, once its JavaScript has ended and Node.js ends it.
    status: Option<usize>,
    filters: [Filter; FILTERS_MAX],
}

const NO_FILTER: Filter = Filter {
    length: 0,
    code: ptr::null(),
};

extern "C" fn do_nothing() {}

extern "C" fn fork_whole() -> c_int {
    unsafe { fork() }
}

fn template() -> &'static mut Template {
    unsafe { &mut *(&raw mut TEMPLATE) }
}

/// Exports the functions that JavaScript calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn napi_register_module_v1(environment: Environment, exports: Value) -> Value {
    const FUNCTIONS: [(&CStr, Callback); 7] = [
        (c"prepare", prepare),
        (c"tryRun", try_run),
        (c"found", report_touched),
        (c"serve", serve_forks),
        (c"confine", confine_fork),
        (c"end", set_exit_status),
        (c"exit", exit_now),
    ];
    for (name, callback) in FUNCTIONS {
        let mut function = ptr::null_mut();
        let length = name.count_bytes();
        unsafe {
            napi_create_function(
                environment,
                name.as_ptr(),
                length,
                callback,
                ptr::null_mut(),
                &raw mut function,
            );
            napi_set_named_property(environment, exports, name.as_ptr(), function);
        }
    }
    exports
}

unsafe fn arguments<const N: usize>(environment: Environment, information: Information) -> [Value; N] {
    let mut values = [ptr::null_mut(); N];
    let mut count = N;
    let none = ptr::null_mut();
    unsafe {
        napi_get_cb_info(
            environment,
            information,
            &raw mut count,
            values.as_mut_ptr(),
            none,
            none.cast(),
        );
    }
    values
}

unsafe fn integer(environment: Environment, value: Value) -> i32 {
    let mut number = 0;
    unsafe { napi_get_value_int32(environment, value, &raw mut number) };
    number
}

unsafe fn result(environment: Environment, number: i32) -> Value {
    let mut value = ptr::null_mut();
    unsafe { napi_create_int32(environment, number, &raw mut value) };
    value
}

unsafe fn bytes(environment: Environment, value: Value) -> &'static mut [u8] {
    let (mut data, mut length) = (ptr::null_mut(), 0);
    let failed = unsafe { napi_get_buffer_info(environment, value, &raw mut data, &raw mut length) };
    if failed != 0 || data.is_null() {
        return &mut [];
    }
    unsafe { core::slice::from_raw_parts_mut(data.cast(), length) }
}

/// `prepare()`: looks up what forks need. Returns 0, or the number of the missing part.
unsafe extern "C" fn prepare(environment: Environment, _: Information) -> Value {
    let template = template();
    let missing = unsafe {
        napi_get_uv_event_loop(environment, &raw mut template.event_loop);
        let seed = dlsym(RTLD_DEFAULT, c"RAND_seed".as_ptr());
        template.seed =
            mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(*const c_void, c_int)>>(seed);
        if dlsym(RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr()).is_null() {
            1
        } else if template.seed.is_none() {
            2
        } else if template.tasks.is_null() {
            3
        } else {
            0
        }
    };
    unsafe { result(environment, missing) }
}

/// `tryRun()`: forks a trial. Returns -1 in the trial, and its wait status in the template.
unsafe extern "C" fn try_run(environment: Environment, _: Information) -> Value {
    allow_inheritance();
    record_descriptors();
    let status = unsafe { pages::try_run(|| usize::try_from(fork_whole()).map_err(|_| 0)) };
    if status == pages::IN_TRIAL {
        in_child();
        unsafe {
            if reset_after_fork().and_then(|_| open_streams()).is_err() {
                exit(1);
            }
        }
    }
    unsafe { result(environment, status) }
}

/// Opens a pipe as the descriptors on which a program writes output and reports.
unsafe fn open_streams() -> Returned {
    let [_read, write] = pipe()?;
    for stream in 1..=3 {
        unsafe { call(SystemCall::Dup3, [number(write), stream, 0]) }?;
    }
    Ok(0)
}

/// `found()`: reports the touched pages to the template and ends the trial.
unsafe extern "C" fn report_touched(_: Environment, _: Information) -> Value {
    pages::report_touched();
    exit(0)
}

/// `serve(control, filters, born)`: 0 in each fork, its pid and 31 random bits in `born`; -1: no or too many filters.
unsafe extern "C" fn serve_forks(environment: Environment, information: Information) -> Value {
    let template = template();
    unsafe {
        let [control, filters, born] = arguments(environment, information);
        let mut rest = &*bytes(environment, filters);
        let mut count = 0;
        while let Some((length, code)) = rest.split_at_checked(4) {
            let length = u32::from_ne_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let Some((code, more)) = code.split_at_checked(8 * length) else {
                break;
            };
            if let (Some(filter), Ok(length)) = (template.filters.get_mut(count), u16::try_from(length)) {
                *filter = Filter {
                    length,
                    code: code.as_ptr().cast(),
                };
            }
            count += 1;
            rest = more;
        }
        if count == 0 || count > FILTERS_MAX {
            return result(environment, -1);
        }
        let setup = setup(integer(environment, control), count);
        allow_inheritance();
        record_descriptors();
        serve(setup);
        let born = bytes(environment, born);
        let pid = call(SystemCall::Getpid, []).unwrap_or(0) as u32;
        let mut random = [0; 4];
        fill(&mut random);
        random[3] &= 0x7f;
        if let Some((first, rest)) = born.split_at_mut_checked(4) {
            first.copy_from_slice(&pid.to_ne_bytes());
            if rest.len() >= 4 {
                rest[..4].copy_from_slice(&random);
            }
        }
        result(environment, 0)
    }
}

static mut SETUP: Setup = Setup {
    control: 0,
    filter_count: 0,
    filters: ptr::null(),
    whole: &raw const WHOLE_FORK,
};
static mut WHOLE_FORK: WholeFork = WholeFork {
    before: do_nothing,
    fork: fork_whole,
    in_parent: do_nothing,
    in_child,
};

fn setup(control: i32, count: usize) -> &'static Setup {
    unsafe {
        let setup = &mut *(&raw mut SETUP);
        setup.control = control;
        setup.filter_count = count as u32;
        setup.filters = template().filters.as_ptr();
        setup
    }
}

/// `confine(workspace)`: raises the last walls.
unsafe extern "C" fn confine_fork(environment: Environment, information: Information) -> Value {
    unsafe {
        let [path] = arguments(environment, information);
        let (mut text, mut length) = ([0; PATH_BYTES_MAX], 0);
        let failed =
            napi_get_value_string_utf8(environment, path, text.as_mut_ptr(), text.len(), &raw mut length);
        if failed != 0 || length + 1 >= PATH_BYTES_MAX {
            exit(1);
        }
        let workspace = if length == 0 { ptr::null() } else { text.as_ptr() };
        confine(&*(&raw const SETUP), workspace);
        result(environment, 0)
    }
}

/// `end(n)`: sets the exit status when JavaScript has ended; Node.js prints an error, if any, and ends the process.
unsafe extern "C" fn set_exit_status(environment: Environment, information: Information) -> Value {
    let [status] = unsafe { arguments(environment, information) };
    template().status = Some(number(unsafe { integer(environment, status) }));
    unsafe { result(environment, 0) }
}

/// `exit(n)`: exits at once.
unsafe extern "C" fn exit_now(environment: Environment, information: Information) -> Value {
    let [status] = unsafe { arguments(environment, information) };
    exit(number(unsafe { integer(environment, status) }))
}

/// Replaces the C library's: a fork exits when its main thread joins others in order to end, some of which it lacks.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_join(thread: Thread, result: *mut *mut c_void) -> c_int {
    type Join = unsafe extern "C" fn(Thread, *mut *mut c_void) -> c_int;
    unsafe {
        if let Some(status) = template().status
            && is_main_thread()
        {
            exit(status);
        }
        let join: Join = mem::transmute(dlsym(RTLD_NEXT, c"pthread_join".as_ptr()));
        join(thread, result)
    }
}

/// Replaces that of the C library: a fork does not wait for the task queue of V8's threads. Its mutex is the first one
/// on which another thread than the main one waits in the template.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cond_wait(condition: *mut u8, mutex: *mut c_void) -> c_int {
    type Wait = unsafe extern "C" fn(*mut u8, *mut c_void) -> c_int;
    /// Size of `pthread_cond_t`. In `node::TaskQueue` the number of unfinished tasks follows the condition that signals
    /// that it is 0.
    const CONDITION_BYTES: usize = 48;
    let template = template();
    unsafe {
        if template.is_fork && ptr::eq(mutex, template.tasks) {
            *condition.add(CONDITION_BYTES).cast::<i32>() = 0;
            return 0;
        }
        if template.tasks.is_null() && !is_main_thread() {
            template.tasks = mutex;
        }
        let wait: Wait = mem::transmute(dlsym(RTLD_NEXT, c"pthread_cond_wait".as_ptr()));
        wait(condition, mutex)
    }
}

fn is_main_thread() -> bool {
    unsafe { call(SystemCall::Gettid, []) == call(SystemCall::Getpid, []) }
}

/// Lets forks inherit all of this process's memory: V8 excludes its own.
fn allow_inheritance() {
    const MADV_DOFORK: usize = 11;
    pages::for_each_mapping(|mapping| {
        let Range { start, end } = mapping.pages;
        // The kernel's own mappings refuse it and do not need it.
        let _ = unsafe { call(SystemCall::Madvise, [start, end - start, MADV_DOFORK]) };
    });
}

const F_GETFD: usize = 1;
const F_SETFD: usize = 2;
/// First descriptor that does not belong to the sandbox.
const FIRST: usize = REPLY_NUMBER as usize + 1;
/// Upper limit of the descriptors of a template, which has about twenty.
const DESCRIPTORS_END: usize = 1024;

/// Records the descriptors of this template and clears their close-on-exec flag, by which a child recognises
/// descriptors that were made after its fork.
fn record_descriptors() {
    let template = template();
    (template.highest, template.event_count) = (FIRST, 0);
    fill_descriptor_gaps();
    for descriptor in FIRST..DESCRIPTORS_END {
        if unsafe { call(SystemCall::Fcntl, [descriptor, F_SETFD, 0]) }.is_err() {
            continue;
        }
        template.highest = descriptor;
        if is_event(descriptor)
            && let Some(event) = template.events.get_mut(template.event_count)
        {
            *event = descriptor as i32;
            template.event_count += 1;
        }
    }
}

/// Fills the gaps between descriptors, so that those of an order lie above the template's own.
fn fill_descriptor_gaps() {
    let is_open = |descriptor: &usize| unsafe { call(SystemCall::Fcntl, [*descriptor, F_GETFD]) }.is_ok();
    let highest = (FIRST..DESCRIPTORS_END).rev().find(is_open).unwrap_or(FIRST);
    let Ok(null) = open(c"/dev/null") else {
        exit(1);
    };
    loop {
        match unsafe { call(SystemCall::Dup, [number(null)]) } {
            Ok(filled) if filled < highest => {}
            Ok(above) => {
                close(above as i32);
                break;
            }
            Err(_) => exit(1),
        }
    }
    if number(null) > highest {
        close(null);
    }
}

fn is_event(descriptor: usize) -> bool {
    const NAME: &[u8] = b"anon_inode:[eventfd]";
    let mut path = *b"/proc/self/fd/0000\0";
    let mut rest = descriptor;
    for digit in path[14..18].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // `/proc` has the number without leading zeros.
    let zeros = path[14..17].iter().take_while(|digit| **digit == b'0').count();
    path.copy_within(14 + zeros.., 14);
    let mut target = [0_u8; NAME.len() + 1];
    let read = unsafe {
        call(
            SystemCall::Readlinkat,
            [
                0,
                address(path.as_ptr()),
                address(target.as_mut_ptr()),
                target.len(),
            ],
        )
    };
    read.is_ok_and(|length| target[..length] == *NAME)
}

extern "C" fn in_child() {
    template().is_fork = true;
    let mut random = [0_u8; RANDOM_BYTES];
    fill(&mut random);
    if let Some(seed) = template().seed {
        unsafe { seed(random.as_ptr().cast(), RANDOM_BYTES as c_int) };
    }
}

fn fill(random: &mut [u8]) {
    let filled = unsafe {
        call(
            SystemCall::Getrandom,
            [address(random.as_mut_ptr()), random.len(), 0],
        )
    };
    if filled != Ok(random.len()) {
        exit(1);
    }
}

/// Closes the descriptors of the template, including those shared with its other forks, and gives the loop its own.
pub unsafe fn reset_after_fork() -> Returned {
    const EFD_NONBLOCK: usize = 0o4000;
    let template = template();
    unsafe {
        close_from(template.highest + 1)?;
        if uv_loop_fork(template.event_loop) != 0 {
            return Err(u64::MAX);
        }
        for descriptor in FIRST..=template.highest {
            // Descriptors made since the fork are closed on exec.
            if call(SystemCall::Fcntl, [descriptor, F_GETFD]) != Ok(0) {
                continue;
            }
            if template.events[..template.event_count].contains(&(descriptor as i32)) {
                // When Node.js ends, it writes there to wake a thread that a fork lacks, and aborts if it cannot.
                let event = call(SystemCall::Eventfd2, [0, O_CLOEXEC | EFD_NONBLOCK])?;
                call(SystemCall::Dup3, [event, descriptor, O_CLOEXEC])?;
                close(event as i32);
            } else {
                close(descriptor as i32);
            }
        }
    }
    Ok(0)
}
