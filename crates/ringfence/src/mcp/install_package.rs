//! `install_package`: packages that are installed before the program that imports them runs.

use super::{Answer, call::Call, progress};
use crate::api::{InstallPackage, invalid};
use ringfence_engine::Installed;
use ringfence_types::{Language, Namespace, RequestError, requirements};
use serde_json::json;

impl Call<'_> {
    /// Installs packages. A caller that cancels or hangs up cancels the installation.
    pub(super) async fn install_package(
        &self,
        given: InstallPackage,
        namespace: Namespace,
    ) -> Result<Answer, RequestError> {
        let language = given.language.map_or(Language::Python, |word| word.0);
        let packages = requirements(language, &given.packages.0)?;
        if packages.is_empty() {
            return Err(invalid(
                "no package is named.",
                "Name them in `packages`, as numpy or lodash@4.",
            ));
        }
        let access = self.namespace(&namespace);
        let installation = access.install(language, packages, given.session_id);
        let leave = self.cancel(installation.canceller());
        match progress::follow(installation, self.reporter.as_ref(), leave).await {
            Ok(installed) => Ok(answer(&installed?)),
            Err(never) => match never {},
        }
    }
}

fn answer(installed: &Installed) -> Answer {
    let packages = installed.packages.iter();
    let names = packages.map(|package| format!("{} {}", package.name, package.version));
    let names: Vec<String> = names.collect();
    let how = if installed.output.is_empty() {
        "there already"
    } else {
        "installed"
    };
    let mut text = match names.as_slice() {
        [] => "the session has them already".to_owned(),
        names => format!("{how}: {}", names.join(", ")),
    };
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
            "installed": installed.packages,
            "output": installed.output,
            "replaced": installed.replaced,
            "duration_ms": crate::time::in_milliseconds(installed.duration),
        }),
    )
}
