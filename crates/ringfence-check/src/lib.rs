//! Says whether code and data are what they should be, without running them. What is here reads a stranger's text and is
//! therefore only ever called in a jailed worker process (see `ringfence_engine::check` and `worker`): a parser that crashes or loops
//! costs one request.
#![forbid(unsafe_code)]

mod credentials;
mod depth;
mod domains;
mod encoding;
mod javascript;
mod module;
mod picture;
mod python;
mod question;
mod rule;
mod shell;
mod table;
mod tree;
mod unknown;
mod value;
mod verdict;

pub use module::prepare;
pub use picture::{PICTURE_SIDE_MAX, picture};
pub use python::{check_known_import, profile};
pub use question::{
    Answer, CodeAnswer, CodeQuestion, CsvQuestion, JsonQuestion, Patch, Question, answer, answer_frame,
    warm_up,
};
pub use rule::{Rule, rules};
pub use value::{check_schema, schemas};
