//! The vocabulary of all stories: command lines that are run, a server that is spoken to in plain JSON-RPC, what both say,
//! and the host around them.

mod command;
mod facts;
pub mod host;
mod http;
mod server;
mod terminal;

pub use command::{
    TempDir, below, binary, feed, json_of, link_program, ringfence, run_code, run_json, said, serve_with,
    start, stderr_of, stdout_of, succeeded,
};
pub use facts::{
    assert_contains, assert_facts, assert_facts_of, assert_says, facts_of, list_of, show_refusal, text_of,
    texts_of,
};
pub use host::{
    MINOR_FAULTS, NOBODY, Nobody, PATIENCE, as_nobody, asks_for, assert_gone, assert_took_at_most,
    assert_within_a_second, descendants, descendants_with, eventually, has, is_root, lives, memory_of,
    name_of, processes_with, signal, stat_of, state_dir, status_of, within,
};
pub use http::{HttpClient, HttpServer};
pub use server::Server;
pub use terminal::Terminal;
