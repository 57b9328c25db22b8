//! The steps of a request, in order. Each consumes what the one before produced. Resources are locals in the order in
//! which they are taken, so that Rust gives them back in reverse on success, error, panic and cancellation.

use super::{
    fresh::{self, FreshProgram},
    in_session::{self, SessionCall},
    report::{Clock, Executed},
    states::{Request, Source, Target},
    steps,
};
use crate::caller::Stdin;
use ringfence_types::{ExecuteRequest, RequestError};

/// Its program runs, or its call is ready to be sent.
enum Started {
    Fresh(Box<FreshProgram>),
    InSession(Box<SessionCall>),
}

/// A request from its admission to its report.
pub(super) async fn run(
    mut request: Request<'_>,
    source: Source,
    asked: ExecuteRequest,
    stdin: Stdin,
    mut clock: Clock,
) -> Result<Executed, RequestError> {
    let mut admitted = steps::admit(&request, source, asked, &mut clock).await?;
    let leased = steps::lease(&request, &admitted, &mut clock).await?;
    let stdio = steps::stdio(&request, &admitted.grant, &leased, stdin);
    let started = match &admitted.target {
        Target::Fresh(target) => {
            let program = fresh::start(&request, &admitted, target, leased, stdio).await?;
            Started::Fresh(Box::new(program))
        }
        Target::InSession(target) => {
            let call = in_session::start(&request, &admitted, target, leased, stdio).await?;
            Started::InSession(Box::new(call))
        }
    };
    clock.starting();
    let mut finished = match started {
        Started::Fresh(program) => fresh::wait(&request, &admitted.grant, *program, &mut clock).await?,
        Started::InSession(call) => in_session::wait(*call, &mut clock).await?,
    };
    // Clients that read live output see its end here.
    request.client.output = None;
    let staged = steps::stage(&request, &mut admitted, &mut finished).await?;
    Ok(steps::report(&request, admitted, finished, staged, clock).await)
}
