//! The operations, each described once: its arguments, its response and its description for models. The schemas that
//! clients see and the parsing of their requests derive from these types; nothing here performs an operation.
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

pub(crate) const LIMIT_NAMES: [&str; 6] = [
    "max_ram_mb",
    "max_cpu_cores",
    "timeout_seconds",
    "max_processes",
    "max_output_bytes",
    "max_disk_mb",
];

/// Effects of calling an operation: clients decide by these hints whether to ask their user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Changes nothing.
    Reads,
    /// Changes something; repeating the call changes nothing more.
    Sets,
    /// Changes something with each call.
    Adds,
    /// Changes something with each call, and packages come from outside the sandbox.
    Starts,
    /// Deletes or overwrites; repeating the call changes nothing more.
    Replaces,
    /// May delete or overwrite with each call.
    Edits,
    /// May delete or overwrite with each call, and may reach outside the sandbox.
    Runs,
    /// Reaches outside the sandbox; repeating the call changes nothing more.
    Reaches,
}

pub(crate) trait Operation: DeserializeOwned + JsonSchema {
    const NAME: &'static str;
    const TITLE: &'static str;
    const TOOLSET: Toolset;
    const EFFECT: Effect;
    type Response: JsonSchema;
}

/// Defines operations: description, name and title, toolset and effect, request and response.
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

/// Defines a response: these fields and `success`.
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

/// `conforms` panics if an answer does not match its operation's response.
#[cfg(test)]
pub(crate) use schema::tests::{Reference, conforms, reference_of};
