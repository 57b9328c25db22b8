//! One request, from start to finish. `bracket` puts its begin and its end on record. `pipeline` has the steps in
//! between, for a run and for a call of a session; `fresh` and `in_session` have the steps that differ.

mod bracket;
mod create;
mod fresh;
mod in_session;
mod outcome;
mod pipeline;
mod states;
mod steps;

pub(crate) use bracket::execute;
pub(crate) use create::create_session;
pub(crate) use outcome::ExecutionOutcome;
pub(crate) use states::Source;
