//! The configuration file: reads each setting with its line, and reports all faults together.

use super::keys::{KEYS, Key, Layer, Origin};
use ringfence_types::{
    nearest::suggestion,
    yaml::{self, Entry, Fault},
};
use std::{path::Path, sync::Arc};

const FAULTS_MAX: usize = 20;

pub(super) struct FileLayer {
    pub(super) layer: Layer,
    pub(super) faults: Vec<(String, Fault)>,
    path: Arc<Path>,
}

/// Checks the text of a configuration file as the server would.
pub fn parse_config(text: &str) -> Result<(), Vec<Fault>> {
    let file = FileLayer::read(&Path::new("").into(), text).map_err(|fault| vec![fault])?;
    let faults: Vec<Fault> = file.faults.into_iter().map(|(_, fault)| fault).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

impl FileLayer {
    /// Reads a file's text. An error: nothing of it can be read.
    pub(super) fn read(path: &Arc<Path>, text: &str) -> Result<Self, Fault> {
        let root = yaml::read(text)?;
        let mut file = Self {
            layer: Layer::default(),
            faults: Vec::new(),
            path: path.clone(),
        };
        for entry in root.entries()? {
            let is_section = |key: &Key| key.parts().0 == Some(&entry.name);
            match KEYS.iter().any(is_section) {
                true => file.section(entry),
                false => file.setting(entry, None),
            }
        }
        Ok(file)
    }

    fn section(&mut self, section: &Entry) {
        match section.value.entries() {
            Ok(entries) => entries
                .iter()
                .for_each(|entry| self.setting(entry, Some(&section.name))),
            Err(fault) => self
                .faults
                .push((section.name.clone(), fault.named(&section.name))),
        }
    }

    /// A setting without a value is absent.
    fn setting(&mut self, entry: &Entry, section: Option<&str>) {
        if self.faults.len() >= FAULTS_MAX {
            return;
        }
        let (path, line) = (self.path.clone(), entry.value.line);
        let origin = Origin::File { path, line };
        let is_named = |key: &&Key| key.parts() == (section, &entry.name);
        let read = match KEYS.iter().find(is_named) {
            None => Err(unknown(entry, section)),
            Some(_) if entry.value.is_null() => Ok(()),
            Some(key) => self.layer.set_node(key.path, &entry.value, origin),
        };
        if let Err(fault) = read {
            let path = section.map_or_else(String::new, |section| format!("{section}.")) + &entry.name;
            self.faults.push((path, fault.named(&entry.name)));
        }
    }
}

fn unknown(entry: &Entry, section: Option<&str>) -> Fault {
    let known = KEYS
        .iter()
        .map(Key::parts)
        .filter_map(|(own, name)| match section {
            None => Some(own.unwrap_or(name)),
            Some(_) => (own == section).then_some(name),
        });
    let mut known: Vec<&str> = known.collect();
    known.dedup();
    let hint = match RENAMED_KEYS.iter().find(|(key, _)| *key == entry.name) {
        Some((_, now)) => format!(" It is called `{now}`."),
        None => suggestion(&entry.name, known.iter().copied()),
    };
    entry.unknown(&format!("not a setting here.{hint} Known: {}", known.join(", ")))
}

const RENAMED_KEYS: [(&str, &str); 22] = [
    ("allowed_imports", "check.allowed_imports"),
    ("audit_backend", "audit.store"),
    ("default_backend", "backend"),
    ("default_memory_limit", "limits.ram_mb"),
    ("default_timeout", "limits.timeout_seconds"),
    ("enable_data_science", "check.profiles"),
    ("enable_filesystem", "check.profiles"),
    ("enable_network", "egress.allow"),
    ("max_concurrent", "queue.concurrency"),
    ("max_cpu_cores", "limits.cpu_cores"),
    ("max_memory_mb", "limits.ram_mb"),
    ("max_output_bytes", "limits.output_bytes"),
    ("max_output_size", "limits.output_bytes"),
    ("max_processes", "limits.processes"),
    ("max_ram_mb", "limits.ram_mb"),
    ("memory_limit", "limits.ram_mb"),
    ("network", "egress.allow"),
    ("network_allowlist", "egress.allow"),
    ("sqlite_path", "audit.path"),
    ("timeout", "limits.timeout_seconds"),
    ("timeout_seconds", "limits.timeout_seconds"),
    ("vault_backend", "vault.store"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Fault {
        parse_config(text).unwrap_err().remove(0)
    }

    fn layer(text: &str) -> Layer {
        let file = FileLayer::read(&Path::new("/etc/c.yaml").into(), text).unwrap();
        assert_eq!(file.faults, [], "{text}");
        file.layer
    }

    #[test]
    fn unknown_key_is_refused_with_its_line_and_the_nearest_name() {
        check(
            "backend: native\nlimits:\n  ram_mbb: 5\n",
            3,
            "`ram_mbb` is not a setting here. Did you mean `ram_mb`?",
        );
        check("flor: full\n", 1, "Did you mean `floor`?");
    }

    fn check(text: &str, line: u64, part: &str) {
        let error = refused(text);
        assert_eq!(error.line, Some(line), "{text}: {error}");
        assert!(error.to_string().contains(part), "{text}: {error}");
    }

    #[test]
    fn bad_value_is_refused_with_its_line() {
        check(
            "floor: none\n",
            1,
            "`floor`: `none` is not one of full, gvisor, container, landlock",
        );
        check("floor: [full]\n", 1, "`floor` is text, not a list");
        check("\nlimits:\n  ram_mb: 0\n", 3, "`ram_mb`: 0 is outside 16");
        check("limits: 5\n", 1, "`limits` is a mapping, not `5`");
        check(
            "egress:\n  allow: example.com\n",
            2,
            "`allow` is a list, not `example.com`",
        );
        check(
            "limits:\n  ram_mb: 100\n  ram_mb: 200\n",
            3,
            "`ram_mb` is here twice",
        );
        check("runtimes:\n  mounts:\n    - here:x\n", 3, "the path `here:x`");
        check(
            "workspaces:\n  - path: x\n",
            2,
            "`workspaces` is a mapping, not a list",
        );
        check(
            "workspaces:\n  a: {path: /x, mode: rw}\n  b: {path: x, mode: rw}\n",
            3,
            "`path`: the path `x`",
        );
        check(
            "limits:\n  disk_mb: x # note: y\n",
            2,
            "`disk_mb` is a whole number, not `x`",
        );
        check("limits:\n  cpu_cores: .nan\n", 2, "a number, not `.nan`");
        check(
            "limits:\n  ram_mb: -5\n",
            2,
            "`ram_mb` is a whole number, not `-5`",
        );
        check(
            "limits:\n  cpu_cores: lots\n",
            2,
            "`cpu_cores` is a number, not `lots`",
        );
        check(
            "\npackages:\n  enabled: 3\n",
            3,
            "`enabled` is true or false, not `3`",
        );
    }

    #[test]
    fn renamed_misplaced_and_duplicate_entries_are_refused_with_their_line() {
        check("default_backend: process\n", 1, "It is called `backend`");
        check("toolsets: [wub]\n", 1, "`wub` is not one of execute, sessions");
        check("state_dir: here\n", 1, "relative");
        check(
            "limits: {cpu_cores: 1, ram_mb: lots}\n",
            1,
            "`ram_mb` is a whole number, not `lots`",
        );
        check("vault: {store: nope}\n", 1, "`store`: `nope` is not one of");
        check(
            "egress: {allow: [\"http://x\"]}\n",
            1,
            "`allow`: `http://x` is no rule",
        );
        check("host: {rules: {a: 1}}\n", 1, "`rules` is text");
        check("floor: full\nfloor: landlock\n", 2, "`floor` is here twice");
        check("limits: {}\nlimits: {}\n", 2, "`limits` is here twice");
        check("toolsets: 5\n", 1, "`toolsets` is a list or `all`, not `5`");
        check("- 1\n", 1, "expected a mapping, not a list");
    }

    #[test]
    fn faults_of_a_file_are_all_reported_up_to_a_limit() {
        let text = "flor: full\nlimits:\n  ram_mb: 0\n  cpu_core: 2\nrun:\n  a: 1\n  b: 2\nvault: {store: nope}\n\
                    egress:\n  allow:\n    - a.test\n    - http://x\nlog: loud\n";
        let faults = |text: &str| parse_config(text).err().unwrap_or_default();
        let reported: Vec<Option<u64>> = faults(text).iter().map(|fault| fault.line).collect();
        let lines = [1, 3, 4, 5, 8, 12, 13];
        assert_eq!(reported, lines.map(Some), "{:?}", faults(text));
        assert_eq!(faults("limits: {\n  ram_mb: 0,\n  x: 1}\n").len(), 2);
        assert_eq!(faults("floor: full\n"), []);
        assert_eq!(faults("limits:\n\tram_mb: 1\n").len(), 1);
        let many: String = (0..50).map(|number| format!("x{number}: 1\n")).collect();
        assert_eq!(faults(&many).len(), FAULTS_MAX);
    }

    #[test]
    fn empty_file_leaves_every_default() {
        for text in [
            "",
            "# only a comment\n",
            "---\n",
            "{}\n",
            "limits:\n",
            "limits:\n  ram_mb:\n",
        ] {
            let layer = layer(text);
            assert!(
                layer.backend.is_none() && layer.limits_ram_mb.is_none(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn origin_of_a_value_has_its_line() {
        let text = "limits:\n  ram_mb: 1024\n\n  cpu_cores: 2\ntoolsets: all\n";
        let layer = layer(text);
        let memory = layer.limits_ram_mb.unwrap();
        assert_eq!(
            (memory.value.get(), memory.origin.to_string().as_str()),
            (1024, "/etc/c.yaml:2")
        );
        assert_eq!(
            layer.limits_cpu_cores.unwrap().origin.to_string(),
            "/etc/c.yaml:4"
        );
        assert_eq!(layer.toolsets.unwrap().origin.to_string(), "/etc/c.yaml:5");
    }
}
