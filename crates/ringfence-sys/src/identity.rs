//! Identity of a process: ids, groups, capabilities and `no_new_privs`.

use rustix::thread::{self, CapabilitySet, CapabilitySets, Gid, Uid};
use std::io;

/// Sets the real, effective, saved and file-system uid and gid. Capabilities in the own user namespace are kept.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    thread::set_keep_capabilities(true)?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    thread::set_thread_res_gid(gid, gid, gid)?;
    thread::set_thread_res_uid(uid, uid, uid)?;
    // The change of uid has cleared the effective set; permitted capabilities are raised again.
    let mut sets = thread::capabilities(None)?;
    sets.effective = sets.permitted;
    Ok(thread::set_capabilities(None, sets)?)
}

pub fn clear_groups() -> io::Result<()> {
    Ok(thread::set_thread_groups(&[])?)
}

pub fn effective_ids() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

/// True if this capability (by number) is in the effective set.
pub fn has_capability(number: u32) -> bool {
    thread::capabilities(None).is_ok_and(|sets| sets.effective.bits() & (1_u64 << number) != 0)
}

/// `CAP_SETFCAP`, which root needs to map itself into a user namespace (user_namespaces(7), since Linux 5.12).
pub const CAP_SETFCAP: u32 = 31;
pub const CAP_SYS_ADMIN: u32 = 21;

/// Empties the bounding, ambient, inheritable, permitted and effective sets. The bounding set goes first, since that
/// needs a capability; a process without `CAP_SETPCAP` keeps its bounding set, which `no_new_privs` makes harmless.
pub fn drop_all_capabilities() -> io::Result<()> {
    if has_capability(8) {
        for number in 0..64_u64 {
            let one = CapabilitySet::from_bits_retain(1 << number);
            match thread::remove_capability_from_bounding_set(one) {
                Err(rustix::io::Errno::INVAL) => break, // past the last capability of this kernel
                dropped => dropped?,
            }
        }
    }
    drop_own_capabilities()
}

/// Empties all sets but the bounding set, which matters only on exec: for a process that neither executes a program nor
/// forks one that does.
pub fn drop_own_capabilities() -> io::Result<()> {
    thread::clear_ambient_capability_set()?;
    keep(CapabilitySet::empty())
}

fn keep(kept: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: kept,
    };
    Ok(thread::set_capabilities(None, sets)?)
}

/// Drops every capability but this one, which programs that this process executes keep (ambient set).
pub fn keep_one_capability(number: u32) -> io::Result<()> {
    let one = CapabilitySet::from_bits_retain(1 << number);
    keep(one)?;
    Ok(thread::configure_capability_in_ambient_set(one, true)?)
}

/// Sets `no_new_privs`: no exec can give this process or its children more privileges.
pub fn set_no_new_privileges() -> io::Result<()> {
    Ok(thread::set_no_new_privs(true)?)
}

pub fn set_host_name(name: &str) -> io::Result<()> {
    Ok(rustix::system::sethostname(name.as_bytes())?)
}
