//! `install_package`: packages that are there before the program that imports them.

use super::{
    Answer, Offer,
    arguments::{Arguments, NAMESPACE, invalid},
    execute_code::{LANGUAGE, PACKAGES, SESSION, language, packages},
    progress,
    sessions::session_id,
};
use ringfence_engine::{Caller, Engine, Installed, Package, PackageWish};
use ringfence_types::{Language, RequestError};
use rmcp::{RoleServer, service::RequestContext};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

/// Who asks is filled in by the caller.
pub(super) fn parse(
    arguments: Map<String, Value>,
    offer: &Offer,
    caller: &Caller,
) -> Result<PackageWish, RequestError> {
    let mut arguments = Arguments::open(arguments, "", &[LANGUAGE, PACKAGES, SESSION, NAMESPACE])?;
    let language = language(&mut arguments)?.unwrap_or(Language::Python);
    let packages = packages(&mut arguments, language)?;
    if packages.is_empty() {
        return Err(invalid(
            "no package is named.".to_owned(),
            "Name them in `packages`, as numpy or lodash@4.",
        ));
    }
    Ok(PackageWish {
        caller: caller.clone(),
        namespace: arguments.namespace(offer.namespaces)?,
        language,
        packages,
        session: session_id(&mut arguments, SESSION)?,
    })
}

/// A caller who cancels or leaves takes the installation along.
pub(super) async fn call(
    engine: &Engine,
    wish: PackageWish,
    tool: &str,
    context: &RequestContext<RoleServer>,
    gone: &CancellationToken,
) -> Result<Answer, RequestError> {
    engine
        .note_call(&wish.caller, wish.namespace.as_str(), tool)
        .await?;
    let installation = engine.install(wish);
    let canceller = installation.canceller();
    let following = progress::follow(installation, progress::Reporter::for_call(context));
    tokio::pin!(following);
    let installed = tokio::select! {
        installed = &mut following => installed,
        () = context.ct.cancelled() => { canceller.cancel(); following.await }
        () = gone.cancelled() => { canceller.cancel(); following.await }
    };
    Ok(answer(&installed?))
}

fn answer(installed: &Installed) -> Answer {
    let fact = |package: &Package| {
        json!({
            "name": package.name,
            "version": package.version,
            "sha256": package.sha256,
            "integrity": package.integrity,
        })
    };
    let names: Vec<String> = installed
        .packages
        .iter()
        .map(|package| format!("{} {}", package.name, package.version))
        .collect();
    let how = if installed.output.is_empty() {
        "there already"
    } else {
        "installed"
    };
    let mut text = format!("{how}: {}", names.join(", "));
    if !installed.replaced.is_empty() {
        text += &format!(
            "\nthe session had {} before: modules that it has imported of that stay as they are; a new session has what is installed now.",
            installed.replaced.join(", ")
        );
    }
    Answer::plain(
        text,
        json!({
            "success": true,
            "installed": installed.packages.iter().map(fact).collect::<Vec<_>>(),
            "output": installed.output,
            "replaced": installed.replaced,
            "duration_ms": installed.duration.as_secs_f64() * 1000.0,
        }),
    )
}
