//! What a server with the default configuration offers.

use super::{execute_code::tests::offer, prompts, tools};
use rmcp::model::{Prompt, Tool};

pub(crate) fn prompts_of_the_reference() -> Vec<Prompt> {
    prompts::list(&offer())
}

pub(crate) fn tools_of_the_reference() -> Vec<Tool> {
    let mut offer = offer();
    offer.toolsets.push(crate::settings::Toolset::Host);
    tools::list(&offer)
}

pub(crate) use super::tools::reference_of;

pub(crate) fn offer_of_the_reference() -> super::Offer {
    offer()
}
