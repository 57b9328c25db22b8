//! The writer's thread and its queue. Each batch is one transaction, so that under load many entries share a commit. An
//! entry for an idle writer is written by the caller, because two changes of thread take longer than a commit.
//!
//! Slots in the queue are shared: a namespace gets at most as many as it leaves free, so that a flood from one
//! namespace does not take the slots of another. A run reserves the slots for its records before it begins.

use super::{
    AuditError, Durability, Entry, Head, Keep, Outcome, Page, Query, Receipt, Record, Storage,
    alive::{self, LivenessLock},
    chain::Writer,
    entry::{Encoded, NAME_BYTES_MAX, within},
    location::{self, with_suffix},
    open_chain::OpenChain,
    query,
};
use crate::{Signer, whole_file::FileLock};
use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

/// Maximum queued entries plus reserved slots.
pub(super) const SLOTS_MAX: usize = 32 << 10;
const BATCH_MAX: usize = 256;
/// Records after which the log is moved into the database.
const CHECKPOINT_RECORDS: usize = 256;

type Callback = Box<dyn FnOnce(Result<Receipt, AuditError>) + Send>;

struct QueuedEntry {
    entry: Encoded,
    done: Callback,
}

impl QueuedEntry {
    fn namespace(&self) -> &str {
        &self.entry.entry.namespace
    }
}

/// Reserved queue slots for later entries of one namespace. Unused slots are released on drop.
pub struct QueueReservation {
    queue: Arc<Queue>,
    namespace: String,
    slots: usize,
}

impl Drop for QueueReservation {
    fn drop(&mut self) {
        self.queue.state().release(&self.namespace, self.slots);
    }
}

/// Open operations of dead servers. No other server looks for them while this exists.
pub struct Lost {
    pub records: Vec<Record>,
    dead: Vec<PathBuf>,
    _opening: FileLock,
}

impl Lost {
    /// Removes the files of the dead servers. To be called once the end of each operation is on record.
    pub fn closed(self) {
        self.dead.iter().for_each(|file| drop(std::fs::remove_file(file)));
    }
}

/// The audit record, open for writing. Clones share one writer; the last one dropped writes queued entries and ends it.
#[derive(Clone)]
pub struct Audit {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Arc<Queue>,
    chain: Arc<Mutex<OpenChain>>,
    thread: Option<JoinHandle<()>>,
    location: Storage,
    durability: Durability,
    logged: Arc<AtomicUsize>,
    /// `None`: in memory, without a liveness lock, or ended.
    alive: Mutex<Option<LivenessLock>>,
}

impl Audit {
    /// Opens the chain, or begins one. `server_id` is part of every record; at most 512 bytes.
    pub fn open(
        location: Storage,
        durability: Durability,
        signer: Signer,
        server_id: String,
    ) -> Result<Self, AuditError> {
        within("server_id", &server_id, NAME_BYTES_MAX)?;
        let id = server_id.clone();
        let writer = Writer {
            public_key: signer.public_key(),
            signer,
            server_id,
            durability,
        };
        let chain = OpenChain::open(location, writer)?;
        let location = chain.location.clone();
        let alive = match &location {
            Storage::File(path) => {
                let _opening = location::lock(path)?;
                LivenessLock::acquire(path, &id)
                    .map_err(|error| AuditError::of_io(path, "marking it as in use", &error.error))?
            }
            Storage::Memory => None,
        };
        let chain = Arc::new(Mutex::new(chain));
        let queue = Arc::new(Queue::default());
        let close_on_drop = CloseOnDrop(queue.clone());
        let logged = Arc::new(AtomicUsize::new(0));
        let (chain_of_thread, logged_of_thread) = (chain.clone(), logged.clone());
        let thread = thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write(&close_on_drop.0, &chain_of_thread, &logged_of_thread))
            .map_err(|error| AuditError::of_io(&location.display_path(), "starting its writer", &error))?;
        let shared = Arc::new(Shared {
            queue,
            chain,
            thread: Some(thread),
            location,
            durability,
            logged,
            alive: Mutex::new(alive),
        });
        Ok(Self { shared })
    }

    /// Writes the entry at once, or queues it. `done` is called once: here, if the entry is written or refused at once,
    /// or after the commit on the writer's thread. It must be short, because all other entries wait for it.
    pub fn append(&self, entry: Entry, done: impl FnOnce(Result<Receipt, AuditError>) + Send + 'static) {
        self.submit(entry, Box::new(done), None);
    }

    /// Reserves queue slots for later entries of a namespace. Errors: `Overloaded`.
    pub fn reserve(&self, namespace: &str, slots: usize) -> Result<QueueReservation, AuditError> {
        let queue = self.shared.queue.clone();
        queue.state().take(namespace, slots)?;
        Ok(QueueReservation {
            queue,
            namespace: namespace.to_owned(),
            slots,
        })
    }

    /// As [`Audit::append`], in a reserved slot, which a full queue still has; without one left, as an ordinary entry.
    pub fn append_reserved(
        &self,
        reservation: &mut QueueReservation,
        entry: Entry,
        done: impl FnOnce(Result<Receipt, AuditError>) + Send + 'static,
    ) {
        self.submit(entry, Box::new(done), Some(reservation));
    }

    fn submit(&self, entry: Entry, done: Callback, reservation: Option<&mut QueueReservation>) {
        let entry = match entry.encoded() {
            Ok(entry) => entry,
            Err(error) => return done(Err(error)),
        };
        match self.shared.write_at_once(&entry) {
            Some(written) => done(written),
            None => self.shared.queue.push(QueuedEntry { entry, done }, reservation),
        }
    }

    pub fn append_and_wait(&self, entry: Entry) -> Result<Receipt, AuditError> {
        if self.shared.is_writer() {
            return Err(AuditError::WouldWaitForItself);
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        self.append(entry, move |result| {
            // the receiver waits below, and the channel holds one result
            if sender.send(result).is_err() {
                tracing::error!("the caller that waited for an audit entry is gone");
            }
        });
        receiver.recv().unwrap_or(Err(AuditError::Stopped))
    }

    /// Returns a page of the record. A file is read beside the writer; a database in memory only between its commits.
    pub fn query(&self, query: &Query) -> Result<Page, AuditError> {
        match &self.shared.location {
            // Damage found by reading also moves the file aside; the intact segments are then read.
            Storage::File(path) => query::query(path, query).or_else(|error| {
                let AuditError::Damaged { what, .. } = error else {
                    return Err(error);
                };
                lock(&self.shared.chain).set_aside(what)?;
                query::query(path, query)
            }),
            Storage::Memory => {
                let chain = lock(&self.shared.chain);
                let connection = chain.connection().ok_or(AuditError::Stopped)?;
                query::page(connection, &self.shared.location.display_path(), query)
            }
        }
    }

    /// Notes that an operation may have no recorded end: the file remains, and the next server looks for it.
    pub fn note_open_operation(&self) {
        if let Some(alive) = &mut *lock(&self.shared.alive) {
            alive.has_open_operations = true;
        }
    }

    /// Releases the liveness lock: this server begins no more operations.
    pub fn end(&self) {
        drop(lock(&self.shared.alive).take());
    }

    /// Returns open operations of servers that have died; `None` if none died. No server can start meanwhile, and the
    /// search is long if the record is.
    pub fn lost(&self) -> Result<Option<Lost>, AuditError> {
        let Storage::File(path) = &self.shared.location else {
            return Ok(None);
        };
        let _opening = location::lock(path)?;
        let servers = alive::servers(path);
        let (living, dead) =
            servers.map_err(|error| AuditError::of_io(path, "looking for dead servers", &error.error))?;
        if dead.is_empty() {
            return Ok(None);
        }
        let mut records = Vec::new();
        let mut next = Some(Query {
            outcome: Some(Outcome::Pending),
            limit: query::PAGE_RECORDS_MAX,
            ..Query::default()
        });
        while let Some(query) = next {
            let page = self.query(&query)?;
            let left = page.records.into_iter();
            records.extend(left.filter(|record| !living.contains(&record.server_id)));
            next = page.next;
        }
        Ok(Some(Lost {
            records,
            dead,
            _opening,
        }))
    }

    /// Sets the retention limits. They apply from the next batch on.
    pub fn set_keep(&self, keep: Keep) {
        lock(&self.shared.chain).keep = keep;
    }

    /// Closes a segment up to the head or the first open operation. `None` if there is nothing to close, or in memory.
    pub fn archive(&self) -> Result<Option<PathBuf>, AuditError> {
        lock(&self.shared.chain).archive(None)
    }

    /// Closes segments and removes those over the limits now, as the writer does from time to time.
    pub fn tidy_now(&self) -> Result<(), AuditError> {
        lock(&self.shared.chain).tidy()
    }

    /// Moves all commits into the database, if the log is longer than `log_bytes_max`. For the end of a server.
    pub fn checkpoint(&self, log_bytes_max: u64) {
        if let Storage::File(path) = &self.shared.location
            && std::fs::metadata(with_suffix(path, "-wal")).is_ok_and(|log| log.len() > log_bytes_max)
        {
            lock(&self.shared.chain).checkpoint("TRUNCATE");
        }
    }

    /// Returns the end of the chain as this server last wrote or opened it, to note elsewhere for [`super::verify`].
    pub fn head(&self) -> Head {
        lock(&self.shared.chain).head
    }
}

impl Shared {
    /// Returns `None` if another thread or process is writing, or if the entry would have to wait for the disk.
    fn write_at_once(&self, entry: &Encoded) -> Option<Result<Receipt, AuditError>> {
        if self.durability == Durability::Power || self.logged.load(Ordering::Relaxed) >= CHECKPOINT_RECORDS {
            return None;
        }
        let mut chain = self.chain.try_lock().ok()?;
        if !self.queue.is_idle() {
            return None;
        }
        let written = chain.append_unless_locked(entry)?;
        self.logged.fetch_add(1, Ordering::Relaxed);
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
        // Dropped in a callback on the writer's thread, which ends by itself after writing the queued entries.
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

fn write(queue: &Queue, chain: &Mutex<OpenChain>, logged: &AtomicUsize) {
    while let Some(batch) = queue.take() {
        let batch = batch.into_iter().map(|waiting| (waiting.entry, waiting.done));
        let (entries, calls): (Vec<Encoded>, Vec<Callback>) = batch.unzip();
        let appended = lock(chain).append(&entries);
        match appended {
            Ok(receipts) => {
                logged.fetch_add(receipts.len(), Ordering::Relaxed);
                let each = calls.into_iter().zip(receipts);
                each.for_each(|(done, receipt)| call(done, Ok(receipt)));
            }
            Err(error) => calls.into_iter().for_each(|done| call(done, Err(error.clone()))),
        }
        // after the callers have their results, so that no commit waits for it
        if logged.load(Ordering::Relaxed) >= CHECKPOINT_RECORDS {
            let mut chain = lock(chain);
            if let Err(error) = chain.tidy() {
                tracing::error!(%error, "the audit record could not be shortened");
            }
            chain.checkpoint("PASSIVE");
            logged.store(0, Ordering::Relaxed);
        }
    }
}

fn call(done: Callback, result: Result<Receipt, AuditError>) {
    if catch_unwind(AssertUnwindSafe(|| done(result))).is_err() {
        tracing::error!("a callback of the audit record panicked");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    more: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<QueuedEntry>,
    closed: bool,
    /// The writer sleeps; only the next entry has to wake it.
    asleep: bool,
    slots: usize,
    shares: HashMap<String, usize>,
}

impl QueueState {
    /// A namespace has no more slots than would then still be free: a single one gets half, two get a third each.
    fn take(&mut self, namespace: &str, slots: usize) -> Result<(), AuditError> {
        let own = self.shares.get(namespace).copied().unwrap_or(0) + slots;
        if own + self.slots + slots > SLOTS_MAX {
            return Err(AuditError::Overloaded);
        }
        self.slots += slots;
        self.shares.insert(namespace.to_owned(), own);
        Ok(())
    }

    fn release(&mut self, namespace: &str, slots: usize) {
        self.slots = self.slots.saturating_sub(slots);
        if let Some(own) = self.shares.get_mut(namespace) {
            *own = own.saturating_sub(slots);
            if *own == 0 {
                self.shares.remove(namespace);
            }
        }
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the entry, in its reserved slot or in its namespace's share, or calls its callback with the error.
    fn push(&self, waiting: QueuedEntry, reservation: Option<&mut QueueReservation>) {
        let mut state = self.state();
        let reserved = reservation.filter(|own| own.slots > 0 && own.namespace == waiting.namespace());
        let taken = match reserved {
            _ if state.closed => Err(AuditError::Stopped),
            Some(reservation) => {
                reservation.slots -= 1;
                Ok(())
            }
            None => state.take(waiting.namespace(), 1),
        };
        if let Err(error) = taken {
            drop(state);
            return (waiting.done)(Err(error));
        }
        state.waiting.push_back(waiting);
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.more.notify_one();
        }
    }

    /// Waits for entries and takes up to one batch. `None` if the queue is closed and empty.
    fn take(&self) -> Option<Vec<QueuedEntry>> {
        let mut state = self.state();
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            state.asleep = true;
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep = false;
        let count = state.waiting.len().min(BATCH_MAX);
        let batch: Vec<QueuedEntry> = state.waiting.drain(..count).collect();
        for waiting in &batch {
            state.release(waiting.namespace(), 1);
        }
        Some(batch)
    }

    fn is_idle(&self) -> bool {
        let state = self.state();
        state.waiting.is_empty() && !state.closed
    }

    fn close(&self) {
        self.state().closed = true;
        self.more.notify_all();
    }
}

/// Held by the thread: however it ends, no caller waits for it afterwards.
struct CloseOnDrop(Arc<Queue>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
        let left = std::mem::take(&mut self.0.state().waiting);
        left.into_iter()
            .for_each(|waiting| call(waiting.done, Err(AuditError::Stopped)));
    }
}
