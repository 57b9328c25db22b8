//! What the server may ask of a program that runs.

use super::Sandbox;
use crate::{
    forked::Forked,
    layer::Shelf,
    way_out::{Gate, Opening, WayOut},
    wire::{self, Cause, Event, Failure, InitOrder, Order},
};
use ringfence_sys::process::{self, Kill};
use ringfence_types::Limits;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

impl Sandbox<'_> {
    /// One order of the server. Whatever is none of a running program's means that it is wanted no more.
    pub(super) fn obey(&mut self, server: BorrowedFd<'_>) -> Result<Option<Cause>, Failure> {
        match wire::receive::<Order>(server) {
            Ok(Some((Order::Interrupt, _))) => self.interrupt(),
            // A server that is gone shows when it is listened to.
            Ok(Some((Order::Account(number), _))) => {
                drop(wire::send(server, &Event::Account(number, self.used()), &[]));
            }
            Ok(Some((Order::Share { cpu_millicores }, _))) => self.share(cpu_millicores)?,
            Ok(Some((Order::Layer(layer), _))) => {
                let event = match Shelf::attach(self.shelf.as_ref(), &layer) {
                    Ok(()) => Event::Layered,
                    Err(failure) => Event::NotLayered(failure),
                };
                drop(wire::send(server, &event, &[]));
            }
            Ok(Some((Order::WayOut(opening, way), _))) => self.open_way_out(opening, &way, server),
            _ => return Ok(Some(Cause::Cancelled)),
        }
        Ok(None)
    }

    /// A server that is gone shows when it is listened to.
    fn open_way_out(&self, opening: Opening, way: &WayOut, server: BorrowedFd<'_>) {
        let opened = match opening {
            Opening::First => Gate::open(self.gate.as_ref(), way),
            Opening::More => Gate::widen(self.gate.as_ref(), way),
        };
        drop(match opened {
            Ok(sockets) => {
                let handed: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
                wire::send(server, &Event::WayOut, &handed)
            }
            Err(failure) => wire::send(server, &Event::NoWayOut(failure), &[]),
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

    /// A program that has ended meanwhile is told by its end.
    fn interrupt(&self) {
        drop(match self.forked.as_ref().and_then(Forked::process) {
            Some(fork) => process::kill_group_of(fork, Kill::Interrupt),
            None => wire::send(self.link.as_fd(), &InitOrder::Interrupt, &[]),
        });
    }
}
