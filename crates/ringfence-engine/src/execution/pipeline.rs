//! The steps of a request, in order. Each consumes what the one before produced. Resources are locals in the order in
//! which they are taken, so that Rust gives them back in reverse on success, error, panic and cancellation.

use super::{
    fresh::{self, FreshProgram},
    in_session::{self, SessionCall},
    outcome::{ExecutionOutcome, PhaseTimer},
    states::{ExecutionContext, Source, Target},
    steps,
};
use crate::{caller::Stdin, error::Result};
use ringfence_types::ExecuteRequest;

/// Its program runs, or its call is ready to be sent.
enum Started {
    Fresh(Box<FreshProgram>),
    InSession(Box<SessionCall>),
}

/// A request from its admission to its report.
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
    timer.phases.start_ms += timer.lap();
    let mut finished = match started {
        Started::Fresh(program) => fresh::wait(&context, &admitted.grant, *program, &mut timer).await?,
        Started::InSession(call) => in_session::wait(*call, &mut timer).await?,
    };
    // Clients that read live output see its end here.
    context.client.output = None;
    let staged = steps::stage(&context, &mut admitted, &mut finished).await?;
    Ok(steps::report(&context, admitted, finished, staged, timer).await)
}
