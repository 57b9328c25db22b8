//! Functions of this binary that read untrusted bytes inside a jail. One kind reads its input to the end and exits; the
//! other is kept, and answers question after question. Where answers decide, each is given by a fork, and the kept
//! process never sees a byte of a question. A process that answers can only compute, read questions, and write answers.
//! Before its first byte of input a worker closes what it inherited from pid 1, including the connection to the
//! supervisor.

use crate::seccomp;
use ringfence_sys::{
    channel,
    process::{self, Fork},
    seccomp as filter,
    wait::{self, Child},
};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    panic,
};

#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// All of standard input in, all of standard output out.
    Once(fn(&[u8]) -> Vec<u8>),
    /// Questions, each with a head and a body, until the end of standard input.
    Kept {
        by: Answering,
        /// Called once, before the first question: the set-up that all answers share.
        prepare: fn(),
        /// Head and body in, the answer out.
        answer: fn(&[u8], &[u8]) -> Vec<u8>,
    },
}

/// The process that answers the questions of a kept worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    Forks,
    /// The worker itself: earlier questions may influence later answers. For questions of one namespace, whose answers
    /// decide nothing.
    Itself,
}

impl Answering {
    /// Returns the name that distinguishes it from other processes of ours, and from the other kind.
    fn process_name(self) -> &'static str {
        match self {
            Self::Forks => "ringfence-check",
            Self::Itself => "ringfence-adv",
        }
    }
}

pub type Workers = &'static [(&'static str, Work)];

/// Maximum size of a question's head, and of its body, in bytes.
pub const QUESTION_BYTES_MAX: u32 = 64 << 20;

/// The exit status if there is no further question.
const NO_MORE: i32 = 3;
const PANICKED: i32 = 101;

/// Encodes a question as a kept worker reads it: the lengths of head and body, as 32-bit big-endian numbers, then both.
/// An answer is one such length and the answer.
pub fn question(head: &[u8], body: &[u8]) -> io::Result<Vec<u8>> {
    let length = |part: &[u8]| {
        let length = u32::try_from(part.len()).ok();
        let length = length.filter(|length| *length <= QUESTION_BYTES_MAX);
        length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a question is too long"))
    };
    let lengths = [length(head)?.to_be_bytes(), length(body)?.to_be_bytes()];
    Ok([lengths[0].as_slice(), &lengths[1], head, body].concat())
}

/// True if no byte of the question in this pipe was read: if its worker has ended, another may be asked.
pub fn is_unread(questions: BorrowedFd<'_>, question: &[u8]) -> bool {
    channel::unread(questions).is_ok_and(|bytes| bytes == question.len() as u64)
}

/// The byte that a kept worker writes before it reads its first question.
pub const READY: [u8; 1] = [1];

/// Runs the work and ends the process, so that nothing drops a descriptor that is closed here.
pub(crate) fn run(work: Work) -> ! {
    let done = process::close_all_except(&[]).and_then(|()| match work {
        Work::Once(work) => once(work),
        Work::Kept { by, prepare, answer } => {
            process::set_name(by.process_name())?;
            prepare();
            serve(by, answer)
        }
    });
    process::exit_now(done.unwrap_or(1))
}

fn once(work: fn(&[u8]) -> Vec<u8>) -> io::Result<i32> {
    filter::install(seccomp::final_filter()?)?;
    let mut input = Vec::new();
    io::stdin().lock().read_to_end(&mut input)?;
    let Ok(output) = panic::catch_unwind(|| work(&input)) else {
        return Ok(PANICKED);
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(&output)?;
    stdout.flush()?;
    Ok(0)
}

fn serve(by: Answering, answer: fn(&[u8], &[u8]) -> Vec<u8>) -> io::Result<i32> {
    let computing = seccomp::compute_filter()?;
    // These bypass the standard library's buffers, which would read ahead into the next question.
    let mut questions = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut answers = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    if by == Answering::Itself {
        filter::install(&computing)?;
        answers.write_all(&READY)?;
        loop {
            match reply(&mut questions, &mut answers, answer)? {
                0 => {}
                NO_MORE => return Ok(0),
                status => return Ok(status),
            }
        }
    }
    answers.write_all(&READY)?;
    loop {
        let [is_there] = wait::readable([Some(questions.as_fd())], None)?;
        if !is_there {
            continue; // a signal
        }
        match process::fork()? {
            Fork::Child => {
                let status = match filter::install(&computing) {
                    Ok(()) => reply(&mut questions, &mut answers, answer).unwrap_or(1),
                    Err(_) => 1,
                };
                process::exit_now(status)
            }
            Fork::Parent(child) => {
                let ended = wait::wait(Child::Pid(child))?;
                match ended.and_then(|ended| ended.status.code()) {
                    Some(0) => {}
                    Some(NO_MORE) => return Ok(0),
                    // Data that it has left in the pipes belongs to no question.
                    _ => return Ok(1),
                }
            }
        }
    }
}

fn reply(questions: &mut File, answers: &mut File, answer: fn(&[u8], &[u8]) -> Vec<u8>) -> io::Result<i32> {
    let mut lengths = [[0; 4]; 2];
    let begun = questions.read(lengths.as_flattened_mut())?;
    if begun == 0 {
        return Ok(NO_MORE);
    }
    questions.read_exact(&mut lengths.as_flattened_mut()[begun..])?;
    let [head, body] = lengths.map(u32::from_be_bytes);
    if head > QUESTION_BYTES_MAX || body > QUESTION_BYTES_MAX {
        return Ok(1);
    }
    let mut head = vec![0; usize::try_from(head).unwrap_or_default()];
    questions.read_exact(&mut head)?;
    let mut body = vec![0; usize::try_from(body).unwrap_or_default()];
    questions.read_exact(&mut body)?;
    let Ok(answered) = panic::catch_unwind(|| answer(&head, &body)) else {
        return Ok(PANICKED);
    };
    let length = u32::try_from(answered.len()).map_err(io::Error::other)?;
    answers.write_all(&[length.to_be_bytes().as_slice(), &answered].concat())?;
    Ok(0)
}
