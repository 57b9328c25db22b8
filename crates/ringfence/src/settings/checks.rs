//! The section `check`: importable modules and schemas. A variable of other servers may change several of its settings.

use super::{
    Environment, Faults,
    check_words::SchemaSource,
    environment::ProfileAliases,
    expand,
    keys::{Effective, Origin},
    read_text, refusal,
    words::List,
};
use crate::settings::aliases::Offered;
use ringfence_engine::CheckSettings;
use ringfence_types::{Profile, RequestError};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Applies the aliases. A restricting `check.profile` narrows the callers' choice, unless `check.profiles` is set.
pub(super) fn apply_aliases(settings: &mut Effective, aliases: ProfileAliases, faults: &Faults) {
    let profile = &mut settings.check_profile;
    if let Some(name) = aliases.restricts
        && profile.origin == Origin::Default
    {
        profile.value = Profile::Basic;
        profile.origin = Origin::Environment(name);
    }
    let (chosen, origin) = (profile.value, profile.origin.clone());
    let offered = &mut settings.check_profiles;
    if offered.origin == Origin::Default && chosen != Profile::Unrestricted {
        let mut narrower = vec![chosen, Profile::Strict];
        narrower.dedup();
        offered.value = List::of(narrower);
        offered.origin = origin;
    }
    for (name, profile, switch) in aliases.offers {
        let mut profiles = offered.to_vec();
        let is_there = profiles.contains(&profile);
        match switch {
            Offered::Yes if !is_there => profiles.push(profile),
            Offered::No if chosen == profile => {
                faults.add(refusal(
                    format!(
                        "{name} turns the profile `{}` off, and it is check.profile ({}).",
                        profile.as_str(),
                        settings.check_profile.origin
                    ),
                    "Unset one of them.",
                ));
                continue;
            }
            Offered::No if is_there => profiles.retain(|other| *other != profile),
            Offered::Yes | Offered::No => continue,
        }
        offered.value = List::of(profiles);
        offered.origin = Origin::Environment(name);
    }
}

/// Schemas are read and checked now: a wrong one is reported at the server's start, and not to its first caller.
pub(super) fn check(environment: &Environment, settings: &Effective, faults: &Faults) -> CheckSettings {
    let profile = settings.check_profile.value;
    let profiles: BTreeSet<Profile> = settings.check_profiles.iter().copied().chain([profile]).collect();
    CheckSettings {
        profile,
        profiles,
        only_allowed_imports: environment.profile_aliases().restricts.is_some(),
        allowed_imports: settings.check_allowed_imports.iter().cloned().collect(),
        known_imports: settings.check_known_imports.items().clone(),
        schemas: schemas(environment, settings, faults),
    }
}

fn schemas(environment: &Environment, settings: &Effective, faults: &Faults) -> BTreeMap<String, Value> {
    let setting = &settings.check_schemas;
    let one = |(name, source): (&String, &SchemaSource)| {
        let place = |what: &str| format!("schema `{name}` ({}): {what}", setting.origin);
        let schema = match source {
            SchemaSource::Here(schema) => schema.clone(),
            SchemaSource::File(path) => {
                let path = expand(environment, path, &setting.origin)?;
                read(&path).map_err(|reason| {
                    refusal(
                        place(&format!("{}: {reason}.", path.display())),
                        "Name a file with a JSON Schema.",
                    )
                })?
            }
        };
        ringfence_engine::check_schema(&schema).map_err(|reason| {
            refusal(
                crate::sentence::sentence(&place(&reason)),
                "Correct the schema; a `$ref` may refer only to a place within it.",
            )
        })?;
        Ok::<_, RequestError>((name.clone(), schema))
    };
    let all = setting.items().iter();
    all.filter_map(|item| faults.keep(one(item))).collect()
}

fn read(path: &Path) -> Result<Value, String> {
    let (text, _) = read_text(path).map_err(|error| error.to_string())?;
    ringfence_engine::read_exactly(&text).map_err(|error| format!("it {error}"))
}
