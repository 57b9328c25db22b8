//! The table of settings as text: `config show`, `config schema`, `config example`.

use super::{Config, keys::KEYS};
use serde_json::{Map, Value, json};

pub(crate) fn table(config: &Config) -> (String, Value) {
    let rows = config.effective.rows();
    let rendered = rows.iter();
    let rendered = rendered.map(|row| (row.path, plain(&row.value), row.origin.to_string()));
    let rendered: Vec<(&str, String, String)> = rendered.collect();
    let names = rendered.iter().map(|row| row.0.len()).max().unwrap_or(0);
    let values = rendered.iter().map(|row| row.1.chars().count());
    let values = values.max().unwrap_or(0);
    let mut text = match &config.file {
        Some(file) => format!("# file: {}\n", file.display()),
        None => "# no configuration file\n".to_owned(),
    };
    let mut object = Map::new();
    for (row, (path, value, origin)) in rows.iter().zip(&rendered) {
        text += &format!("{path:names$}  {value:values$}  {origin}\n");
        object.insert(row.path.to_owned(), json!({"value": row.value, "origin": origin}));
    }
    (text, json!({"file": config.file, "settings": object}))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn schema() -> String {
    let mut top = Map::new();
    for key in KEYS {
        let mut schema = (key.schema)();
        if let Some(fields) = schema.as_object_mut() {
            fields.insert(
                "description".to_owned(),
                json!(format!("{} ({})", key.about, key.variable())),
            );
            if let Some(default) = key.default {
                let default = serde_json::from_str(default).unwrap_or_else(|_| json!(default));
                fields.insert("default".to_owned(), default);
            }
        }
        match key.parts() {
            (None, name) => drop(top.insert(name.to_owned(), schema)),
            (Some(section), name) => {
                let section = top.entry(section).or_insert_with(
                    || json!({"type": "object", "additionalProperties": false, "properties": {}}),
                );
                section["properties"][name] = schema;
            }
        }
    }
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Ringfence configuration",
        "type": "object",
        "additionalProperties": false,
        "properties": top,
    });
    format!("{schema:#}\n")
}

/// Returns a configuration file with every default; those that depend on the machine are commented out.
pub(crate) fn example() -> String {
    let mut text = String::from(
        "# Ringfence's configuration: every setting with its default. Leave out what you do not change.\n\
         # A flag overrides the environment, which overrides this file.\n",
    );
    let mut open = None;
    for key in KEYS {
        let (section, name) = key.parts();
        let indent = if section.is_some() { "  " } else { "" };
        if section != open {
            if let Some(section) = section {
                text += &format!("\n{section}:\n");
            }
            open = section;
        }
        if section.is_none() {
            text += "\n";
        }
        text += &format!("{indent}# {} ({})\n", key.about, key.variable());
        match key.default {
            Some(default) => text += &format!("{indent}{name}: {default}\n"),
            None => text += &format!("{indent}# {name}:\n"),
        }
    }
    text
}
