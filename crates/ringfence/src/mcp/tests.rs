//! The offer of a server with the default configuration.

use super::{Offer, prompts, tools};
use crate::settings;
use rmcp::model::{Prompt, Tool};
use tokio::sync::watch;

pub(crate) fn offer() -> Offer {
    let config = settings::default_config().unwrap();
    Offer::of(&config, watch::channel(config.engine.policy.clone()).1)
}

pub(crate) fn prompts_of_the_reference() -> Vec<Prompt> {
    prompts::list(&offer())
}

pub(crate) fn tools_of_the_reference() -> Vec<Tool> {
    let mut offer = offer();
    offer.toolsets.push(settings::Toolset::Host);
    tools::list(&offer)
}

pub(crate) use super::tools::reference_of;
