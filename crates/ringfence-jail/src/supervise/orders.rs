//! Orders of the server to a running sandbox.

use super::Sandbox;
use crate::{
    EgressSpec,
    attach::Target,
    quota::Pending,
    wire::{self, Cause, Event, Failure, InitOrder, Order},
};
use ringfence_sys::channel;
use ringfence_types::Limits;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

/// Time for pid 1 to confirm interrupts. The server waits longer for an account.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(2);

/// An account that waits until pid 1 has sent all interrupts of a call that is over: a late one would hit the next
/// call.
pub(super) struct PendingAccount {
    number: u64,
    pub(super) by: Instant,
}

/// Returns the next order, without taking it. A server that is gone wants the end.
fn pending(server: BorrowedFd<'_>) -> Pending {
    let mut buffer = [0; 64];
    match channel::peek(server, &mut buffer) {
        Ok(0) => Pending::End,
        Ok(length) => match wire::decode(&buffer[..length]) {
            Ok(Order::Cancel) => Pending::End,
            Ok(Order::Interrupt) => Pending::Interrupt,
            _ => Pending::Other,
        },
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Pending::Other,
        Err(_) => Pending::End,
    }
}

/// Makes a look at the orders for walks of a directory, for which they would have to wait.
pub(super) fn look(server: BorrowedFd<'_>) -> io::Result<Box<dyn Fn() -> Pending>> {
    let server = server.try_clone_to_owned()?;
    Ok(Box::new(move || pending(server.as_fd())))
}

impl Sandbox<'_> {
    /// Handles one order of the server. An order that is not for a running program cancels it, as does a hang-up.
    pub(super) fn handle_order(&mut self, server: BorrowedFd<'_>) -> Result<Option<Cause>, Failure> {
        match wire::receive::<Order>(server) {
            Ok(Some((Order::Interrupt, _))) => self.interrupt(),
            Ok(Some((Order::Account(number), _))) => {
                let by = Instant::now() + INTERRUPT_TIMEOUT;
                self.pending_account = Some(PendingAccount { number, by });
            }
            Ok(Some((Order::Share { cpu_millicores }, _))) => self.share(cpu_millicores)?,
            Ok(Some((Order::Layer(layer), _))) => {
                let event = match Target::attach_layer(self.target.as_ref(), &layer) {
                    Ok(()) => Event::Layered,
                    Err(failure) => Event::NotLayered(failure),
                };
                drop(wire::send(server, &event, &[]));
            }
            Ok(Some((Order::Egress(spec), _))) => self.open_egress(&spec, server),
            _ => return Ok(Some(Cause::Cancelled)),
        }
        Ok(None)
    }

    fn open_egress(&self, spec: &EgressSpec, server: BorrowedFd<'_>) {
        drop(match Target::open_egress(self.target.as_ref(), spec) {
            Ok(sockets) => {
                let handed: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
                wire::send(server, &Event::EgressOpened, &handed)
            }
            Err(failure) => wire::send(server, &Event::EgressNotOpened(failure), &[]),
        });
    }

    fn share(&mut self, cpu_millicores: u32) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::new("share of the processors", &error);
        let none = || failed(io::Error::from(io::ErrorKind::Unsupported));
        let cgroup = self.cgroup.as_ref().ok_or_else(none)?;
        let limits = Limits {
            cpu_millicores,
            ..self.limits.clone()
        };
        cgroup.adjust(&self.limits, &limits).map_err(failed)?;
        self.limits = limits;
        Ok(())
    }

    /// Interrupts the program. If it has ended meanwhile, its end is reported.
    fn interrupt(&mut self) {
        match &self.forked {
            Some(forked) => drop(forked.interrupt()),
            None => {
                let sent = wire::send(self.link.as_fd(), &InitOrder::Interrupt, &[]);
                self.interrupts += u32::from(sent.is_ok());
            }
        }
    }

    /// Sends the account that waits, if it is due.
    pub(super) fn send_account(&mut self, server: BorrowedFd<'_>) {
        let is_due = |account: &mut PendingAccount| self.interrupts == 0 || Instant::now() >= account.by;
        if let Some(account) = self.pending_account.take_if(is_due) {
            self.interrupts = 0;
            let event = Event::Account(account.number, self.used());
            // A lost server is noticed at the next receive.
            drop(wire::send(server, &event, &[]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_or_an_interrupt_is_urgent() {
        let (server, ours) = channel::pair().unwrap();
        let look = look(ours.as_fd()).unwrap();
        assert!(matches!(look(), Pending::Other));
        let orders = [Order::Account(1), Order::Interrupt, Order::Cancel];
        let found = orders.map(|order| {
            wire::send(server.as_fd(), &order, &[]).unwrap();
            let found = look();
            wire::receive::<Order>(ours.as_fd()).unwrap();
            found
        });
        assert!(matches!(
            found,
            [Pending::Other, Pending::Interrupt, Pending::End]
        ));
        drop(server);
        assert!(matches!(look(), Pending::End));
    }
}
