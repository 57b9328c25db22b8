//! `list_runtimes` and `get_sandbox_info`: languages, isolation and limits of this server.

use super::{Answer, Offer};
use crate::render::{in_words, limits_facts, limits_text};
use ringfence_engine::{CheckSettings, ContainerRuntime, Runtime, SandboxInfo};
use ringfence_types::Profile;
use serde_json::{Map, Value, json};

/// Facts that reveal other users of this server: the number of ready sandboxes, their memory, and their errors.
const SERVER_FACTS: [&str; 3] = ["ready", "memory_bytes", "trouble"];

pub(super) fn runtimes(runtimes: &[Runtime], offer: &Offer) -> Answer {
    let shows_server = offer.shows_server();
    let mut text = String::new();
    for runtime in runtimes {
        let line = match (&runtime.path, &runtime.reason) {
            (Some(path), None) => {
                let version = runtime.version.as_deref().unwrap_or("version unknown");
                let state = match &runtime.trouble {
                    _ if runtime.warm && shows_server => format!(
                        "warm ({} ready, {} MiB, {} modules imported)",
                        runtime.ready,
                        runtime.memory_bytes >> 20,
                        runtime.preloaded.len()
                    ),
                    _ if runtime.warm => format!("warm ({} modules imported)", runtime.preloaded.len()),
                    Some(trouble) if shows_server => format!("cold, because {trouble}"),
                    _ => "cold".to_owned(),
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
    let facts = runtimes.iter().map(|runtime| {
        let mut facts = json!(runtime);
        if let (Value::Object(facts), false) = (&mut facts, shows_server) {
            facts.retain(|name, _| !SERVER_FACTS.contains(&name.as_str()));
        }
        facts
    });
    let facts: Vec<Value> = facts.collect();
    Answer::plain(text, json!({"success": true, "runtimes": facts}))
}

pub(super) fn sandbox(
    info: &SandboxInfo,
    check: &CheckSettings,
    hosts: &[String],
    containers: &[ContainerRuntime],
) -> Answer {
    let offered: Vec<Profile> = check.offered().collect();
    let one = |profile: &Profile| {
        let modules = check.modules(*profile).unwrap_or_default();
        let facts = json!({"enabled": offered.contains(profile), "modules": modules});
        (profile.as_str().to_owned(), facts)
    };
    let profiles: Map<String, Value> = Profile::ALL.iter().map(one).collect();
    let structured = json!({
        "success": true,
        "security_profiles": profiles,
        "resource_limits": in_words(&info.defaults),
        "container_mode": {
            "available": containers.iter().any(|runtime| runtime.available),
            "enabled": containers.iter().any(|runtime| runtime.allowed),
            "runtimes": containers,
        },
        "isolation": info.isolation,
        "limits": limits_facts(&info.defaults, &info.caps),
    });
    let mut text = format!("isolation: {}\n", info.isolation.tier);
    for (name, layer) in &info.isolation.layers {
        text += &format!(
            "  {name}: {}{}\n",
            if layer.active { "" } else { "off, " },
            layer.detail
        );
    }
    for runtime in containers.iter().filter(|runtime| runtime.allowed) {
        let state = runtime.reason.as_deref().unwrap_or("available");
        text += &format!("backend {} (tier {}): {state}\n", runtime.backend, runtime.tier);
    }
    text += &limits_text(&info.defaults, &info.caps);
    let offered: Vec<&str> = offered.into_iter().map(Profile::as_str).collect();
    let reached = match hosts {
        [] => "none".to_owned(),
        hosts => hosts.join(", "),
    };
    text += &format!(
        "hosts that programs may reach: {reached}\nprofile of Python programs that name none: {}; to choose from: {}\n",
        check.profile.as_str(),
        offered.join(", ")
    );
    Answer::plain(text, structured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{self, conforms},
        mcp::tests::offer,
        settings::{self, Namespaces},
    };
    use ringfence_types::{Isolation, Language, LayerState, Namespace, Tier};
    use std::collections::BTreeMap;

    #[test]
    fn sandbox_info_matches_settings_and_schema() {
        let layers = BTreeMap::from([(
            "seccomp".to_owned(),
            LayerState {
                active: true,
                detail: "allowlist".into(),
            },
        )]);
        let isolation = Isolation::new(Tier::Full, layers);
        let policy = settings::default_config().unwrap().engine.policy;
        let check = CheckSettings {
            profile: Profile::Basic,
            profiles: [Profile::Strict].into(),
            allowed_imports: ["yaml".parse().unwrap()].into(),
            ..policy.check
        };
        let info = SandboxInfo {
            isolation,
            caps: policy.defaults.clone(),
            defaults: policy.defaults,
        };
        let answer = sandbox(&info, &check, &["a.example".to_owned()], &[]);
        conforms::<api::GetSandboxInfo>(&answer.structured);
        for profile in Profile::ALL {
            let facts = &answer.structured["security_profiles"][profile.as_str()];
            let is_offered = matches!(profile, Profile::Basic | Profile::Strict);
            assert_eq!(facts["enabled"], json!(is_offered), "{profile:?}");
            let modules = facts["modules"].as_array().unwrap();
            let restricts = *profile != Profile::Unrestricted;
            assert_eq!(modules.contains(&json!("yaml")), restricts, "{profile:?}");
            assert_eq!(modules.contains(&json!("math")), restricts, "{profile:?}");
        }
        assert_eq!(answer.structured["container_mode"]["available"], json!(false));
        assert!(
            answer.text.contains("max_ram_mb: 512 (at most 512)"),
            "{}",
            answer.text
        );
        let hosts = "hosts that programs may reach: a.example\n";
        assert!(answer.text.contains(hosts), "{}", answer.text);
    }

    #[test]
    fn runtimes_match_their_schema_and_absence_has_a_reason() {
        let present = Runtime {
            language: Language::Python,
            available: true,
            path: Some("/usr/bin/python3".into()),
            version: Some("3.12.1".into()),
            backends: vec!["native".into()],
            containers_ready: BTreeMap::new(),
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
        let confined = Offer {
            namespaces: Namespaces::Of(vec![Namespace::default_name()].into()),
            ..offer()
        };
        let warm = Runtime {
            warm: true,
            ready: 3,
            memory_bytes: 77 << 20,
            trouble: Some("it is out of memory".into()),
            ..present.clone()
        };
        for runtime in [&warm, &present] {
            let listed = runtimes(std::slice::from_ref(runtime), &confined);
            conforms::<api::ListRuntimes>(&listed.structured);
            let all = listed.text + &listed.structured.to_string();
            for word in ["ready", "77", "memory", "cold, because"] {
                assert!(!all.contains(word), "{word}: {all}");
            }
        }
        assert!(runtimes(&[warm], &offer()).text.contains("warm (3 ready, 77 MiB"));
        let answer = runtimes(&[present, absent], &offer());
        conforms::<api::ListRuntimes>(&answer.structured);
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
