//! What callers may do with the host: nothing, unless the operator says so; then by rules from a file that no other
//! user can change.

use super::{Environment, Toolset, keys::Effective, read_text, refusal, trust, words::Listed as _};
use ringfence_engine::{HostRules, load_host_rules};
use ringfence_types::RequestError;
use std::{path::Path, sync::Arc};

pub(super) fn rules(
    environment: &Environment,
    settings: &Effective,
) -> Result<Option<Arc<HostRules>>, RequestError> {
    if !settings.host_enabled.value {
        return Ok(None);
    }
    let file = super::location(environment, &settings.host_rules)?;
    let text = file.as_deref().map(trusted).transpose()?;
    let source = file.as_deref().zip(text.as_deref());
    let rules = load_host_rules(source).map_err(|error| {
        refusal(
            format!("{error}."),
            "`ringfence host check` tries a command; docs/host.md says what a rule file may say.",
        )
    })?;
    Ok(Some(Arc::new(rules)))
}

fn trusted(path: &Path) -> Result<String, RequestError> {
    let (text, found) = read_text(path).map_err(|error| {
        refusal(
            format!(
                "the rules of the host {} cannot be read: {error}.",
                path.display()
            ),
            "Name a file in `host.rules` that is there.",
        )
    })?;
    trust::check(path, &found)?;
    Ok(text)
}

/// `all` has those of the host where it is enabled; to name them where it is not is a mistake.
pub(super) fn toolsets(settings: &Effective) -> Result<Vec<Toolset>, RequestError> {
    let mut toolsets = settings.toolsets.to_vec();
    match (settings.host_enabled.value, toolsets.contains(&Toolset::Host)) {
        (true, false) if toolsets == Toolset::ALL_MEANS => toolsets.push(Toolset::Host),
        (false, true) => {
            return Err(refusal(
                format!("the toolset `host` ({}) is off.", settings.toolsets.origin),
                "Set `host.enabled: true`, too.",
            ));
        }
        _ => {}
    }
    Ok(toolsets)
}
