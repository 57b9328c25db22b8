//! `list_runtimes` and `get_sandbox_info`: what this server has, truthfully.

use super::{Answer, execute_code::LIMIT_NAMES};
use crate::shown::in_words;
use ringfence_engine::{Runtime, SandboxInfo};
use serde_json::{Map, Value, json};

/// Modules of the profiles of the contract. In this version a profile can be read about and not chosen.
pub(super) const PROFILES: [(&str, &[&str]); 4] = [
    ("basic", ringfence_engine::BASIC_MODULES),
    (
        "data_science",
        &[
            "numpy",
            "pandas",
            "scipy",
            "matplotlib",
            "seaborn",
            "sklearn",
            "statsmodels",
            "plotly",
            "sympy",
        ],
    ),
    (
        "network",
        &[
            "httpx",
            "requests",
            "urllib.request",
            "aiohttp",
            "websocket",
            "ftplib",
            "smtplib",
            "email",
        ],
    ),
    (
        "filesystem",
        &[
            "pathlib", "os.path", "tempfile", "shutil", "glob", "zipfile", "tarfile",
        ],
    ),
];

pub(super) fn runtimes(runtimes: &[Runtime]) -> Answer {
    let mut text = String::new();
    for runtime in runtimes {
        let line = match (&runtime.path, &runtime.reason) {
            (Some(path), None) => {
                let version = runtime.version.as_deref().unwrap_or("version unknown");
                let state = match &runtime.trouble {
                    _ if runtime.warm => format!(
                        "warm ({} ready, {} MiB, {} modules imported)",
                        runtime.ready,
                        runtime.memory_bytes >> 20,
                        runtime.preloaded.len()
                    ),
                    Some(trouble) => format!("cold, because {trouble}"),
                    None => "cold".to_owned(),
                };
                format!("{version} at {}, tier {}, {state}", path.display(), runtime.tier)
            }
            (_, reason) => format!(
                "not available: {}",
                reason.as_deref().unwrap_or("no reason given")
            ),
        };
        text += &format!("{}: {line}\n", runtime.language);
    }
    Answer::plain(text, json!({"success": true, "runtimes": runtimes}))
}

pub(super) fn sandbox(info: &SandboxInfo) -> Answer {
    let profiles: Map<String, Value> = PROFILES
        .iter()
        .map(|(name, modules)| ((*name).to_owned(), json!({"enabled": false, "modules": modules})))
        .collect();
    let (defaults, caps) = (in_words(&info.defaults), in_words(&info.caps));
    let structured = json!({
        "success": true,
        "security_profiles": profiles,
        "resource_limits": defaults,
        "container_mode": {"available": false, "enabled": false, "runtimes": []},
        "isolation": info.isolation,
        "limits": {"defaults": defaults, "caps": caps},
    });
    let mut text = format!("isolation: {}\n", info.isolation.tier);
    for (name, layer) in &info.isolation.layers {
        text += &format!(
            "  {name}: {}{}\n",
            if layer.active { "" } else { "off, " },
            layer.detail
        );
    }
    for name in LIMIT_NAMES {
        text += &format!("{name}: {} (at most {})\n", defaults[name], caps[name]);
    }
    text += "network: none; security profiles: not enforced, imports are not restricted\n";
    Answer::plain(text, structured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::schemas::{self, tests::conforms};
    use ringfence_types::{Isolation, Language, LayerState, Limits, Tier};
    use std::collections::BTreeMap;

    fn limits() -> Limits {
        Limits {
            memory_bytes: 512 << 20,
            cpu_millicores: 1000,
            timeout_ms: 60_000,
            processes: 64,
            output_bytes: 1_000_000,
            disk_bytes: 512 << 20,
        }
    }

    #[test]
    fn sandbox_info_is_truthful_and_as_its_schema_says() {
        let layers = BTreeMap::from([(
            "seccomp".to_owned(),
            LayerState {
                active: true,
                detail: "allowlist".into(),
            },
        )]);
        let isolation = Isolation {
            tier: Tier::Full,
            layers,
        };
        let answer = sandbox(&SandboxInfo {
            isolation,
            defaults: limits(),
            caps: limits(),
        });
        conforms(&schemas::sandbox_info(), &answer.structured);
        for (name, _) in PROFILES {
            assert_eq!(
                answer.structured["security_profiles"][name]["enabled"],
                json!(false)
            );
        }
        assert_eq!(answer.structured["container_mode"]["available"], json!(false));
        assert!(
            answer.text.contains("max_ram_mb: 512 (at most 512)"),
            "{}",
            answer.text
        );
    }

    #[test]
    fn runtimes_are_as_their_schema_says_and_absence_has_a_reason() {
        let present = Runtime {
            language: Language::Python,
            available: true,
            path: Some("/usr/bin/python3".into()),
            version: Some("3.12.1".into()),
            backends: vec!["native".into()],
            tier: "full".into(),
            warm: false,
            ready: 0,
            trouble: None,
            preloaded: Vec::new(),
            memory_bytes: 0,
            reason: None,
        };
        let absent = Runtime {
            language: Language::Node,
            available: false,
            path: None,
            version: None,
            reason: Some("no node on PATH".into()),
            ..present.clone()
        };
        let answer = runtimes(&[present, absent]);
        conforms(&schemas::runtimes(), &answer.structured);
        assert!(
            answer
                .text
                .contains("python: 3.12.1 at /usr/bin/python3, tier full, cold\n"),
            "{}",
            answer.text
        );
        assert!(
            answer.text.contains("node: not available: no node on PATH\n"),
            "{}",
            answer.text
        );
    }
}
