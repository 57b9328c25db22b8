//! `ringfence doctor`: every layer, tried on this host.

use super::{Context, fault};
use crate::{
    settings::{Layer, LogLevel},
    terminal::Mark,
};
use clap::Args;
use ringfence_jail::doctor::{HostReport, LayerReport, examine};
use ringfence_types::{RequestError, Tier};
use serde_json::json;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct DoctorArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Exit code of a host that does not meet the floor.
const BELOW_FLOOR: u8 = 1;

pub(super) fn doctor(context: &Context, arguments: &DoctorArguments) -> Result<ExitCode, RequestError> {
    let config = context.settings(Layer::default(), LogLevel::Error)?;
    let floor = config.floor.tier();
    let report = examine();
    let met = report.gives(floor);
    let terminal = context.terminal;
    if arguments.json {
        let document =
            json!({"layers": report.layers, "tier": report.tier, "floor": floor, "floor_met": met});
        terminal.print_json(&document)
    } else {
        terminal.print(&(render(&report, floor, |mark, word| terminal.mark(mark, word)) + "\n"))
    }
    .map_err(|error| fault("print", &error))?;
    Ok(if met {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BELOW_FLOOR)
    })
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
