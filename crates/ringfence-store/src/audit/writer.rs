//! The writer's thread and the queue before it. It takes everything that waits into one transaction, so that under
//! load many entries share one commit. An entry that comes when the writer is idle is written by the caller, because
//! two changes of thread take longer than a commit.
//!
//! Room in the queue is shared: a namespace gets at most as much as it leaves free, so that no flood from one namespace
//! takes the room of another. A run reserves the room of its end before it begins.

use super::{
    AuditError, Durability, Entry, Head, Keep, Outcome, Page, Query, Receipt, Record, Storage,
    alive::{self, Alive},
    chain::Writer,
    entry::{Fitted, NAME_BYTES_MAX, within},
    location::{self, with_end},
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

/// Entries that wait, and those for which room is reserved.
pub(super) const PLACES_MAX: usize = 32 << 10;
const BATCH_MAX: usize = 256;
/// Records after which the log is moved into the database.
const CHECKPOINT_RECORDS: usize = 256;

type Done = Box<dyn FnOnce(Result<Receipt, AuditError>) + Send>;

struct Waiting {
    entry: Fitted,
    done: Done,
}

impl Waiting {
    fn namespace(&self) -> &str {
        &self.entry.entry.namespace
    }
}

/// Room in the queue for entries of one namespace that are still to come. What is not used is given back.
pub struct Room {
    queue: Arc<Queue>,
    namespace: String,
    places: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.queue.line().release(&self.namespace, self.places);
    }
}

/// What dead servers have left open. No other server looks for the same meanwhile.
pub struct Lost {
    pub records: Vec<Record>,
    dead: Vec<PathBuf>,
    _opening: FileLock,
}

impl Lost {
    /// Each of them has its end on record.
    pub fn closed(self) {
        self.dead.iter().for_each(|file| drop(std::fs::remove_file(file)));
    }
}

/// The audit record, open to be written. Clones share one writer; when the last is dropped, what waits is written and
/// the writer ends.
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
    unmoved: Arc<AtomicUsize>,
    /// None: in memory, or it has ended.
    alive: Mutex<Option<Alive>>,
}

impl Audit {
    /// Opens the chain, or begins one. `server_id` stands in every record; 512 bytes at most.
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
                Alive::begin(path, &id)
                    .map_err(|error| AuditError::of_io(path, "saying that it is in use", &error.error))?
            }
            Storage::Memory => None,
        };
        let chain = Arc::new(Mutex::new(chain));
        let queue = Arc::new(Queue::default());
        let closing = Closing(queue.clone());
        let unmoved = Arc::new(AtomicUsize::new(0));
        let (chain_of_thread, unmoved_of_thread) = (chain.clone(), unmoved.clone());
        let thread = thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write(&closing.0, &chain_of_thread, &unmoved_of_thread))
            .map_err(|error| AuditError::of_io(&location.shown(), "starting its writer", &error))?;
        let shared = Arc::new(Shared {
            queue,
            chain,
            thread: Some(thread),
            location,
            durability,
            unmoved,
            alive: Mutex::new(alive),
        });
        Ok(Self { shared })
    }

    /// Writes the entry here, or hands it to the writer. `done` is called once: here, when it is written or refused
    /// at once, or after the commit on the writer's thread. It must be short; everybody's entries wait for it.
    pub fn append(&self, entry: Entry, done: impl FnOnce(Result<Receipt, AuditError>) + Send + 'static) {
        self.give(entry, Box::new(done), None);
    }

    /// Reserves room for so many entries of a namespace. Errors: `Overloaded`.
    pub fn reserve(&self, namespace: &str, places: usize) -> Result<Room, AuditError> {
        let queue = self.shared.queue.clone();
        queue.line().take(namespace, places)?;
        Ok(Room {
            queue,
            namespace: namespace.to_owned(),
            places,
        })
    }

    /// As [`Audit::append`], in reserved room: the queue is never too full for it.
    pub fn append_reserved(
        &self,
        room: &mut Room,
        entry: Entry,
        done: impl FnOnce(Result<Receipt, AuditError>) + Send + 'static,
    ) {
        self.give(entry, Box::new(done), Some(room));
    }

    fn give(&self, entry: Entry, done: Done, room: Option<&mut Room>) {
        let entry = match entry.fitted() {
            Ok(entry) => entry,
            Err(error) => return done(Err(error)),
        };
        match self.shared.write_at_once(&entry) {
            Some(written) => done(written),
            None => self.shared.queue.push(Waiting { entry, done }, room),
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
                tracing::error!("the caller that waited for an audit entry is gone");
            }
        });
        told.recv().unwrap_or(Err(AuditError::Stopped))
    }

    /// A page of the record. A file is read beside the writer; a database in memory only between its commits.
    pub fn query(&self, query: &Query) -> Result<Page, AuditError> {
        match &self.shared.location {
            // Damage that is met by reading ends here, too: what is whole goes on.
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
                query::page(connection, &self.shared.location.shown(), query)
            }
        }
    }

    /// Something that this server began may have no end on record. Its file stays, and the next one looks for it.
    pub fn leaves_open(&self) {
        if let Some(alive) = &mut *lock(&self.shared.alive) {
            alive.leaves_open = true;
        }
    }

    /// This server begins nothing any more.
    pub fn end(&self) {
        drop(lock(&self.shared.alive).take());
    }

    /// What was begun by servers that have died since, and has no end on record. None: no server died.
    /// A search takes the longer the more is on record, and no server begins meanwhile.
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

    /// How much of the record is kept. From the next batch on.
    pub fn set_keep(&self, keep: Keep) {
        lock(&self.shared.chain).keep = keep;
    }

    /// Closes everything up to the head into a segment: its file. None: there is nothing, or it is in memory.
    pub fn archive(&self) -> Result<Option<PathBuf>, AuditError> {
        lock(&self.shared.chain).archive(None)
    }

    /// Closes segments and removes what is too old or too much now, as the writer does from time to time.
    pub fn tidy_now(&self) -> Result<(), AuditError> {
        lock(&self.shared.chain).tidy()
    }

    /// Moves all that was committed into the database, where the log is longer than this. At the end of a server.
    pub fn checkpoint(&self, log_bytes_max: u64) {
        if let Storage::File(path) = &self.shared.location
            && std::fs::metadata(with_end(path, "-wal")).is_ok_and(|log| log.len() > log_bytes_max)
        {
            lock(&self.shared.chain).checkpoint("TRUNCATE");
        }
    }

    /// Where the chain ended when this server last wrote or opened it. Worth noting elsewhere, for
    /// [`super::verify`] to look for later.
    pub fn head(&self) -> Head {
        lock(&self.shared.chain).head
    }
}

impl Shared {
    /// None: another thread or process writes, or the disk has to be waited for.
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

fn write(queue: &Queue, chain: &Mutex<OpenChain>, unmoved: &AtomicUsize) {
    while let Some(batch) = queue.take() {
        let batch = batch.into_iter().map(|waiting| (waiting.entry, waiting.done));
        let (entries, dones): (Vec<Fitted>, Vec<Done>) = batch.unzip();
        let appended = lock(chain).append(&entries);
        match appended {
            Ok(receipts) => {
                unmoved.fetch_add(receipts.len(), Ordering::Relaxed);
                let each = dones.into_iter().zip(receipts);
                each.for_each(|(done, receipt)| call(done, Ok(receipt)));
            }
            Err(error) => dones.into_iter().for_each(|done| call(done, Err(error.clone()))),
        }
        // after the callers have their answers, so that no commit waits for it
        if unmoved.load(Ordering::Relaxed) >= CHECKPOINT_RECORDS {
            let mut chain = lock(chain);
            if let Err(error) = chain.tidy() {
                tracing::error!(%error, "the audit record could not be shortened");
            }
            chain.checkpoint("PASSIVE");
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The writer sleeps; only the next entry pays for waking it.
    asleep: bool,
    /// Places taken, by those who wait and by those who have reserved.
    places: usize,
    shares: HashMap<String, usize>,
}

impl Line {
    /// A namespace has no more than what would then still be free: one alone gets half, two a third each.
    fn take(&mut self, namespace: &str, places: usize) -> Result<(), AuditError> {
        let own = self.shares.get(namespace).copied().unwrap_or(0) + places;
        if own + self.places + places > PLACES_MAX {
            return Err(AuditError::Overloaded);
        }
        self.places += places;
        self.shares.insert(namespace.to_owned(), own);
        Ok(())
    }

    fn release(&mut self, namespace: &str, places: usize) {
        self.places = self.places.saturating_sub(places);
        if let Some(own) = self.shares.get_mut(namespace) {
            *own = own.saturating_sub(places);
            if *own == 0 {
                self.shares.remove(namespace);
            }
        }
    }
}

impl Queue {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the entry, in the room reserved for it or in its namespace's share, or tells it why not.
    fn push(&self, waiting: Waiting, room: Option<&mut Room>) {
        let mut line = self.line();
        let reserved = room.filter(|room| room.places > 0 && room.namespace == waiting.namespace());
        let taken = match reserved {
            _ if line.closed => Err(AuditError::Stopped),
            Some(room) => {
                room.places -= 1;
                Ok(())
            }
            None => line.take(waiting.namespace(), 1),
        };
        if let Err(error) = taken {
            drop(line);
            return (waiting.done)(Err(error));
        }
        line.waiting.push_back(waiting);
        let wake = std::mem::take(&mut line.asleep);
        drop(line);
        if wake {
            self.more.notify_one();
        }
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
        let batch: Vec<Waiting> = line.waiting.drain(..count).collect();
        for waiting in &batch {
            line.release(waiting.namespace(), 1);
        }
        Some(batch)
    }

    fn is_idle(&self) -> bool {
        let line = self.line();
        line.waiting.is_empty() && !line.closed
    }

    fn close(&self) {
        self.line().closed = true;
        self.more.notify_all();
    }
}

/// Held by the thread: however it ends, no caller waits for it afterwards.
struct Closing(Arc<Queue>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
        let left = std::mem::take(&mut self.0.line().waiting);
        left.into_iter()
            .for_each(|waiting| call(waiting.done, Err(AuditError::Stopped)));
    }
}
