//! The writer's thread and the queue before it. It takes everything that waits into one transaction, so that under load
//! many entries share one commit. An entry that comes when nobody writes is written by the caller, because two changes of
//! thread take longer than a commit.

use super::{
    AuditError, Durability, Entry, Head, Opened, Page, Place, Query, Receipt,
    chain::{Chain, Writer},
    entry::{Fitted, NAME_BYTES_MAX, within},
    query,
};
use crate::Signer;
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

/// Entries that may wait.
const WAITING_MAX: usize = 1024;
/// Entries of one transaction.
const BATCH_MAX: usize = 256;
/// Records after which the log is moved into the database.
const CHECKPOINT_RECORDS: usize = 256;

type Done = Box<dyn FnOnce(Result<Receipt, AuditError>) + Send>;

struct Waiting {
    entry: Fitted,
    done: Done,
}

/// The audit record, open to be written. Clones share one writer; when the last is dropped, what waits is written and
/// the writer ends.
#[derive(Clone)]
pub struct Audit {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Arc<Queue>,
    chain: Arc<Mutex<Chain>>,
    thread: Option<JoinHandle<()>>,
    opened: Opened,
    place: Place,
    durability: Durability,
    unmoved: Arc<AtomicUsize>,
}

impl Audit {
    /// Opens the chain, or begins one. `server_id` stands in every record; 512 bytes at most.
    pub fn open(
        place: Place,
        durability: Durability,
        signer: Signer,
        server_id: String,
    ) -> Result<Self, AuditError> {
        within("server_id", &server_id, NAME_BYTES_MAX)?;
        let writer = Writer {
            public_key: signer.public_key(),
            signer,
            server_id,
            durability,
        };
        let (chain, opened) = Chain::open(place, writer)?;
        let place = chain.place().clone();
        let chain = Arc::new(Mutex::new(chain));
        let queue = Arc::new(Queue::default());
        let closing = Closing(queue.clone());
        let unmoved = Arc::new(AtomicUsize::new(0));
        let (chain_of_thread, unmoved_of_thread) = (chain.clone(), unmoved.clone());
        let thread = thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write(&closing.0, &chain_of_thread, &unmoved_of_thread))
            .map_err(|error| AuditError::of_io(&place.shown(), "starting its writer", &error))?;
        let shared = Shared {
            queue,
            chain,
            thread: Some(thread),
            opened,
            place,
            durability,
            unmoved,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Writes the entry here, or hands it to the writer. `done` is called once: here, when it is written or refused at once,
    /// or after the commit on the writer's thread. It must be short; everybody's entries wait for it.
    pub fn append(&self, entry: Entry, done: impl FnOnce(Result<Receipt, AuditError>) + Send + 'static) {
        let entry = match entry.fitted() {
            Ok(entry) => entry,
            Err(error) => return done(Err(error)),
        };
        if let Some(written) = self.shared.write_at_once(&entry) {
            return done(written);
        }
        let refused = self.shared.queue.push(Waiting {
            entry,
            done: Box::new(done),
        });
        if let Some((waiting, error)) = refused {
            (waiting.done)(Err(error));
        }
    }

    /// Hands the entry to the writer and waits for the commit.
    pub fn append_and_wait(&self, entry: Entry) -> Result<Receipt, AuditError> {
        if self.shared.is_writer() {
            return Err(AuditError::WouldWaitForItself);
        }
        let (tell, told) = mpsc::sync_channel(1);
        self.append(entry, move |result| {
            // the receiver waits below: it is there, and there is room for one
            if tell.send(result).is_err() {
                tracing::error!("nobody waits for an audit entry that was waited for");
            }
        });
        told.recv().unwrap_or(Err(AuditError::Stopped))
    }

    /// What opening found.
    pub fn opened(&self) -> &Opened {
        &self.shared.opened
    }

    /// A page of the record. A file is read beside the writer; a database in memory only between its commits.
    pub fn query(&self, query: &Query) -> Result<Page, AuditError> {
        match &self.shared.place {
            Place::File(path) => query::query(path, query),
            Place::Memory => {
                let chain = lock(&self.shared.chain);
                let connection = chain.connection().ok_or(AuditError::Stopped)?;
                query::page(connection, &self.shared.place.shown(), query)
            }
        }
    }

    /// Where the chain ended when this server last wrote or opened it. Worth noting elsewhere, for
    /// [`super::verify`] to look for later.
    pub fn head(&self) -> Head {
        lock(&self.shared.chain).head()
    }
}

impl Shared {
    /// None: somebody else writes, here or in another process, or the disk has to be waited for.
    fn write_at_once(&self, entry: &Fitted) -> Option<Result<Receipt, AuditError>> {
        if self.durability == Durability::Power || self.unmoved.load(Ordering::Relaxed) >= CHECKPOINT_RECORDS
        {
            return None;
        }
        let mut chain = self.chain.try_lock().ok()?;
        if !self.queue.is_idle() {
            return None;
        }
        let written = chain.append_unless_locked(entry)?;
        self.unmoved.fetch_add(1, Ordering::Relaxed);
        Some(written)
    }

    fn is_writer(&self) -> bool {
        let writer = self.thread.as_ref().map(|thread| thread.thread().id());
        writer == Some(thread::current().id())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.queue.close();
        // Dropped by a `done`: the thread ends by itself when it has written what waits.
        if self.is_writer() {
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the audit record's writer panicked");
        }
    }
}

/// What the writer's thread does until the queue is closed and empty.
fn write(queue: &Queue, chain: &Mutex<Chain>, unmoved: &AtomicUsize) {
    while let Some(batch) = queue.take() {
        let (entries, dones): (Vec<Fitted>, Vec<Done>) = batch
            .into_iter()
            .map(|waiting| (waiting.entry, waiting.done))
            .unzip();
        let appended = lock(chain).append(&entries);
        match appended {
            Ok(receipts) => {
                unmoved.fetch_add(receipts.len(), Ordering::Relaxed);
                dones
                    .into_iter()
                    .zip(receipts)
                    .for_each(|(done, receipt)| call(done, Ok(receipt)));
            }
            Err(error) => dones.into_iter().for_each(|done| call(done, Err(error.clone()))),
        }
        // after the callers were told, so that nobody's commit waits for it
        if unmoved.load(Ordering::Relaxed) >= CHECKPOINT_RECORDS {
            lock(chain).checkpoint();
            unmoved.store(0, Ordering::Relaxed);
        }
    }
}

/// A callback that panics ends itself only.
fn call(done: Done, result: Result<Receipt, AuditError>) {
    if catch_unwind(AssertUnwindSafe(|| done(result))).is_err() {
        tracing::error!("a callback of the audit record panicked");
    }
}

fn lock(chain: &Mutex<Chain>) -> MutexGuard<'_, Chain> {
    chain.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Queue {
    line: Mutex<Line>,
    more: Condvar,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    closed: bool,
    /// The writer sleeps; nobody else pays for waking it.
    asleep: bool,
}

impl Queue {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what it does not take.
    fn push(&self, waiting: Waiting) -> Option<(Waiting, AuditError)> {
        let mut line = self.line();
        if line.closed {
            return Some((waiting, AuditError::Stopped));
        }
        if line.waiting.len() >= WAITING_MAX {
            return Some((waiting, AuditError::Overloaded));
        }
        line.waiting.push_back(waiting);
        let wake = std::mem::take(&mut line.asleep);
        drop(line);
        if wake {
            self.more.notify_one();
        }
        None
    }

    /// Everything that waits, up to one batch. None: closed and empty.
    fn take(&self) -> Option<Vec<Waiting>> {
        let mut line = self.line();
        while line.waiting.is_empty() {
            if line.closed {
                return None;
            }
            line.asleep = true;
            line = self.more.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        line.asleep = false;
        let count = line.waiting.len().min(BATCH_MAX);
        Some(line.waiting.drain(..count).collect())
    }

    /// Nothing waits, and it is open.
    fn is_idle(&self) -> bool {
        let line = self.line();
        line.waiting.is_empty() && !line.closed
    }

    fn close(&self) {
        self.line().closed = true;
        self.more.notify_all();
    }
}

/// Held by the thread: however it ends, nobody waits for it afterwards.
struct Closing(Arc<Queue>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
        let left = std::mem::take(&mut self.0.line().waiting);
        left.into_iter()
            .for_each(|waiting| call(waiting.done, Err(AuditError::Stopped)));
    }
}
