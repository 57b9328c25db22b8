//! The tables: every group of calls with the reason why it is there. `libc` is used for the numbers only.

/// Calls that share a reason.
pub(super) struct Group {
    /// Why.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader, and for the golden table"))]
    pub(super) why: &'static str,
    /// Name and number.
    pub(super) calls: &'static [(&'static str, i64)],
}

macro_rules! group {
    ($why:literal: $($call:ident)*) => {
        Group { why: $why, calls: &[$((stringify!($call), libc::$call)),*] }
    };
}

/// Let through whatever the arguments (some are refused by argument in [`super::arguments`]).
#[rustfmt::skip]
pub(super) const ALLOWED: &[Group] = &[
    group!("reading and writing what is open":
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2
        SYS_lseek SYS_sendfile SYS_splice SYS_tee SYS_vmsplice SYS_copy_file_range SYS_readahead SYS_fadvise64),
    group!("descriptors: every program; ioctl and fcntl by argument":
        SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_fcntl SYS_ioctl SYS_pipe2 SYS_flock),
    group!("making data safe on disk: databases, editors, git":
        SYS_fsync SYS_fdatasync SYS_sync SYS_syncfs SYS_sync_file_range SYS_ftruncate SYS_truncate SYS_fallocate),
    group!("files by path; the mounts and Landlock decide which":
        SYS_openat SYS_openat2 SYS_newfstatat SYS_fstat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2
        SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_mkdirat SYS_unlinkat SYS_renameat2 SYS_linkat
        SYS_symlinkat SYS_readlinkat SYS_mknodat SYS_umask SYS_utimensat),
    group!("permissions and owners of own files: tar, git, installers":
        SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_fchown SYS_fchownat),
    group!("extended attributes of own files: cp -a, tar":
        SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr
        SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr),
    group!("memory of the own process: allocators, JIT compilers, the loader":
        SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_brk SYS_madvise SYS_mincore SYS_msync SYS_mlock SYS_mlock2
        SYS_munlock SYS_mlockall SYS_munlockall SYS_membarrier SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect
        SYS_get_mempolicy SYS_mseal),
    group!("making and awaiting processes and threads; clone by argument":
        SYS_clone SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_set_tid_address
        SYS_set_robust_list SYS_get_robust_list SYS_rseq),
    group!("locks: every threaded program":
        SYS_futex SYS_futex_waitv),
    group!("who am I, who is my parent: every program; there is no other identity to take":
        SYS_getpid SYS_getppid SYS_gettid SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid SYS_getuid SYS_geteuid SYS_getgid
        SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_setuid SYS_setgid SYS_setreuid SYS_setregid
        SYS_setresuid SYS_setresgid SYS_setfsuid SYS_setfsgid SYS_setgroups SYS_capget SYS_capset),
    group!("signals: shells, runtimes; the pid namespace and Landlock decide to whom":
        SYS_kill SYS_tkill SYS_tgkill SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending
        SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_sigaltstack
        SYS_restart_syscall SYS_signalfd4),
    group!("clocks and timers; none can be set":
        SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_gettimeofday SYS_nanosleep SYS_getitimer SYS_setitimer
        SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete SYS_timerfd_create
        SYS_timerfd_settime SYS_timerfd_gettime SYS_times),
    group!("waiting for events: event loops":
        SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
        SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch),
    group!("sockets of the families in `arguments::sockets`; the network namespace decides where they lead":
        SYS_socket SYS_socketpair SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_getsockname SYS_getpeername
        SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_setsockopt SYS_getsockopt
        SYS_shutdown),
    group!("semaphores and message queues in the own ipc namespace":
        SYS_semget SYS_semop SYS_semctl SYS_semtimedop SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_mq_open
        SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr),
    group!("limits and scheduling, downwards only by the kernel's rule; prctl and schedulers by argument":
        SYS_prlimit64 SYS_getrusage SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set SYS_sched_yield
        SYS_sched_getaffinity SYS_sched_getparam SYS_sched_getscheduler SYS_sched_setscheduler SYS_sched_get_priority_max
        SYS_sched_get_priority_min SYS_sched_rr_get_interval SYS_sched_getattr SYS_getcpu SYS_prctl SYS_personality),
    group!("facts about the system: every runtime":
        SYS_uname SYS_sysinfo SYS_getrandom),
    group!("walls that a program puts up around itself: browsers, sandboxes in the sandbox":
        SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self),
    #[cfg(target_arch = "x86_64")]
    group!("the older forms of the above, still used by libraries on x86-64":
        SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_pipe SYS_poll SYS_select SYS_dup2 SYS_fork SYS_vfork SYS_rename
        SYS_mkdir SYS_rmdir SYS_link SYS_unlink SYS_symlink SYS_readlink SYS_chmod SYS_chown SYS_lchown SYS_getdents
        SYS_utime SYS_utimes SYS_futimesat SYS_mknod SYS_epoll_create SYS_epoll_wait SYS_inotify_init SYS_eventfd
        SYS_signalfd SYS_alarm SYS_pause SYS_time SYS_getpgrp SYS_getrlimit SYS_setrlimit SYS_renameat SYS_arch_prctl),
    #[cfg(target_arch = "aarch64")]
    group!("the older forms of the above, still used by libraries on aarch64":
        SYS_getrlimit SYS_setrlimit SYS_renameat),
];

/// Let through only where a cgroup counts memory: otherwise its pages would be in nobody's resident set.
#[rustfmt::skip]
pub(super) const COUNTED_MEMORY: &[Group] = &[
    group!("memory without a path: wayland clients, JIT compilers, databases":
        SYS_memfd_create SYS_shmget SYS_shmat SYS_shmdt SYS_shmctl),
];

/// Answered "not permitted", whatever the arguments. Everything else that is not allowed answers "no such call".
#[rustfmt::skip]
pub(super) const REFUSED: &[Group] = &[
    group!("reaching into other processes":
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_kcmp),
    group!("code in the kernel, and looking into it":
        SYS_bpf SYS_perf_event_open SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_syslog
        SYS_lookup_dcookie),
    group!("page faults held open by the program: the lever of many kernel exploits":
        SYS_userfaultfd),
    group!("the kernel's key store, which no namespace divides":
        SYS_add_key SYS_request_key SYS_keyctl),
    group!("mounts, by the old calls and the new":
        SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_open_tree
        SYS_move_mount SYS_mount_setattr SYS_quotactl SYS_quotactl_fd SYS_swapon SYS_swapoff),
    group!("namespaces; clone by argument, clone3 answers ENOSYS because its flags cannot be seen":
        SYS_setns SYS_unshare),
    group!("files by handle, which pass by every path rule":
        SYS_open_by_handle_at SYS_name_to_handle_at),
    group!("watching the whole file system":
        SYS_fanotify_init SYS_fanotify_mark),
    group!("the machine itself":
        SYS_reboot SYS_acct SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex SYS_sethostname
        SYS_setdomainname SYS_vhangup),
    group!("moving memory between nodes, of oneself and others":
        SYS_move_pages SYS_migrate_pages SYS_mbind SYS_set_mempolicy),
    group!("processors: the share of a sandbox is its affinity where no cgroup divides time":
        SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam),
    #[cfg(target_arch = "x86_64")]
    group!("ports and segments of the processor":
        SYS_iopl SYS_ioperm SYS_modify_ldt SYS_kexec_file_load),
];
