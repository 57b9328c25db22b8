//! The operations, each described once: what it takes, what it gives and what a model is told of it. The schemas that
//! clients see and the reading of what they send come from these types; nothing here acts.
//!
//! The doc comment of a request is the tool's description and that of a field is the argument's, so they are short: a
//! model carries them in every conversation. An alias is accepted and not listed, as is a field marked `x-unlisted`.

mod data;
mod execute;
mod host;
mod observe;
mod read;
mod schema;
mod sessions;
mod vault;
mod web;
mod workspaces;

pub(crate) use data::*;
pub(crate) use execute::*;
pub(crate) use host::*;
pub(crate) use observe::*;
pub(crate) use read::{Object, OneOf, invalid, parse, read};
pub(crate) use schema::{listed_input, output, without_nulls};
pub(crate) use sessions::*;
pub(crate) use vault::*;
pub(crate) use web::*;
pub(crate) use workspaces::*;

use crate::settings::Toolset;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// The names of limits, wherever they are asked for or told.
pub(crate) const LIMIT_NAMES: [&str; 6] = [
    "max_ram_mb",
    "max_cpu_cores",
    "timeout_seconds",
    "max_processes",
    "max_output_bytes",
    "max_disk_mb",
];

/// What calling an operation may change: the hints that clients decide by whether to ask their user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// Something; the same call again changes nothing more.
    Sets,
    /// Something, with each call anew.
    Adds,
    /// The same, and packages come from beyond the sandbox.
    Starts,
    /// It deletes or overwrites; the same call again changes nothing more.
    Replaces,
    /// It may delete or overwrite, with each call anew.
    Edits,
    /// The same, and it may reach beyond the sandbox.
    Runs,
    /// It reaches beyond the sandbox; the same call again changes nothing more.
    Reaches,
}

/// One operation: the request itself is the type.
pub(crate) trait Operation: DeserializeOwned + JsonSchema {
    const NAME: &'static str;
    const TITLE: &'static str;
    const TOOLSET: Toolset;
    const EFFECT: Effect;
    type Response: JsonSchema;
}

/// Operations: what a model is told of each, its name and title, its toolset and effect, its request and its answer.
macro_rules! operations {
    ($(
        $(#[$about:meta])* $name:literal $title:literal $toolset:ident $effect:ident
        $request:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* } -> $response:ident $({ $($answer:tt)* })?
    )+) => {$(
        $(#[$about])*
        #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $request { $($(#[$meta])* pub(crate) $field: $type,)* }
        $crate::api::operations!($request => $response, $name, $title, $toolset, $effect);
        $($crate::api::response!($response { $($answer)* });)?
    )+};
    ($request:ty => $response:ty, $name:literal, $title:literal, $toolset:ident, $effect:ident) => {
        impl $crate::api::Operation for $request {
            const NAME: &'static str = $name;
            const TITLE: &'static str = $title;
            const TOOLSET: $crate::settings::Toolset = $crate::settings::Toolset::$toolset;
            const EFFECT: $crate::api::Effect = $crate::api::Effect::$effect;
            type Response = $response;
        }
    };
}
pub(crate) use operations;

/// The fields of an answer, beside `success`.
macro_rules! response {
    ($name:ident { $($(#[$meta:meta])* $field:ident: $type:ty),* $(,)? }) => {
        #[derive(schemars::JsonSchema)]
        #[expect(dead_code, reason = "only its schema is used")]
        pub(crate) struct $name {
            success: bool,
            $($(#[$meta])* $field: $type),*
        }
    };
}
pub(crate) use response;

/// Panics where an answer is not as its operation's response says.
#[cfg(test)]
pub(crate) use schema::tests::{Reference, conforms, reference_of};
