//! Orders of the server to a running sandbox.

use super::Sandbox;
use crate::{
    EgressSpec,
    attach::Target,
    wire::{self, Cause, Event, Failure, InitOrder, Order},
};
use ringfence_sys::wait;
use ringfence_types::Limits;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

/// Time for pid 1 to confirm interrupts.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(1);

impl Sandbox<'_> {
    /// Handles one order of the server. An order that is not for a running program cancels it, as does a hang-up.
    pub(super) fn handle_order(&mut self, server: BorrowedFd<'_>) -> Result<Option<Cause>, Failure> {
        match wire::receive::<Order>(server) {
            Ok(Some((Order::Interrupt, _))) => self.interrupt(),
            Ok(Some((Order::Account(number), _))) => {
                if let Some(cause) = self.wait_for_interrupts(server)? {
                    return Ok(Some(cause));
                }
                // A lost server is noticed at the next receive.
                drop(wire::send(server, &Event::Account(number, self.used()), &[]));
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

    /// Waits until pid 1 has sent all interrupts of a call that is over: a late one would hit the next call.
    fn wait_for_interrupts(&mut self, server: BorrowedFd<'_>) -> Result<Option<Cause>, Failure> {
        let by = Instant::now() + INTERRUPT_TIMEOUT;
        while self.interrupts > 0 {
            let left = by.saturating_duration_since(Instant::now());
            match wait::readable([Some(self.link.as_fd())], Some(left)) {
                Ok([true]) => match self.receive_event(server)? {
                    None => {}
                    cause => return Ok(cause),
                },
                _ => self.interrupts = 0,
            }
        }
        Ok(None)
    }
}
