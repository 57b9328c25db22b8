//! `ringfence doctor`: tests every layer of isolation on this host and makes a sandbox from all of them, as `run` does.
//! Anything that would fail there fails here, with the one change that would help.

use super::{CommandResult, Context, ended, hints::rewrite, live, printed};
use crate::{
    executable::SELF,
    render::diagnostics::Style,
    sentence::sentence,
    settings::{Layer, LogLevel},
};
use clap::Args;
use ringfence_engine::{ContainerRuntime, Engine, EngineSettings, Runtime};
use ringfence_jail::doctor::{LayerReport, examine};
use ringfence_types::{Backend, ErrorCode, RequestError, Tier};
use serde_json::json;
use std::{path::Path, time::Duration};

#[derive(Debug, Args)]
pub(super) struct DoctorArguments {
    /// Print one JSON document
    #[arg(long, conflicts_with_all = ["seccomp", "apparmor", "compose", "kubernetes"])]
    json: bool,
    #[command(flatten)]
    print: Print,
}

/// Flags that print files for running Ringfence in containers.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Print {
    /// Print a seccomp profile for Docker and Podman that allows sandboxes, and test nothing
    #[arg(long)]
    seccomp: bool,
    /// Print an AppArmor profile that allows sandboxes, and test nothing
    #[arg(long)]
    apparmor: bool,
    /// Print a Compose file that uses them, and test nothing
    #[arg(long)]
    compose: bool,
    /// Print a Kubernetes manifest that uses them, and test nothing
    #[arg(long)]
    kubernetes: bool,
}

impl Print {
    fn text(&self) -> Option<&'static str> {
        [
            (self.seccomp, include_str!("../../../../packaging/seccomp.json")),
            (self.apparmor, include_str!("../../../../packaging/apparmor")),
            (self.compose, include_str!("../../../../packaging/compose.yaml")),
            (
                self.kubernetes,
                include_str!("../../../../packaging/kubernetes.yaml"),
            ),
        ]
        .into_iter()
        .find_map(|(wanted, text)| wanted.then_some(text))
    }
}

/// Exit code of a host where programs do not run as the configuration asks.
const NOT_MET: u8 = 1;
const WARM_TIMEOUT: Duration = Duration::from_secs(60);

type TierResult = (Tier, Result<Vec<Runtime>, RequestError>);

pub(super) fn doctor(context: &Context, arguments: &DoctorArguments) -> CommandResult {
    let terminal = context.terminal;
    if let Some(text) = arguments.print.text() {
        return printed(terminal.print(text.trim_end()));
    }
    let config = match context.settings(Layer::default(), LogLevel::Off) {
        Err(error) if error.code != ErrorCode::StoreFault => return Err(error),
        config => config,
    };
    let floor = config.as_ref().map_or(Tier::Full, |config| config.floor);
    let default = config
        .as_ref()
        .map(|config| config.engine.policy.backends.default);
    let default = default.unwrap_or(Backend::Native);
    // First, because it forks, which a process with several threads must not do.
    let layers = examine(Path::new(SELF));
    let host = match &config {
        Ok(config) if config.engine.host.is_some() => {
            let missing = async |engine: &Engine| engine.host_walls_missing().await;
            Some(ask_engine(&config.engine, config.engine.tier, missing)?)
        }
        _ => None,
    };
    let (tiers, containers) = match config {
        Ok(config) => (
            try_tiers(&config.engine, floor.native()),
            try_containers(&config.engine)?,
        ),
        // Without a state directory no tier can make a sandbox.
        Err(error) => (vec![(floor.native(), Err(error))], Vec::new()),
    };
    let of_floor = tiers.iter().find(|(tier, _)| *tier == floor.native());
    let of_floor = of_floor.map(|(_, made)| made.as_ref());
    let tier = tiers.iter().find(|(_, made)| made.is_ok()).map(|(tier, _)| *tier);
    let (runtimes, error) = (of_floor.and_then(Result::ok), of_floor.and_then(Result::err));
    let met = runtimes.is_some();
    let unusable = unusable(default, &containers);
    let printed = if arguments.json {
        let document = json!({
            "layers": layers, "tier": tier, "floor": floor, "floor_met": met,
            "error": error.or(unusable.as_ref()), "warm": runtimes, "containers": containers,
            "backend": default, "host_walls_missing": host,
        });
        terminal.print_json(&document)
    } else {
        let mark = |mark, word: &str| terminal.mark(mark, word);
        let layers = render(&layers, mark);
        let verdict = render_verdict(tier, floor, error, mark);
        let warm = render_warm(runtimes, mark);
        let mut containers = render_containers(&containers, mark);
        if let Some(error) = &unusable {
            let not_met = mark(Style::Error, "NOT met");
            containers += &format!("default backend: {default}, {not_met}\n  {}\n", error.hint);
        }
        let host = render_host(host.as_deref());
        terminal.print(&format!("{layers}\n{verdict}\n{warm}{containers}{host}"))
    };
    ended(printed, if met && unusable.is_none() { 0 } else { NOT_MET })
}

fn ask_engine<T>(
    settings: &EngineSettings,
    tier: Tier,
    ask: impl AsyncFnOnce(&Engine) -> Result<T, RequestError>,
) -> Result<T, RequestError> {
    live::wait(async {
        let engine = Engine::open(EngineSettings {
            tier,
            ..settings.clone()
        })?;
        let found = ask(&engine).await;
        engine.shutdown().await;
        found
    })
}

fn render_host(missing: Option<&[String]>) -> String {
    match missing {
        None => String::new(),
        Some([]) => "\nCommands of the host have all their walls.\n".to_owned(),
        Some(missing) => {
            let lines = missing.iter().map(|wall| format!("  {wall}\n"));
            "\nCommands of the host lack walls:\n".to_owned() + &lines.collect::<String>()
        }
    }
}

/// Tries the strongest tier, then the weaker one if it is the floor or if the strongest failed. Each try makes one
/// sandbox, runs each interpreter in one, and warms up the sandboxes that `serve` would keep ready.
fn try_tiers(settings: &EngineSettings, floor: Tier) -> Vec<TierResult> {
    let is_native = settings.policy.backends.allowed.contains(&Backend::Native);
    let result_of = |tier| {
        let tried = ask_engine(settings, tier, async |engine: &Engine| match is_native {
            true => try_engine(engine).await,
            // Programs run in containers alone; checks and other workers need this sandbox.
            false => engine.prove().await.map(|()| Vec::new()),
        });
        (tier, tried)
    };
    let full = result_of(Tier::Full);
    let enough = full.1.is_ok() && floor == Tier::Full;
    let weaker = (!enough).then(|| result_of(Tier::Landlock));
    [full].into_iter().chain(weaker).collect()
}

/// Runs one program in a container of each allowed backend. Empty if only native sandboxes are allowed.
fn try_containers(settings: &EngineSettings) -> Result<Vec<ContainerRuntime>, RequestError> {
    let allowed = &settings.policy.backends.allowed;
    if !allowed.iter().any(|backend| *backend != Backend::Native) {
        return Ok(Vec::new());
    }
    ask_engine(settings, settings.tier, async |engine| {
        Ok(engine.prove_containers().await)
    })
}

/// Error if the backend of programs that name none is a container's and cannot run them.
fn unusable(default: Backend, containers: &[ContainerRuntime]) -> Option<RequestError> {
    let runtime = containers.iter().find(|runtime| runtime.backend == default)?;
    let reason = runtime.reason.as_ref()?;
    Some(RequestError::runtime_unavailable(
        format!("programs use {default}, which cannot run them: {reason}"),
        "Do what is said there, or set `backend: native`.",
    ))
}

fn render_containers(runtimes: &[ContainerRuntime], mark: impl Fn(Style, &str) -> String) -> String {
    let line = |runtime: &ContainerRuntime| {
        let (sign, state, detail) = match &runtime.reason {
            Some(reason) if !runtime.allowed => (Style::Plain, "off", rewrite(reason)),
            Some(reason) => (Style::Error, "FAILED", rewrite(reason)),
            None => {
                let mut detail = format!("engine {}", runtime.engine.as_deref().unwrap_or("no engine"));
                if !runtime.images_missing.is_empty() {
                    detail += &format!("; not there yet: {}", runtime.images_missing.join(", "));
                }
                (Style::Good, "ready", detail)
            }
        };
        let state = mark(sign, &format!("{state:8}"));
        format!("{:10}  {state} {detail}\n", runtime.backend)
    };
    runtimes.iter().map(line).collect()
}

async fn try_engine(engine: &Engine) -> Result<Vec<Runtime>, RequestError> {
    engine.prove().await?;
    let runtimes = engine.runtimes().await;
    let found = runtimes.iter().any(|runtime| runtime.path.is_some());
    if found && !runtimes.iter().any(|runtime| runtime.available) {
        let reason = runtimes.into_iter().find_map(|runtime| runtime.reason);
        let reason = reason.unwrap_or_default();
        return Err(RequestError::fault(
            sentence(&format!("no interpreter starts in a sandbox: {reason}")),
            "Set `runtimes` in the configuration to interpreters that work here.",
        ));
    }
    engine.warm_up();
    let all = engine.warmed_up(WARM_TIMEOUT).await;
    let mut runtimes = engine.runtimes().await;
    for runtime in runtimes.iter_mut().filter(|runtime| !all && !runtime.warm) {
        let late = || "its sandboxes are not ready after a minute".to_owned();
        runtime.trouble.get_or_insert_with(late);
    }
    Ok(runtimes)
}

fn render_verdict(
    tier: Option<Tier>,
    floor: Tier,
    error: Option<&RequestError>,
    mark: impl Fn(Style, &str) -> String,
) -> String {
    let gives = tier.map_or("none", Tier::as_str);
    match error {
        None => format!(
            "this host gives: {gives}; runs use: {floor}, {}\n",
            mark(Style::Good, "met")
        ),
        Some(error) => format!(
            "a sandbox ({floor}): {} {}\n  {}\nthis host gives: {gives}; runs use: {floor}, {}\n",
            mark(Style::Error, "FAILED"),
            error.message,
            error.hint,
            mark(Style::Error, "NOT met")
        ),
    }
}

fn render_warm(runtimes: Option<&Vec<Runtime>>, mark: impl Fn(Style, &str) -> String) -> String {
    let mut text = String::new();
    for runtime in runtimes.into_iter().flatten() {
        let (sign, state, detail) = match (&runtime.trouble, &runtime.reason) {
            (_, Some(reason)) => (Style::Error, "absent", reason.clone()),
            (Some(trouble), None) => (Style::Error, "trouble", trouble.clone()),
            (None, None) if runtime.ready == 0 => (Style::Good, "cold", "started by each run".to_owned()),
            (None, None) => {
                let (ready, memory) = (runtime.ready, runtime.memory_bytes >> 20);
                let modules = runtime.preloaded.len();
                let detail = format!("{ready} ready, {memory} MiB, {modules} modules imported");
                (Style::Good, "warm", detail)
            }
        };
        let language = runtime.language.as_str();
        text += &format!("{language:10}  {} {detail}\n", mark(sign, &format!("{state:8}")));
    }
    text
}

fn render(layers: &[LayerReport], mark: impl Fn(Style, &str) -> String) -> String {
    let width = layers.iter().map(|layer| layer.layer.len()).max().unwrap_or(0);
    let mut text = String::new();
    for layer in layers {
        let sign = if layer.present { Style::Good } else { Style::Error };
        let state = mark(sign, &format!("{:8}", state(layer)));
        text += &format!("{:width$}  {state} {}\n", layer.layer, layer.detail);
        if let Some(fix) = &layer.fix {
            text += &format!("{:width$}           fix: {fix}\n", "");
        }
    }
    text
}

fn state(layer: &LayerReport) -> &'static str {
    match (layer.present, layer.required) {
        (true, _) => "ok",
        (false, true) => "MISSING",
        (false, false) => "absent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_layer_is_shown_with_fix_and_verdict() {
        let layer = |layer, present, required, fix: Option<&str>| LayerReport {
            layer,
            present,
            required,
            detail: "detail".to_owned(),
            fix: fix.map(str::to_owned),
        };
        let layers = vec![
            layer("landlock", true, true, None),
            layer("user_namespace", false, true, Some("sysctl")),
            layer("cgroup", false, false, Some("systemd-run")),
        ];
        let plain = |_, word: &str| word.to_owned();
        let text = render(&layers, plain);
        assert!(text.contains("landlock        ok       detail\n"), "{text}");
        assert!(text.contains("user_namespace  MISSING  detail\n"), "{text}");
        assert!(
            text.contains("fix: sysctl\n") && text.contains("cgroup          absent"),
            "{text}"
        );
        let error = RequestError::new(ErrorCode::BelowFloor, "new namespaces: refused.", "sysctl");
        let text = render_verdict(Some(Tier::Landlock), Tier::Full, Some(&error), plain);
        assert!(
            text.contains("FAILED new namespaces: refused.\n  sysctl\n"),
            "{text}"
        );
        assert!(
            text.ends_with("this host gives: landlock; runs use: full, NOT met\n"),
            "{text}"
        );
        let text = render_verdict(Some(Tier::Full), Tier::Landlock, None, plain);
        assert_eq!(text, "this host gives: full; runs use: landlock, met\n");
    }
}
