//! The steps of a request, in order. Each consumes the result of the one before. Resources are locals in order of
//! acquisition, so that Rust releases them in reverse on success, error, panic and cancellation.

use super::{
    fresh::{self, FreshProgram},
    in_session::{self, SessionCall},
    outcome::{ExecutionOutcome, PhaseTimer},
    states::{ExecutionContext, Source, Target},
    steps,
};
use crate::{caller::Stdin, error::Result};
use ringfence_types::ExecuteRequest;

enum Started {
    Fresh(Box<FreshProgram>),
    InSession(Box<SessionCall>),
}

/// Runs a request, from its admission to its report.
pub(super) async fn run(
    mut context: ExecutionContext<'_>,
    source: Source,
    request: ExecuteRequest,
    stdin: Stdin,
    mut timer: PhaseTimer,
) -> Result<ExecutionOutcome> {
    let mut admitted = steps::admit(&context, source, request, &mut timer).await?;
    let leased = steps::lease(&context, &admitted, &mut timer).await?;
    let stdio = steps::stdio(&context, &admitted.grant, &leased, stdin);
    let started = match &admitted.target {
        Target::Fresh(target) => {
            let program = fresh::start(&context, &admitted, target, leased, stdio).await?;
            Started::Fresh(Box::new(program))
        }
        Target::InSession(turn) => {
            let call = in_session::start(&context, &admitted, turn, leased, stdio).await?;
            Started::InSession(Box::new(call))
        }
    };
    admitted.once.use_up();
    timer.lap(|phases| &mut phases.start_ms);
    let mut finished = match started {
        Started::Fresh(program) => fresh::wait(&context, &admitted.grant, *program, &mut timer).await?,
        Started::InSession(call) => in_session::wait(*call, &mut timer).await?,
    };
    // Closes the live output of clients.
    context.client.output = None;
    let staged = steps::stage(&context, &mut admitted, &mut finished).await?;
    Ok(steps::report(&context, admitted, finished, staged, timer).await)
}
