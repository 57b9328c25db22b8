//! Resources: the server's state, its last events, the audit record, schemas, files that programs left, and snapshots.

use super::Offer;
use crate::{render, settings::Toolset};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use ringfence_engine::{Caller, Engine};
use ringfence_store::audit::Query;
use ringfence_types::{Artifact, Namespace, RequestError};
use rmcp::model::{ContentBlock, Resource, ResourceContents, ResourceTemplate};
use serde::Serialize;
use serde_json::json;
use std::borrow::Cow;

const STATUS: &str = "sandbox://status";
const LOGS: &str = "sandbox://logs";
const AUDIT: &str = "sandbox://audit";
const ARTIFACTS: &str = "sandbox://artifacts/";
const SNAPSHOTS: &str = "sandbox://snapshots/";
const SCHEMAS: &str = "sandbox://schemas";
const RECORDS: usize = 100;
const JSON: &str = "application/json";

pub(super) fn list(offer: &Offer) -> Vec<Resource> {
    let resource = |uri: &str, name: &str, about: &str| {
        Resource::new(uri, name)
            .with_description(about)
            .with_mime_type(JSON)
    };
    let schemas = resource(
        SCHEMAS,
        "schemas",
        "The JSON Schemas that validate_json_data knows by name.",
    );
    let observed = [
        (
            STATUS,
            "status",
            "The queue, sandboxes that stand ready, and what the server takes.",
        ),
        (
            LOGS,
            "logs",
            "The last hundred events: executions, limits, secrets, artifacts.",
        ),
        (
            AUDIT,
            "audit",
            "The last hundred records of the audit record, newest first.",
        ),
    ];
    let is_offered = |uri: &str| offer.has(Toolset::Observe) && (uri != STATUS || offer.shows_server());
    let observed = observed.into_iter().filter(|(uri, ..)| is_offered(uri));
    let observed = observed.map(|(uri, name, about)| resource(uri, name, about));
    observed
        .chain(offer.has(Toolset::Data).then_some(schemas))
        .collect()
}

pub(super) fn templates(offer: &Offer) -> Vec<ResourceTemplate> {
    let artifact = ResourceTemplate::new("sandbox://artifacts/{execution_id}/{+name}", "artifact")
        .with_description(
            "A file that a program left. Add ?namespace=NAME for another namespace than the usual one.",
        );
    let snapshot = ResourceTemplate::new("sandbox://snapshots/{id}", "snapshot").with_description(
        "A saved workspace with the contents of its files, at most 16 MiB. Add ?namespace=NAME for another namespace \
         than the usual one.",
    );
    let artifact = offer.has(Toolset::Observe).then_some(artifact);
    artifact
        .into_iter()
        .chain(offer.has(Toolset::Snapshots).then_some(snapshot))
        .collect()
}

/// Returns a link to an artifact that is too large for an answer.
pub(super) fn link(artifact: &Artifact) -> Option<ContentBlock> {
    let uri = artifact.uri.as_ref().filter(|_| artifact.content_b64.is_none())?;
    let resource = Resource::new(uri, &artifact.name)
        .with_mime_type(&artifact.mime)
        .with_size(artifact.size_bytes);
    Some(ContentBlock::resource_link(resource))
}

pub(super) struct ResourceRequest<'a> {
    uri: &'a str,
    namespace: Namespace,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Status,
    Logs,
    Audit,
    Schemas,
    Artifact {
        execution_id: &'a str,
        name: Cow<'a, str>,
    },
    Snapshot(&'a str),
}

pub(super) fn parse<'a>(uri: &'a str, offer: &Offer) -> Result<ResourceRequest<'a>, RequestError> {
    let (path, namespace) = namespace(uri, offer)?;
    // A resource is offered only together with the tools of its toolset.
    if !toolsets_of(path).iter().any(|toolset| offer.has(*toolset)) {
        return Err(unknown());
    }
    let kind = match (path, path.strip_prefix(ARTIFACTS), path.strip_prefix(SNAPSHOTS)) {
        (_, Some(artifact), _) => {
            let (execution_id, name) = artifact.split_once('/').ok_or_else(unknown)?;
            let name = percent_decode_str(name).decode_utf8().map_err(|_| unknown())?;
            Kind::Artifact { execution_id, name }
        }
        (_, _, Some(id)) => Kind::Snapshot(id),
        (SCHEMAS, ..) => Kind::Schemas,
        (STATUS, ..) if offer.shows_server() => Kind::Status,
        (LOGS, ..) => Kind::Logs,
        (AUDIT, ..) => Kind::Audit,
        _ => return Err(unknown()),
    };
    Ok(ResourceRequest { uri, namespace, kind })
}

/// Returns the toolsets of a resource, of which it needs one.
pub(super) fn toolsets_of(uri: &str) -> Vec<Toolset> {
    let path = uri.split('?').next().unwrap_or(uri);
    match path {
        SCHEMAS => vec![Toolset::Data],
        _ if path.starts_with(SNAPSHOTS) => vec![Toolset::Snapshots],
        // Artifacts are part of an answer of `execute_code`.
        _ if path.starts_with(ARTIFACTS) => vec![Toolset::Observe, Toolset::Execute],
        _ => vec![Toolset::Observe],
    }
}

impl ResourceRequest<'_> {
    /// Returns the execution and the name of the artifact of this namespace that the URI addresses.
    pub(super) fn artifact_of(&self, own: &Namespace) -> Option<(&str, &str)> {
        match &self.kind {
            Kind::Artifact { execution_id, name } if self.namespace == *own => Some((execution_id, name)),
            _ => None,
        }
    }
}

pub(super) fn bytes_of(contents: &ResourceContents) -> usize {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => text.len(),
        ResourceContents::BlobResourceContents { blob, .. } => blob.len(),
        _ => 0,
    }
}

pub(super) async fn read(
    engine: &Engine,
    caller: &Caller,
    offer: &Offer,
    request: ResourceRequest<'_>,
) -> Result<ResourceContents, RequestError> {
    let ResourceRequest { uri, namespace, kind } = request;
    let of_namespace = |other: &str| offer.shows_others() || other == namespace.as_str();
    let note = async |uri: &str| {
        let what = format!("resource {uri}");
        engine.note_call(caller, namespace.as_str(), &what).await
    };
    let access = engine.namespace(caller, &namespace);
    let text = match kind {
        Kind::Artifact { execution_id, name } => {
            let (mime, bytes) = access.artifact(execution_id, &name).await?;
            let contents = match String::from_utf8(bytes) {
                Ok(text) => ResourceContents::text(text, uri),
                Err(binary) => ResourceContents::blob(STANDARD.encode(binary.as_bytes()), uri),
            };
            return Ok(contents.with_mime_type(mime));
        }
        Kind::Snapshot(id) => access.export_snapshot(id).await?,
        Kind::Status => {
            note(STATUS).await?;
            let mut stats = engine.stats();
            stats.queue.lines.retain(|line| of_namespace(&line.namespace));
            pretty_json(&json!({"stats": stats, "counts": engine.counts()}))
        }
        Kind::Logs => {
            note(LOGS).await?;
            let mut events = engine.recent_events();
            events.retain(|event| of_namespace(&event.namespace));
            pretty_json(&events)
        }
        Kind::Schemas => {
            note(SCHEMAS).await?;
            let schemas = engine.schemas().into_iter();
            let listed: Vec<_> = schemas
                .map(|(name, schema)| json!({"name": name, "schema": schema}))
                .collect();
            pretty_json(&json!({"schemas": listed}))
        }
        Kind::Audit => {
            let query = Query {
                namespace: Some(namespace.to_string()),
                limit: RECORDS,
                newest_first: true,
                ..Query::default()
            };
            let page = engine.audit(caller, query).await?;
            pretty_json(&page.records.iter().map(render::record).collect::<Vec<_>>())
        }
    };
    Ok(ResourceContents::text(text, uri).with_mime_type(JSON))
}

fn unknown() -> RequestError {
    RequestError::not_found(
        "there is no such resource.",
        "`resources/list` and `resources/templates/list` name them.",
    )
}

fn namespace<'a>(uri: &'a str, offer: &Offer) -> Result<(&'a str, Namespace), RequestError> {
    let Some((path, query)) = uri.split_once('?') else {
        return Ok((uri, offer.namespaces.default_namespace()));
    };
    let name = query.strip_prefix("namespace=").ok_or_else(unknown)?;
    let namespace = Namespace::try_from(name.to_owned()).map_err(|_| unknown())?;
    Ok((path, offer.namespaces.chosen(namespace)?))
}

fn pretty_json(facts: &impl Serialize) -> String {
    serde_json::to_string_pretty(facts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mcp::tests::offer, settings::Namespaces};
    use ringfence_types::ErrorCode;

    #[test]
    fn artifact_names_survive_a_round_trip() {
        let default = Namespace::default_name();
        for name in ["a.txt", "output/é ?#%.png", "***REDACTED***", "a\nb"] {
            let uri = ringfence_engine::artifact_uri(&default, "id", name);
            let request = parse(&uri, &offer()).ok().unwrap();
            assert_eq!(request.artifact_of(&default), Some(("id", name)));
        }
        assert!(parse("sandbox://artifacts/id/%ff", &offer()).is_err());
    }

    #[test]
    fn uri_names_a_namespace_only_where_the_caller_may() {
        let (path, of) = namespace("sandbox://audit?namespace=team", &offer()).unwrap();
        assert_eq!((path, of.as_str()), (AUDIT, "team"));
        assert_eq!(namespace(AUDIT, &offer()).unwrap().1.as_str(), "default");
        assert!(namespace("sandbox://audit?namespace=../x", &offer()).is_err());
        assert!(namespace("sandbox://audit?x=y", &offer()).is_err());
        let fixed = Offer {
            namespaces: Namespaces::Fixed,
            ..offer()
        };
        assert_eq!(
            namespace("sandbox://audit?namespace=team", &fixed)
                .unwrap_err()
                .code,
            ErrorCode::PolicyDenied
        );
    }
}
