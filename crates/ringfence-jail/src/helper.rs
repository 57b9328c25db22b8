//! The single-threaded helper process.

/// A function of this binary that parses hostile bytes inside a jail: standard input in, standard output out.
pub type Worker = fn(&[u8]) -> Vec<u8>;

/// The first word of the helper's command line.
pub const HELPER_WORD: &str = "__jail-helper";

/// The helper's whole life; `main` calls it when its first argument is [`HELPER_WORD`].
pub fn run(_workers: &'static [(&'static str, Worker)]) -> i32 {
    unimplemented!()
}
