//! Checks code and data without running them. This crate reads untrusted text and is therefore only called in a jailed
//! worker process (see `ringfence_engine::check` and `worker`): a parser that crashes or loops costs one request.
#![forbid(unsafe_code)]

mod answer;
mod credentials;
mod domains;
mod javascript;
mod keyed_hash;
mod lists;
mod module;
mod picture;
#[cfg(test)]
mod processor_time;
mod python;
mod question;
mod registry;
mod rule;
mod shell;
mod table;
mod unknown;
mod value;
mod verdict;

pub use answer::{answer, answer_frame, warm_up};
pub use module::{ModuleAnswer, ModuleQuestion, Objection, prepare};
pub use picture::{PICTURE_SIDE_MAX, picture};
pub use python::{check_known_import, profile};
pub use question::{Answer, CodeAnswer, CodeQuestion, CsvQuestion, JsonQuestion, Patch, Question};
pub use registry::rules;
pub use rule::Rule;
pub use value::{check_schema, read_exactly, schemas};
