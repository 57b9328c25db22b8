//! `ringfence doctor`: every layer, tried on this host.

use super::{Context, fault};
use crate::{
    settings::{Layer, LogLevel},
    terminal::Mark,
};
use clap::Args;
use ringfence_engine::{Engine, EngineSettings, Runtime};
use ringfence_jail::doctor::{HostReport, LayerReport, examine};
use ringfence_types::{RequestError, Tier};
use serde_json::json;
use std::{process::ExitCode, time::Duration};

#[derive(Debug, Args)]
pub(super) struct DoctorArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Exit code of a host that does not meet the floor.
const BELOW_FLOOR: u8 = 1;
/// How long templates may take.
const WARM_PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn doctor(context: &Context, arguments: &DoctorArguments) -> Result<ExitCode, RequestError> {
    let config = context.settings(Layer::default(), LogLevel::Error)?;
    let floor = config.floor.tier();
    let report = examine();
    let met = report.gives(floor);
    let warm = if met { try_warm(config.engine) } else { Ok(None) };
    let terminal = context.terminal;
    if arguments.json {
        let document = json!({
            "layers": report.layers, "tier": report.tier, "floor": floor, "floor_met": met,
            "warm": warm.as_ref().ok(), "warm_error": warm.as_ref().err().map(|error| &error.message),
        });
        terminal.print_json(&document)
    } else {
        let mark = |mark, word: &str| terminal.mark(mark, word);
        terminal.print(&(render(&report, floor, mark) + "\n" + &render_warm(&warm, mark)))
    }
    .map_err(|error| fault("print", &error))?;
    Ok(if met {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BELOW_FLOOR)
    })
}

/// Makes what `serve` would keep ready, once; `None`: it keeps nothing ready.
fn try_warm(settings: EngineSettings) -> Result<Option<Vec<Runtime>>, RequestError> {
    if settings.warm.ready == 0 || settings.tier != Tier::Full {
        return Ok(None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| fault("start", &error))?.block_on(async {
        let engine = Engine::open(settings)?;
        engine.warm_up();
        engine.runtimes().await; // which asks each for its version, and takes a sandbox for that
        let all = engine.warmed_up(WARM_PATIENCE).await;
        let mut runtimes = engine.runtimes().await;
        for runtime in runtimes.iter_mut().filter(|runtime| !all && !runtime.warm) {
            let late = || "its sandboxes are not ready after a minute".to_owned();
            runtime.trouble.get_or_insert_with(late);
        }
        engine.shutdown().await;
        Ok(Some(runtimes))
    })
}

/// One line for each language that is there: what stands ready for it, or why nothing does.
fn render_warm(
    warm: &Result<Option<Vec<Runtime>>, RequestError>,
    mark: impl Fn(Mark, &str) -> String,
) -> String {
    let runtimes = match warm {
        Ok(Some(runtimes)) => runtimes,
        Ok(None) => return "warm starts: off\n".to_owned(),
        Err(error) => return format!("warm starts: {} {}\n", mark(Mark::Bad, "trouble"), error.message),
    };
    let mut text = String::new();
    for runtime in runtimes {
        let (sign, state, detail) = match (&runtime.trouble, &runtime.reason) {
            (_, Some(reason)) => (Mark::Bad, "absent", reason.clone()),
            (Some(trouble), None) => (Mark::Bad, "trouble", trouble.clone()),
            (None, None) => {
                let (ready, memory) = (runtime.ready, runtime.memory_bytes >> 20);
                let modules = runtime.preloaded.len();
                let detail = format!("{ready} ready, {memory} MiB, {modules} modules imported");
                (Mark::Good, "warm", detail)
            }
        };
        let language = runtime.language.as_str();
        text += &format!("{language:10}  {} {detail}\n", mark(sign, &format!("{state:8}")));
    }
    text
}

/// One line for each layer, and one for each fix; the verdict last.
pub(super) fn render(report: &HostReport, floor: Tier, mark: impl Fn(Mark, &str) -> String) -> String {
    let width = report
        .layers
        .iter()
        .map(|layer| layer.layer.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for layer in &report.layers {
        let state = mark(
            if layer.present { Mark::Good } else { Mark::Bad },
            &format!("{:8}", state(layer)),
        );
        text += &format!("{:width$}  {state} {}\n", layer.layer, layer.detail);
        if let Some(fix) = &layer.fix {
            text += &format!("{:width$}           fix: {fix}\n", "");
        }
    }
    let met = report.gives(floor);
    let tier = report.tier.map_or("none", Tier::as_str);
    let (sign, verdict) = if met {
        (Mark::Good, "met")
    } else {
        (Mark::Bad, "NOT met")
    };
    text + &format!(
        "\nthis host gives: {tier}; runs use: {floor}, {}",
        mark(sign, verdict)
    )
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
    fn a_missing_layer_is_shown_with_its_fix_and_the_verdict() {
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
        let report = HostReport {
            layers,
            tier: Some(Tier::Landlock),
        };
        let text = render(&report, Tier::Full, |_, word| word.to_owned());
        assert!(text.contains("landlock        ok       detail\n"), "{text}");
        assert!(text.contains("user_namespace  MISSING  detail\n"), "{text}");
        assert!(
            text.contains("fix: sysctl\n") && text.contains("cgroup          absent"),
            "{text}"
        );
        assert!(
            text.ends_with("this host gives: landlock; runs use: full, NOT met"),
            "{text}"
        );
        assert!(
            render(&report, Tier::Landlock, |_, word| word.to_owned()).ends_with("runs use: landlock, met")
        );
    }
}
