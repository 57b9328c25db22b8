//! The tables: every group of calls with the reason for it. `libc` is used for the numbers only; those that it does not
//! have are written out, and are the same on every architecture from 424 on.

#[derive(Debug)]
pub struct CallGroup {
    pub why: &'static str,
    pub calls: &'static [Call],
}

/// A system call's name, with the prefix that `libc` gives it, and its number.
pub type Call = (&'static str, i64);

macro_rules! group {
    ($why:literal: $($call:ident $(= $number:literal)?)*) => {
        CallGroup { why: $why, calls: &[$((stringify!($call), group!(@ $call $($number)?))),*] }
    };
    (@ $call:ident) => { libc::$call };
    (@ $call:ident $number:literal) => { $number };
}

#[rustfmt::skip]
pub(super) const COMPUTING: &[Call] = group!("reading, writing, memory, clocks, the end":
    SYS_read SYS_write SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_brk SYS_futex SYS_clock_gettime
    SYS_getrandom SYS_rt_sigreturn SYS_rt_sigaction SYS_rt_sigprocmask SYS_sigaltstack SYS_exit SYS_exit_group).calls;

/// Beside computing, the calls of pid 1 of a sandbox whose program a template forks.
#[rustfmt::skip]
pub(super) const INIT: &[Call] = group!("the claim and its files, the workspace's rule, the supervisor, ended processes":
    SYS_sendmsg SYS_recvmsg SYS_ppoll SYS_pread64 SYS_pwrite64 SYS_close SYS_openat SYS_openat2 SYS_mkdirat SYS_fstat
    SYS_newfstatat SYS_statx SYS_landlock_add_rule SYS_signalfd4 SYS_wait4 SYS_getpid SYS_kill SYS_restart_syscall).calls;

/// Allowed in every profile; those marked "by argument" only with the arguments of [`super::arguments`].
#[rustfmt::skip]
pub(super) const ALLOWED: &[CallGroup] = &[
    // files
    group!("reading and writing what is open: every program":
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2
        SYS_lseek),
    group!("copying without a detour through the program: cp, cat, shutil, web servers":
        SYS_sendfile SYS_splice SYS_tee SYS_copy_file_range SYS_readahead SYS_fadvise64),
    group!("descriptors and pipes: shells, subprocess":
        SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_fcntl SYS_pipe2),
    group!("terminals and descriptor modes, by argument: isatty, stty, event loops":
        SYS_ioctl),
    group!("locks and data safe on disk: sqlite, git, package managers":
        SYS_flock SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_ftruncate SYS_truncate SYS_fallocate),
    group!("files by path, as mounts and Landlock allow: every program":
        SYS_openat SYS_openat2 SYS_newfstatat SYS_fstat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2
        SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_umask),
    group!("making, moving and removing own files: coreutils, tempfile, git":
        SYS_mkdirat SYS_unlinkat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_utimensat),
    group!("FIFOs and plain files, by argument: mkfifo":
        SYS_mknodat),
    group!("permissions and owners of own files: tar, git, pip":
        SYS_fchmod SYS_fchmodat SYS_fchmodat2 = 452 SYS_fchown SYS_fchownat),
    group!("extended attributes of own files: cp -a, ls, tar":
        SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr
        SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr),

    // memory
    group!("memory, by argument: every program":
        SYS_mmap),
    group!("own memory: allocators, JIT compilers, the loader":
        SYS_munmap SYS_mprotect SYS_mremap SYS_brk SYS_madvise SYS_mincore SYS_msync SYS_mlock SYS_mlock2 SYS_munlock
        SYS_mlockall SYS_munlockall SYS_mseal SYS_map_shadow_stack = 453),
    group!("memory barriers and protection keys: Node, Go, Java":
        SYS_membarrier SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect),
    group!("placement of own memory, which cannot be changed: numpy, OpenMP":
        SYS_get_mempolicy),

    // processes
    group!("processes and threads, by argument: every shell, every runtime":
        SYS_clone),
    group!("starting, ending and waiting for processes: every program":
        SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid),
    group!("per-thread set-up of the C library":
        SYS_set_tid_address SYS_set_robust_list SYS_get_robust_list SYS_rseq),
    group!("waiting for locks: every threaded program":
        SYS_futex SYS_futex_waitv),
    group!("own ids: every program":
        SYS_getpid SYS_getppid SYS_gettid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid
        SYS_getgroups SYS_capget),
    group!("process groups and sessions: job control in shells":
        SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid),
    group!("changing to the only user and group inside, which are the caller's own: tar, setpriv":
        SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setfsuid SYS_setfsgid
        SYS_setgroups SYS_capset),
    group!("sending signals; the pid namespace and Landlock decide to whom: kill, timeout, subprocess":
        SYS_kill SYS_tkill SYS_tgkill SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo),
    group!("receiving signals: every runtime":
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigsuspend SYS_rt_sigtimedwait
        SYS_sigaltstack SYS_restart_syscall SYS_signalfd4),
    group!("own name, dumps, death signal, by argument: every runtime":
        SYS_prctl),
    group!("querying the personality, by argument: the loader, uname":
        SYS_personality),
    group!("limits, which only go down: ulimit, resource, Go":
        SYS_prlimit64 SYS_getrusage),
    group!("priorities, which only go down: nice, ionice":
        SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set),
    group!("querying the scheduler: nproc, os.cpu_count, thread pools":
        SYS_sched_yield SYS_sched_getaffinity SYS_sched_getparam SYS_sched_getscheduler SYS_sched_getattr
        SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_rr_get_interval SYS_getcpu),
    group!("becoming a batch or idle thread, by argument: pthread_create with attributes, compilers":
        SYS_sched_setscheduler),
    group!("walls that a program puts up around itself; filters of its own are refused: Landlock, browsers":
        SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self),

    // time, events, facts
    group!("reading clocks: every program":
        SYS_clock_gettime SYS_clock_getres SYS_gettimeofday SYS_times),
    group!("sleeping and timers: sleep, timeout, event loops":
        SYS_clock_nanosleep SYS_nanosleep SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime
        SYS_timer_getoverrun SYS_timer_delete SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime),
    group!("waiting for events: asyncio, libuv, tokio":
        SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2),
    group!("facts about the system: uname, free, every runtime":
        SYS_uname SYS_sysinfo),
    group!("randomness: every runtime":
        SYS_getrandom),

    // sockets
    group!("sockets, by argument: asyncio, servers under test, package managers":
        SYS_socket SYS_socketpair SYS_setsockopt),
    group!("using a socket, as far as the network namespace reaches: as above":
        SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_getsockname SYS_getpeername SYS_sendto SYS_recvfrom
        SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_getsockopt SYS_shutdown),

    #[cfg(target_arch = "x86_64")]
    group!("older forms of calls above: C libraries on x86-64":
        SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents SYS_rename SYS_mkdir SYS_rmdir SYS_link
        SYS_unlink SYS_symlink SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat SYS_pipe SYS_dup2
        SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd SYS_alarm SYS_pause
        SYS_time SYS_fork SYS_vfork SYS_getpgrp),
    #[cfg(target_arch = "x86_64")]
    group!("FIFOs and plain files, the older form, by argument: mkfifo":
        SYS_mknod),
    #[cfg(target_arch = "x86_64")]
    group!("address of thread-local memory: the C library":
        SYS_arch_prctl),
    group!("older forms of calls above: C libraries":
        SYS_getrlimit SYS_setrlimit SYS_renameat),
];

/// Allowed where a cgroup counts memory. Elsewhere the pages would be in no process's resident set, where no sample of
/// the tree finds them.
#[rustfmt::skip]
pub(super) const COUNTED: &[CallGroup] = &[
    group!("memory without a path, by argument: JIT compilers, wayland clients, os.memfd_create":
        SYS_memfd_create),
    group!("pages shared with a pipe, which may be huge ones where the pipe counts four kilobytes: splice without a copy":
        SYS_vmsplice),
];

/// Allowed in a private ipc namespace, where a cgroup counts memory. Elsewhere the objects belong to the host and
/// outlive the run, or are not counted (one call can make 32,000 semaphores, that is 2 MB of the kernel's memory).
#[rustfmt::skip]
pub(super) const OWN_COUNTED_IPC: &[CallGroup] = &[
    group!("System V shared memory, by argument: PostgreSQL, X11 clients":
        SYS_shmget SYS_shmat SYS_shmdt SYS_shmctl),
    group!("System V semaphores and message queues: fakeroot, PHP":
        SYS_semget SYS_semop SYS_semctl SYS_semtimedop SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl),
];

/// Answered EPERM for any arguments.
#[rustfmt::skip]
pub const REFUSED: &[CallGroup] = &[
    group!("reaches into other processes":
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_kcmp),
    group!("puts code into the kernel":
        SYS_bpf SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_kexec_file_load),
    group!("reads kernel state, or has the kernel watch others":
        SYS_perf_event_open SYS_syslog SYS_lookup_dcookie),
    group!("page faults handled by the program: used by many kernel exploits":
        SYS_userfaultfd),
    group!("memory that is hidden from the count":
        SYS_memfd_secret = 447),
    group!("the kernel's key store, which no namespace isolates":
        SYS_add_key SYS_request_key SYS_keyctl),
    group!("mounts and roots":
        SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot),
    group!("mounts, by the newer calls":
        SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_open_tree SYS_open_tree_attr = 467 SYS_move_mount
        SYS_mount_setattr SYS_statmount = 457 SYS_listmount = 458),
    group!("namespaces; `clone` is by argument and `clone3` absent":
        SYS_setns SYS_unshare),
    group!("quotas and swap of the host":
        SYS_quotactl SYS_quotactl_fd SYS_swapon SYS_swapoff),
    group!("files by handle, which bypass every rule on paths":
        SYS_open_by_handle_at SYS_name_to_handle_at),
    group!("watches a whole file system":
        SYS_fanotify_init SYS_fanotify_mark),
    group!("clocks of the host":
        SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex),
    group!("the machine itself":
        SYS_reboot SYS_acct SYS_vhangup SYS_sethostname SYS_setdomainname),
    group!("moves memory between nodes, of oneself and of others":
        SYS_move_pages SYS_migrate_pages SYS_mbind SYS_set_mempolicy SYS_set_mempolicy_home_node = 450),
    group!("processors: where no cgroup limits time, affinity is the limit":
        SYS_sched_setaffinity),
    group!("schedulers by a pointer, which may hide realtime; `sched_setscheduler` is by argument":
        SYS_sched_setattr SYS_sched_setparam),
    #[cfg(target_arch = "x86_64")]
    group!("ports and segments of the processor":
        SYS_iopl SYS_ioperm SYS_modify_ldt),
];

/// Answered with success, and not made.
#[rustfmt::skip]
pub const NO_OP: &[CallGroup] = &[
    group!("flushes all disks of the host; fsync flushes one file":
        SYS_sync SYS_syncfs),
];

/// Absent on purpose: answered ENOSYS, like every number that is in no table, so that libraries fall back to calls that
/// are allowed. Listed for their names and reasons only.
#[rustfmt::skip]
pub const ABSENT: &[CallGroup] = &[
    group!("POSIX message queues, whose bytes are counted by user, for all sandboxes of a server together":
        SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr),
    group!("its flags hide behind a pointer; C libraries fall back to clone":
        SYS_clone3),
    group!("a second table of calls that no filter sees; libuv and tokio fall back to epoll":
        SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register),
    group!("handles to processes; asyncio, Go and Rust fall back to signals and waitid":
        SYS_pidfd_open SYS_pidfd_getfd SYS_pidfd_send_signal SYS_process_mrelease),
    group!("watches of files that are the host's too would reveal what others open and start; watchers fall back to polling":
        SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch),
    #[cfg(target_arch = "x86_64")]
    group!("the older form of the same":
        SYS_inotify_init),
    group!("asynchronous i/o of the old kind; databases fall back to threads":
        SYS_io_setup SYS_io_destroy SYS_io_getevents SYS_io_submit SYS_io_cancel),
    group!("newer forms of calls that are allowed; C libraries fall back to those":
        SYS_cachestat = 451 SYS_futex_wake = 454 SYS_futex_wait = 455 SYS_futex_requeue = 456 SYS_setxattrat = 463
        SYS_getxattrat = 464 SYS_listxattrat = 465 SYS_removexattrat = 466 SYS_file_getattr = 468 SYS_file_setattr = 469),
    group!("security modules and namespaces listed by the kernel: tools of the host":
        SYS_lsm_get_self_attr = 459 SYS_lsm_set_self_attr = 460 SYS_lsm_list_modules = 461 SYS_listns = 470),
    group!("superseded and unused":
        SYS_remap_file_pages SYS_nfsservctl),
    #[cfg(target_arch = "x86_64")]
    group!("asynchronous i/o of the old kind, on this architecture":
        SYS_io_pgetevents = 333),
    #[cfg(target_arch = "x86_64")]
    group!("called by the kernel's own trampolines, for which newer kernels skip every filter; other callers get a signal":
        SYS_uretprobe = 335 SYS_uprobe = 336),
    #[cfg(target_arch = "x86_64")]
    group!("segments of 32-bit programs":
        SYS_set_thread_area SYS_get_thread_area),
    #[cfg(target_arch = "x86_64")]
    group!("numbers that this kernel keeps for calls that are gone":
        SYS_uselib SYS_ustat SYS_sysfs SYS__sysctl SYS_getpmsg SYS_putpmsg SYS_afs_syscall SYS_tuxcall SYS_security
        SYS_epoll_ctl_old SYS_epoll_wait_old SYS_vserver SYS_create_module = 174 SYS_get_kernel_syms = 177
        SYS_query_module = 178),
    #[cfg(target_arch = "aarch64")]
    group!("asynchronous i/o of the old kind, on this architecture":
        SYS_io_pgetevents = 292),
];
