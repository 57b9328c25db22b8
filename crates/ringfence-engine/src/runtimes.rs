//! Finds interpreters, and everything that has to be visible to a program so that its interpreter works: its
//! installation directory, its virtual environment, and the symlinks on the way. Nothing is executed.

use crate::{error::Result, settings::RuntimeSettings};
use ringfence_jail::Layout;
use ringfence_types::{Language, RequestError};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
    time::SystemTime,
};

/// Finds the interpreter of a language. Errors: `runtime_unavailable`, with the reason.
pub(crate) fn find(language: Language, settings: &RuntimeSettings) -> Result<Toolchain> {
    let (names, configured): (&[&str], _) = match language {
        Language::Python => (&["python3", "python"], &settings.python),
        Language::Node | Language::Typescript => (&["node", "nodejs"], &settings.node),
        Language::Shell => (&["bash"], &settings.shell),
    };
    let absent = |message: String| {
        let key = language.runs_as();
        let hint = match configured {
            Some(_) => {
                let variable = key.as_str().to_uppercase();
                format!("Correct runtimes.{key} in the configuration, or RINGFENCE_RUNTIMES_{variable}.")
            }
            None => format!("Install it, or set runtimes.{key} in the configuration to its path."),
        };
        RequestError::runtime_unavailable(message, hint)
    };
    let candidates: Vec<PathBuf> = match configured {
        Some(path) if path.is_dir() => names.iter().map(|name| path.join("bin").join(name)).collect(),
        Some(path) => vec![path.clone()],
        None => settings
            .search_path
            .iter()
            .flat_map(|dir| names.iter().map(|name| dir.join(name)))
            .collect(),
    };
    let found: Vec<PathBuf> = candidates
        .iter()
        .filter_map(|path| resolve_shim(path).filter(|path| executable(path)))
        .collect();
    let fit = found.iter().find(|path| unfit(language, path).is_none());
    let path = fit.or(found.first()).ok_or_else(|| match configured {
        Some(path) => absent(format!(
            "{} is not an interpreter for {language}.",
            path.display()
        )),
        None => absent(format!("no {} was found for {language}.", names.join(" or "))),
    })?;
    if let Some(reason) = unfit(language, path) {
        return Err(absent(reason));
    }
    let mut interpreter =
        toolchain_of(path).map_err(|reason| absent(format!("{}: {reason}.", path.display())))?;
    interpreter.trees.extend(settings.extra_mounts.iter().cloned());
    Ok(interpreter)
}

impl RuntimeSettings {
    /// Returns the errors of interpreters that are configured rather than found on the path.
    pub fn faults(&self) -> Vec<RequestError> {
        let named = [&self.python, &self.node, &self.shell].map(Option::is_some);
        let languages = [Language::Python, Language::Node, Language::Shell];
        let named = languages.into_iter().zip(named).filter(|(_, is_named)| *is_named);
        named
            .filter_map(|(language, _)| find(language, self).err())
            .collect()
    }
}

pub(crate) fn on_path(name: &str, settings: &RuntimeSettings) -> Option<PathBuf> {
    let mut paths = settings.search_path.iter().map(|dir| dir.join(name));
    paths.find(|path| executable(path))
}

/// The oldest Python that supports the driver's syntax.
const PYTHON_OLDEST: (u8, u8) = (3, 8);

/// Returns the reason why a program is not an interpreter of this language, judged by its path and its real file name.
/// It is not executed: another program would take our driver for arguments of its own.
fn unfit(language: Language, path: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    let name = |path: &Path| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let is_called = |word: &str| name(path).contains(word) || name(&real).contains(word);
    let other = ["deno", "bun"]
        .into_iter()
        .find(|other| name(&real).starts_with(other));
    match language {
        Language::Python => match version_in_name(&real) {
            Some((major, minor)) if (major, minor) < PYTHON_OLDEST => {
                let (oldest, real) = (PYTHON_OLDEST, real.display());
                let needed = format!("Python {}.{} or newer is needed", oldest.0, oldest.1);
                Some(format!("{needed}: {real} is {major}.{minor}."))
            }
            _ if ["python", "pypy", "graalpy"].into_iter().any(is_called) => None,
            _ => Some(format!("{} is not Python.", path.display())),
        },
        Language::Node | Language::Typescript => match other {
            Some(other) => Some(format!("{} is {other}, not Node.js.", path.display())),
            None if is_called("node") => None,
            None => Some(format!("{} is not Node.js.", path.display())),
        },
        Language::Shell => None,
    }
}

/// Returns the version of Python from the name of the interpreter's file (`python3.11`); `None` if the name has none.
pub(crate) fn python_version(settings: &RuntimeSettings) -> Option<(u8, u8)> {
    let found = find(Language::Python, settings).ok()?;
    version_in_name(&found.interpreter.canonicalize().ok()?)
}

fn version_in_name(real: &Path) -> Option<(u8, u8)> {
    let version = real.file_name()?.to_str()?.strip_prefix("python")?;
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns a part of an interpreter in or around this directory, where a program could change later ones' interpreter.
pub(crate) fn overlapping_part(directory: &Path, settings: &RuntimeSettings) -> Option<(Language, PathBuf)> {
    let overlaps = |way: &PathBuf| way.starts_with(directory) || directory.starts_with(way);
    parts(settings).find(|(_, part)| ringfence_host::resolution_paths(part).iter().any(overlaps))
}

pub(crate) fn parts(settings: &RuntimeSettings) -> impl Iterator<Item = (Language, PathBuf)> {
    let languages = [Language::Python, Language::Node, Language::Shell].into_iter();
    languages.flat_map(|language| {
        let found = find(language, settings).ok();
        let parts = found.map(|found| found.trees.into_iter().chain([found.interpreter]));
        parts.into_iter().flatten().map(move |part| (language, part))
    })
}

/// Returns the last modification of an interpreter or its packages: earlier imports may be outdated.
pub(crate) fn changed(interpreter: &Path) -> Option<SystemTime> {
    let prefix = interpreter.parent().and_then(Path::parent);
    let libraries = prefix.map(|prefix| prefix.join("lib"));
    let libraries = libraries
        .into_iter()
        .chain(["/usr/lib".into(), "/usr/local/lib".into()]);
    let versions = libraries
        .filter_map(|library| fs::read_dir(library).ok())
        .flat_map(|entries| entries.flatten())
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"python3"));
    let packages = versions
        .flat_map(|version| ["site-packages", "dist-packages"].map(|packages| version.path().join(packages)));
    packages
        .chain([interpreter.to_owned()])
        .filter_map(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
        .max()
}

fn executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Resolves a shim. pyenv and nodenv put scripts on the path that choose a version when they run; the choice is made
/// here instead (`PYENV_VERSION` belongs to the caller's shell and does not count). Other paths are returned unchanged.
fn resolve_shim(path: &Path) -> Option<PathBuf> {
    let directory = path.parent()?;
    if directory.file_name()? != "shims" {
        return Some(path.to_owned());
    }
    let root = directory.parent()?;
    let chosen = fs::read_to_string(root.join("version")).ok()?;
    let name = path.file_name()?;
    chosen
        .split_whitespace()
        .map(|version| root.join("versions").join(version).join("bin").join(name))
        .find(|p| p.exists())
}

fn toolchain_of(path: &Path) -> Result<Toolchain, String> {
    let (real, links) = follow(path)?;
    let mut trees = Vec::new();
    // A virtual environment: its packages are beside the link, the standard library is in `home`.
    let environment = path
        .parent()
        .and_then(Path::parent)
        .filter(|prefix| prefix.join("pyvenv.cfg").is_file());
    let mut links = links;
    if let Some(prefix) = environment {
        trees.push(prefix.to_owned());
        if let Some(home) = home_of(prefix) {
            let (real_home, more) = follow(&home)?;
            links.extend(more);
            trees.extend(real_home.parent().map(Path::to_owned));
        }
    }
    trees.extend(prefix(&real));
    trees.retain(|tree| !is_system(tree));
    trees.sort();
    trees.dedup();
    // Links in a visible tree are there already.
    links.retain(|(link, _)| !is_system(link) && !trees.iter().any(|tree| link.starts_with(tree)));
    links.dedup();
    Ok(Toolchain {
        interpreter: path.to_owned(),
        trees,
        links,
        on_path: vec![path.to_owned()],
    })
}

/// Returns the directory that an executable was installed in. Package managers that spread an installation over
/// siblings (Nix, Guix, Homebrew) need their whole store.
fn prefix(real: &Path) -> Option<PathBuf> {
    for store in ["/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"] {
        if real.starts_with(store) {
            return Some(store.into());
        }
    }
    let directory = real.parent()?;
    let in_bin = directory
        .file_name()
        .is_some_and(|name| name == "bin" || name == "Scripts");
    Some(if in_bin {
        directory.parent()?.to_owned()
    } else {
        directory.to_owned()
    })
}

/// True for paths that every program sees anyway.
fn is_system(path: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"]
        .iter()
        .any(|system| path.starts_with(system))
}

/// Reads `home` in pyvenv.cfg (PEP 405): the directory of the base interpreter.
fn home_of(prefix: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(prefix.join("pyvenv.cfg")).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "home").then(|| PathBuf::from(value.trim()))
    })
}

const LINKS_MAX: usize = 40; // as the kernel, path_resolution(7)

/// Resolves a path component by component; returns its target, and each link on the way.
fn follow(path: &Path) -> Result<(PathBuf, Vec<(PathBuf, String)>), String> {
    let mut links = Vec::new();
    let mut done = PathBuf::new();
    let mut left = backwards(path);
    while let Some(part) = left.pop() {
        match part.components().next() {
            Some(Component::ParentDir) => {
                done.pop();
                continue;
            }
            Some(Component::CurDir) | None => continue,
            _ => done.push(&part),
        }
        let Ok(target) = fs::read_link(&done) else {
            continue;
        };
        if links.len() == LINKS_MAX {
            return Err("too many symbolic links".to_owned());
        }
        let text = target.to_str().ok_or("a link that is not UTF-8")?.to_owned();
        links.push((done.clone(), text));
        done.pop();
        if target.is_absolute() {
            done = PathBuf::new();
        }
        left.extend(backwards(&target));
    }
    if done.exists() {
        Ok((done, links))
    } else {
        Err(format!("{} does not exist", done.display()))
    }
}

/// Returns the components of a path, the last one first.
fn backwards(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().rev();
    parts.map(|part| PathBuf::from(part.as_os_str())).collect()
}

/// An interpreter, and the paths of the host that it needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Toolchain {
    pub(crate) interpreter: PathBuf,
    pub(crate) trees: Vec<PathBuf>,
    pub(crate) links: Vec<(PathBuf, String)>,
    pub(crate) on_path: Vec<PathBuf>,
}

pub(crate) fn toolchain(language: Language, settings: &RuntimeSettings) -> Result<Toolchain> {
    let mut toolchain = find(language, settings)?;
    if language == Language::Shell {
        // A script calls the other interpreters by name.
        for other in [Language::Python, Language::Node] {
            if let Ok(found) = find(other, settings) {
                toolchain.trees.extend(found.trees);
                toolchain.links.extend(found.links);
                toolchain.on_path.push(found.interpreter);
            }
        }
    }
    Ok(toolchain)
}

/// The environment of a program, without its language's and its request's variables. None is inherited from the server.
pub(crate) fn environment(layout: &Layout, interpreters: &[PathBuf]) -> Vec<(String, String)> {
    const SYSTEM: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
    let mut path: Vec<String> = Vec::new();
    // System directories come last, because they hold other interpreters of the same names.
    let bins = interpreters
        .iter()
        .filter_map(|path| path.parent())
        .map(|bin| bin.display().to_string());
    let (system, own): (Vec<String>, Vec<String>) = bins.partition(|bin| SYSTEM.contains(&bin.as_str()));
    for bin in own.into_iter().chain(system).chain(SYSTEM.map(str::to_owned)) {
        if !path.contains(&bin) {
            path.push(bin);
        }
    }
    let text = |path: &Path| path.display().to_string();
    [
        ("PATH", path.join(":")),
        ("HOME", text(&layout.home)),
        ("USER", "sandbox".to_owned()),
        ("LOGNAME", "sandbox".to_owned()),
        ("SHELL", "/bin/bash".to_owned()),
        ("PWD", text(&layout.workspace)),
        ("TMPDIR", text(&layout.tmp)),
        ("LANG", "C.UTF-8".to_owned()),
        ("TERM", "dumb".to_owned()),
        ("RINGFENCE_OUTPUT_DIR", text(&layout.output)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::ErrorCode;
    use std::os::unix::fs::symlink;

    #[test]
    fn configured_interpreters_precede_system_ones_on_the_path() {
        let on_path = ["/usr/bin/bash", "/opt/python/bin/python3", "/usr/bin/node"].map(PathBuf::from);
        let environment = environment(&Layout::own_root(), &on_path);
        let path = environment.iter().find(|(name, _)| name == "PATH").unwrap();
        assert_eq!(path.1, "/opt/python/bin:/usr/bin:/usr/local/bin:/bin");
    }

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ringfence-runtimes-{name}-{}", std::process::id()));
            drop(fs::remove_dir_all(&path));
            fs::create_dir_all(&path).unwrap();
            Self(path.canonicalize().unwrap())
        }

        fn program(&self, path: &str) -> PathBuf {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn settings(search: &Path) -> RuntimeSettings {
        RuntimeSettings {
            python: None,
            node: None,
            shell: None,
            search_path: vec![search.to_owned()],
            extra_mounts: Vec::new(),
        }
    }

    #[test]
    fn python_version_is_read_from_its_file_name() {
        let tree = Tree::new("version");
        let check = |path: PathBuf, expect| {
            let settings = RuntimeSettings {
                python: Some(path),
                ..settings(&tree.0)
            };
            assert_eq!(python_version(&settings), expect);
        };
        let real = tree.program("bin/python3.9");
        symlink(&real, tree.0.join("bin/python3")).unwrap();
        check(tree.0.join("bin/python3"), Some((3, 9)));
        check(tree.program("bin/pypy"), None);
    }

    #[test]
    fn unsuitable_interpreter_is_refused_with_the_reason() {
        let tree = Tree::new("unfit");
        let check = |language: Language, path: PathBuf, reason: &str| {
            let settings = RuntimeSettings {
                python: Some(path.clone()),
                node: Some(path),
                ..settings(&tree.0)
            };
            match find(language, &settings) {
                Ok(found) => assert_eq!(reason, "", "{found:?}"),
                Err(error) => assert!(!reason.is_empty() && error.message.contains(reason), "{error}"),
            }
        };
        let (python, node) = (Language::Python, Language::Node);
        check(
            python,
            tree.program("bin/python2.7"),
            "Python 3.8 or newer is needed",
        );
        check(python, tree.program("bin/python3.6"), "python3.6 is 3.6.");
        check(python, tree.program("bin/python3.8"), "");
        check(python, tree.program("bin/pypy3"), "");
        check(python, tree.program("bin/ls"), "ls is not Python.");
        check(node, tree.program("bin/ls"), "ls is not Node.js.");
        let bun = tree.program("bun/bin/bun");
        symlink(&bun, tree.0.join("bin/node")).unwrap();
        check(node, tree.0.join("bin/node"), "node is bun, not Node.js.");
        check(node, tree.program("bin/deno"), "is deno, not Node.js.");
        check(node, tree.program("bin/nodejs"), "");
        // On the path, a suitable interpreter is found behind an unsuitable one.
        let old = tree.program("old/python3.6");
        symlink(&old, tree.0.join("old/python3")).unwrap();
        let fit = tree.program("new/python3");
        let search_path = vec![tree.0.join("old"), tree.0.join("new")];
        let settings = RuntimeSettings {
            search_path,
            ..settings(&tree.0)
        };
        assert_eq!(find(python, &settings).unwrap().interpreter, fit);
    }

    #[test]
    fn pyenv_shim_resolves_to_the_chosen_version() {
        let tree = Tree::new("pyenv");
        tree.program("shims/python3");
        let real = tree.program("versions/3.12.1/bin/python3");
        fs::write(tree.0.join("version"), "3.12.1\n").unwrap();
        let found = find(Language::Python, &settings(&tree.0.join("shims"))).unwrap();
        assert_eq!(found.interpreter, real);
        assert_eq!(found.trees, [tree.0.join("versions/3.12.1")]);
    }

    #[test]
    fn virtual_environment_includes_its_base_and_links() {
        let tree = Tree::new("venv");
        tree.program("uv/cpython-3.12.5/bin/python3.12");
        symlink("cpython-3.12.5", tree.0.join("uv/cpython-3.12")).unwrap();
        fs::create_dir_all(tree.0.join("project/.venv/bin")).unwrap();
        symlink(
            tree.0.join("uv/cpython-3.12/bin/python3.12"),
            tree.0.join("project/.venv/bin/python3"),
        )
        .unwrap();
        let home = tree.0.join("uv/cpython-3.12/bin");
        fs::write(
            tree.0.join("project/.venv/pyvenv.cfg"),
            format!("home = {}\n", home.display()),
        )
        .unwrap();
        let found = find(Language::Python, &settings(&tree.0.join("project/.venv/bin"))).unwrap();
        assert_eq!(found.interpreter, tree.0.join("project/.venv/bin/python3"));
        assert_eq!(
            found.trees,
            [tree.0.join("project/.venv"), tree.0.join("uv/cpython-3.12.5")]
        );
        assert!(
            found
                .links
                .contains(&(tree.0.join("uv/cpython-3.12"), "cpython-3.12.5".to_owned()))
        );
        assert!(
            found
                .links
                .iter()
                .all(|(link, _)| !link.starts_with(tree.0.join("project")))
        );
    }

    /// claim: [WS-7]
    #[test]
    fn directory_overlapping_an_interpreter_is_detected() {
        let tree = Tree::new("within");
        tree.program("project/.venv/bin/python3");
        fs::write(tree.0.join("project/.venv/pyvenv.cfg"), "").unwrap();
        fs::create_dir_all(tree.0.join("project/src")).unwrap();
        symlink(tree.0.join("project"), tree.0.join("link")).unwrap();
        let settings = settings(&tree.0.join("link/.venv/bin"));
        let at = |path: &str| overlapping_part(&tree.0.join(path), &settings).map(|(language, _)| language);
        for path in ["", "project", "project/.venv", "project/.venv/lib/site-packages"] {
            assert_eq!(at(path), Some(Language::Python), "{path}");
        }
        assert_eq!(at("project/src"), None);
        assert_eq!(at("elsewhere"), None);
    }

    #[test]
    fn nvm_node_exposes_only_its_own_version() {
        let tree = Tree::new("nvm");
        let node = tree.program("versions/node/v20.1.0/bin/node");
        tree.program("versions/node/v18.0.0/bin/node");
        let found = find(Language::Node, &settings(node.parent().unwrap())).unwrap();
        assert_eq!(found.trees, [tree.0.join("versions/node/v20.1.0")]);
    }

    #[test]
    fn system_interpreter_needs_no_extra_paths() {
        let found = find(Language::Shell, &settings(Path::new("/usr/bin"))).unwrap();
        assert_eq!(found.trees, Vec::<PathBuf>::new());
        assert_eq!(found.links, Vec::new());
    }

    #[test]
    fn missing_interpreter_is_an_error_with_a_hint() {
        let error = find(Language::Node, &settings(Path::new("/nonexistent"))).unwrap_err();
        assert_eq!(error.code, ErrorCode::RuntimeUnavailable);
        assert!(error.hint.contains("runtimes.node"));
    }

    #[test]
    fn symlink_loop_is_an_error() {
        let tree = Tree::new("circle");
        symlink("b", tree.0.join("a")).unwrap();
        symlink("a", tree.0.join("b")).unwrap();
        assert!(follow(&tree.0.join("a")).is_err());
    }
}
