//! `ringfence token`: tokens of the clients that may call a server over HTTP. The file of tokens is changed here, with
//! or without a running server; a running one checks the file for each request.

use super::{CommandResult, Context, hints, live, request::one_of, vault};
use crate::{
    render::Rendered,
    settings::{SettingValue as _, Toolset},
    time::{self, DETACH_SECONDS_MAX},
};
use clap::{Args, Subcommand};
use ringfence_engine::{Caller, EngineSettings, check_caps};
use ringfence_store::{
    audit::Action,
    tokens::{PrincipalRole, TokenEntry, TokenError, Tokens},
};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use serde_json::{Value, json};
use std::{io, process::ExitCode, time::Duration};

/// In the place of all namespaces, and of all toolsets.
const ALL: &str = "*";
const EVERY: &str = "all";

#[derive(Debug, Subcommand)]
pub(super) enum TokenAction {
    /// Create a token and show it once: only its digest is kept
    Create(CreateToken),
    /// List the tokens with their principals and rights
    List(OutputFormat),
    /// Revoke a token; running servers refuse it at once
    Revoke {
        /// Name of its principal
        name: Namespace,
        #[command(flatten)]
        shown: OutputFormat,
    },
}

#[derive(Debug, Args)]
pub(super) struct OutputFormat {
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct CreateToken {
    /// Name of the principal, as the audit record shows it
    name: Namespace,
    /// Namespaces that it may use, the default one first, or `*` for all [default: one with its own name]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    namespace: Vec<String>,
    /// Toolsets that it is offered, of those that the server offers [default: all of those]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = toolset)]
    toolsets: Vec<String>,
    /// Lifetime, such as 12h or 90d; a number alone is seconds [default: until it is revoked]
    #[arg(long, value_name = "LENGTH", value_parser = vault::ttl)]
    expires: Option<Duration>,
    /// Requests that it may send per minute; 0: unlimited
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    rate: u32,
    /// Seconds after which its calls are answered while their programs run on; 0: never [default: the server's setting]
    #[arg(long, value_name = "SECONDS", value_parser = detach_after_ms)]
    detach_after: Option<u64>,
    #[command(flatten)]
    limits: live::NamespaceLimitFlags,
    /// caller: may ask for approvals; operator: may also give them, in its client's dialogue
    #[arg(long, value_name = "ROLE", default_value = "caller", value_parser = one_of::<PrincipalRole>(PrincipalRole::WORDS))]
    role: PrincipalRole,
    #[command(flatten)]
    shown: OutputFormat,
}

fn toolset(text: &str) -> Result<String, String> {
    Toolset::read(text).map(|_| text.to_owned())
}

pub(super) fn token(context: &Context, action: TokenAction) -> CommandResult {
    let config = context.begin()?;
    let tokens = Tokens::open(&config.engine.state_dir).map_err(refused)?;
    match action {
        TokenAction::Create(create) => {
            let is_json = create.shown.json;
            let entry = entry(create)?;
            let mut facts = facts(&entry);
            let (name, expires) = (entry.name.clone(), entry.expires_unix_ms);
            let (settings, details) = (config.engine.clone(), facts.clone());
            let create = || tokens.create(entry).map_err(refused);
            let token = on_record(context, settings, Action::TokenCreated, details, create)?;
            facts["token"] = json!(*token);
            let text = match is_json {
                true => context.terminal.json(&facts),
                false => Ok(format!("{}\n", *token)),
            };
            if let Err(error) = text.and_then(|text| context.terminal.print_once(&text)) {
                return Err(unseen(
                    &name,
                    &error,
                    revoke(context, &tokens, config.engine, &name),
                ));
            }
            if !is_json {
                let expires = expires.map(|until| format!("expires at {}", time::write_milliseconds(until)));
                let expires = expires.as_deref().unwrap_or("does not expire");
                context.terminal.note(&format!(
                    "it is not shown again; send it as `Authorization: Bearer TOKEN`; it {expires}"
                ));
            }
            Ok(ExitCode::SUCCESS)
        }
        TokenAction::List(shown) => {
            let entries = tokens.read().map_err(refused)?.unwrap_or_default();
            context.show(shown.json, &listed(&entries))
        }
        TokenAction::Revoke { name, shown } => {
            revoke(context, &tokens, config.engine, &name)?;
            let facts = json!({"name": name, "revoked": true});
            context.show(shown.json, &Rendered::new("revoked\n", facts))
        }
    }
}

fn revoke(
    context: &Context,
    tokens: &Tokens,
    settings: EngineSettings,
    name: &Namespace,
) -> Result<(), RequestError> {
    let none = || {
        let message = format!("`{name}` has no token.");
        RequestError::not_found(message, "`ringfence token list` shows who has one.")
    };
    let details = json!({"name": name});
    // Revoked before it is recorded: a record that cannot be written must not keep the token valid.
    let revoked = tokens.revoke(name).map_err(refused);
    let revoked = revoked.and_then(|existed| existed.then_some(()).ok_or_else(none));
    let (is_revoked, failed) = (revoked.is_ok(), revoked.clone());
    match on_record(context, settings, Action::TokenRevoked, details, || revoked) {
        Err(error) if is_revoked => {
            let why = format!("revoked, and not on record: {}", error.message);
            context.terminal.dim(&why);
            Ok(())
        }
        // Not the record's error: it would hide why the token is still valid.
        done => failed.and(done).map_err(|error| match error.code {
            ErrorCode::NotFound => error,
            _ => RequestError {
                message: format!("the token of `{name}` is still valid: {}", error.message),
                ..error
            },
        }),
    }
}

/// Error for a token that could not be written, and was therefore revoked.
fn unseen(name: &Namespace, error: &io::Error, revoked: Result<(), RequestError>) -> RequestError {
    let lost = format!("the token could not be written: {error}.");
    match revoked {
        Ok(()) => RequestError::fault(
            format!("{lost} It was revoked."),
            "Create it again, and write it where there is room.",
        ),
        Err(why) => RequestError::fault(
            format!("{lost} It is still valid: {}", why.message),
            format!("Make room, then run `ringfence token revoke {name}`."),
        ),
    }
}

/// Performs an action and records it, with an engine of our own, like changes of the vault.
fn on_record<T>(
    context: &Context,
    settings: EngineSettings,
    action: Action,
    details: Value,
    act: impl FnOnce() -> Result<T, RequestError>,
) -> Result<T, RequestError> {
    vault::warn_if_unrecorded(context, &settings.record);
    live::with_engine(settings, async |engine| {
        let caller = Caller::new("cli");
        engine.note_token(&caller, action, details, act).await
    })
}

fn entry(create: CreateToken) -> Result<TokenEntry, RequestError> {
    let named = create.namespace.iter().filter(|name| *name != ALL);
    let namespaces = named.map(|name| Namespace::try_from(name.clone()));
    let namespaces: Vec<Namespace> = namespaces.collect::<Result<_, _>>().map_err(|reason| {
        RequestError::invalid(format!("--namespace: {reason}."), "Write names, or `*` for all.")
    })?;
    let is_all = create.namespace.iter().any(|name| name == ALL);
    let limits = create.limits.request();
    check_caps(&limits).map_err(|error| RequestError {
        hint: "Name a limit within, or leave the flag out.".to_owned(),
        ..hints::limits_error_in_flags(error)
    })?;
    let now = time::now_milliseconds();
    let length = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    Ok(TokenEntry {
        namespaces: match (is_all, namespaces.is_empty()) {
            (true, true) => Vec::new(),
            (true, false) => {
                return Err(RequestError::invalid(
                    "--namespace: `*` means all namespaces, and others are given beside it.",
                    "Write names, or `*` alone.",
                ));
            }
            (false, true) => vec![create.name.clone()],
            (false, false) => namespaces,
        },
        name: create.name,
        sha256: String::new(),
        toolsets: create.toolsets,
        rate_per_minute: create.rate,
        detach_after_ms: create.detach_after,
        limits,
        role: create.role,
        created_unix_ms: now,
        expires_unix_ms: create.expires.map(|expires| now.saturating_add(length(expires))),
    })
}

/// Parses seconds into milliseconds, with the range of `calls.detach_after_seconds`.
fn detach_after_ms(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok();
    let milliseconds = seconds.and_then(|seconds| time::milliseconds_or_zero(seconds, DETACH_SECONDS_MAX));
    milliseconds.ok_or_else(|| format!("it is neither 0 nor within 0.001..={DETACH_SECONDS_MAX}"))
}

fn listed(entries: &[TokenEntry]) -> Rendered {
    let line = |entry: &TokenEntry| {
        let names = |names: Vec<&str>, none: &str| match names.is_empty() {
            true => none.to_owned(),
            false => names.join(","),
        };
        let namespaces = names(entry.namespaces.iter().map(Namespace::as_str).collect(), ALL);
        let toolsets = names(entry.toolsets.iter().map(String::as_str).collect(), EVERY);
        let role = entry.role;
        let expires = match entry.expires_unix_ms {
            None => "does not expire".to_owned(),
            Some(until) if until <= time::now_milliseconds() => "expired".to_owned(),
            Some(until) => format!("until {}", time::write_milliseconds(until)),
        };
        let rate = match entry.rate_per_minute {
            0 => String::new(),
            rate => format!(", {rate} requests a minute"),
        };
        let detach = match entry.detach_after_ms {
            None => String::new(),
            Some(0) => ", calls are not detached".to_owned(),
            Some(after_ms) => {
                let after = Duration::from_millis(after_ms).as_secs_f64();
                format!(", calls are detached after {after} s")
            }
        };
        let limits = json!(entry.limits);
        let limits = limits.as_object().into_iter().flatten();
        let limits = limits.filter(|(_, limit)| !limit.is_null());
        let limits: String = limits.map(|(name, limit)| format!(", {name} {limit}")).collect();
        format!(
            "{} {role} namespaces={namespaces} toolsets={toolsets}{rate}{detach}{limits}, {expires}\n",
            entry.name
        )
    };
    let text = match entries {
        [] => "there are no tokens\n".to_owned(),
        some => some.iter().map(line).collect(),
    };
    let facts: Vec<Value> = entries.iter().map(facts).collect();
    Rendered::new(text, json!({"tokens": facts}))
}

/// Facts about a token, without its digest, which stays in the file.
fn facts(entry: &TokenEntry) -> Value {
    let mut facts = json!(entry);
    if let Some(facts) = facts.as_object_mut() {
        facts.remove("sha256");
    }
    // An empty list means all, but would read as none.
    for (name, all) in [("namespaces", ALL), ("toolsets", EVERY)] {
        if facts[name] == json!([]) {
            facts[name] = json!([all]);
        }
    }
    facts
}

fn refused(error: TokenError) -> RequestError {
    let (code, hint) = match &error {
        TokenError::Exists(name) => (
            ErrorCode::InvalidArgument,
            format!("`ringfence token revoke {name}` takes it back; two tokens need two names."),
        ),
        TokenError::Full => (
            ErrorCode::InvalidArgument,
            "Revoke those that are not used.".to_owned(),
        ),
        TokenError::File(_) => (
            ErrorCode::InvalidConfiguration,
            "Run the command as the user who runs the server, on its RINGFENCE_STATE_DIR.".to_owned(),
        ),
        TokenError::Damaged(_) | TokenError::Random(_) => (
            ErrorCode::InvalidConfiguration,
            "Restore the file, or remove it and make the tokens again.".to_owned(),
        ),
    };
    RequestError::new(code, crate::sentence::sentence(&error.to_string()), hint)
}
