//! The packages that a request names: names and versions, in the notation of Python (PEP 508) and npm. An option, an
//! address, a path or another source cannot be written here.

use crate::{ErrorCode, Language, RequestError};
use std::collections::BTreeSet;

/// Maximum number of requirements in one set.
pub const REQUIREMENTS_MAX: usize = 100;
/// Maximum length of a requirement, in characters.
pub const REQUIREMENT_CHARS_MAX: usize = 200;

/// One requirement, in its canonical form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    name: String,
    text: String,
}

/// The reason for which a text is not a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// No characters, or too many.
    #[error("it is empty or has more than {REQUIREMENT_CHARS_MAX} characters")]
    Length,
    /// A character that a requirement cannot have.
    #[error("it holds the character {0:?}")]
    Character(char),
    /// The first character is `-`.
    #[error("it begins with `-`, as an option of the installer does")]
    Option,
    /// A source other than the index.
    #[error("it names an address or a file instead of a package of the index")]
    Source,
    /// The package's name is invalid.
    #[error("it does not begin with the name of a package")]
    Name,
    /// The text in brackets is invalid.
    #[error("the text in [] is not a list of names")]
    Extras,
    /// The version, range or tag is invalid.
    #[error("the text after the name is not a version")]
    Version,
    /// The text after the `;` is invalid.
    #[error("the text after the `;` is not a condition")]
    Marker,
}

impl Requirement {
    /// Parses a requirement of a language's packages.
    pub fn parse(language: Language, text: &str) -> Result<Self, RequirementError> {
        let text = text.trim_matches(' ');
        if text.is_empty() || text.chars().count() > REQUIREMENT_CHARS_MAX {
            return Err(RequirementError::Length);
        }
        if let Some(found) = text.chars().find(|c| !(c.is_ascii_graphic() || *c == ' ')) {
            return Err(RequirementError::Character(found));
        }
        if text.starts_with('-') {
            return Err(RequirementError::Option);
        }
        match language.packaged_as() {
            Language::Python => python(text),
            Language::Node => node(text),
            Language::Shell | Language::Typescript => Err(RequirementError::Name),
        }
    }

    /// Returns the package's name; for Python, normalised by PEP 503.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text for the installer.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Adds a hint to a refusal of packages of a shell script, which may have meant a command of the system.
#[must_use]
pub fn with_packages_hint(mut error: RequestError, language: Language) -> RequestError {
    let may_be_names = matches!(
        error.code,
        ErrorCode::InvalidArgument | ErrorCode::PackageUnavailable
    );
    if language == Language::Shell && may_be_names {
        error.hint += " `packages` is for packages of Python and Node.js; a shell script has those of the Python that it calls.";
    }
    error
}

/// Parses the requirements of one request.
pub fn requirements(language: Language, texts: &[String]) -> Result<BTreeSet<Requirement>, RequestError> {
    if texts.is_empty() {
        return Ok(BTreeSet::new());
    }
    if texts.len() > REQUIREMENTS_MAX {
        return Err(RequestError::invalid(
            format!("more than {REQUIREMENTS_MAX} packages."),
            "Name those that the program imports; their dependencies are included.",
        ));
    }
    let parse = |text: &String| {
        Requirement::parse(language, text).map_err(|error| {
            let shown: String = text.chars().take(64).collect();
            let is_npms = text.contains('@') && Requirement::parse(Language::Node, text).is_ok();
            let hint = match language.packaged_as() {
                Language::Python if is_npms => "That is npm's notation: it goes with the language node.",
                Language::Python => {
                    "Name packages of the index, as `numpy`, `numpy==2.1.0` or `requests[socks]>=2`."
                }
                _ => "Name packages of the registry, as `lodash`, `lodash@4` or `@scope/name@^1.2`.",
            };
            let error = RequestError::invalid(format!("the package {shown:?}: {error}."), hint);
            with_packages_hint(error, language)
        })
    };
    texts.iter().map(parse).collect()
}

/// Parses PEP 508 without its addresses.
fn python(text: &str) -> Result<Requirement, RequirementError> {
    let (before, marker) = match text.split_once(';') {
        Some((before, marker)) => (before.trim_end_matches(' '), Some(condition(marker)?)),
        None => (text, None),
    };
    if before.contains(['@', '/', '\\', ':']) {
        return Err(RequirementError::Source);
    }
    let end = before
        .find(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c)))
        .unwrap_or(before.len());
    let (name, rest) = before.split_at(end);
    let name = python_name(name).ok_or(RequirementError::Name)?;
    let rest = rest.trim_start_matches(' ');
    let (extras, rest) = match rest.strip_prefix('[') {
        None => (BTreeSet::new(), rest),
        Some(inner) => {
            let (inner, rest) = inner.split_once(']').ok_or(RequirementError::Extras)?;
            let extras = inner.split(',').map(|extra| python_name(extra.trim_matches(' ')));
            (
                extras
                    .collect::<Option<BTreeSet<_>>>()
                    .ok_or(RequirementError::Extras)?,
                rest.trim_start_matches(' '),
            )
        }
    };
    let inner = match rest.strip_prefix('(') {
        Some(inner) => inner.strip_suffix(')').ok_or(RequirementError::Version)?,
        None => rest,
    };
    let clauses = match inner.trim_matches(' ') {
        "" => BTreeSet::new(),
        clauses => clauses
            .split(',')
            .map(|clause| comparison(clause.trim_matches(' ')))
            .collect::<Option<BTreeSet<_>>>()
            .ok_or(RequirementError::Version)?,
    };
    let mut text = name.clone();
    if !extras.is_empty() {
        text += &format!("[{}]", join(&extras));
    }
    text += &join(&clauses);
    if let Some(marker) = marker {
        text += &format!(" ; {marker}");
    }
    Ok(Requirement { name, text })
}

fn join(parts: &BTreeSet<String>) -> String {
    parts.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// Normalises the name of a package or an extra by PEP 503.
fn python_name(name: &str) -> Option<String> {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let good = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if !good || !is_end(name.chars().next()) || !is_end(name.chars().last()) {
        return None;
    }
    let parts = name.split(['.', '_', '-']).filter(|part| !part.is_empty());
    Some(parts.collect::<Vec<_>>().join("-").to_ascii_lowercase())
}

const COMPARISONS: [&str; 8] = ["===", "~=", "==", "!=", "<=", ">=", "<", ">"];

/// Parses one clause: a comparison and a version of PEP 440.
fn comparison(clause: &str) -> Option<String> {
    let operator = COMPARISONS
        .into_iter()
        .find(|operator| clause.starts_with(operator))?;
    let version = clause[operator.len()..].trim_start_matches(' ');
    let (public, any) = match version.strip_suffix(".*") {
        Some(public) if matches!(operator, "==" | "!=") => (public, ".*"),
        Some(_) => return None,
        None => (version, ""),
    };
    is_version(public).then(|| format!("{operator}{}{any}", public.to_ascii_lowercase()))
}

/// True for a version of PEP 440: numbers, the words of its releases, and a local part.
fn is_version(version: &str) -> bool {
    const WORDS: [&str; 13] = [
        "a", "alpha", "b", "beta", "c", "dev", "post", "pre", "preview", "r", "rc", "rev", "v",
    ];
    let (public, local) = match version.split_once('+') {
        Some((public, local)) => (public, Some(local)),
        None => (version, None),
    };
    let is_local = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric());
    if local.is_some_and(|local| !local.split(['.', '-', '_']).all(is_local)) {
        return false;
    }
    let release = match public.split_once('!') {
        Some((epoch, release)) if !epoch.is_empty() && epoch.bytes().all(|c| c.is_ascii_digit()) => release,
        Some(_) => return false,
        None => public,
    };
    if !release.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    release.split(['.', '-', '_']).all(|part| {
        let numbers = |c: char| c.is_ascii_digit();
        let mut words = part.split(numbers).filter(|word| !word.is_empty());
        !part.is_empty() && words.all(|word| WORDS.contains(&word.to_ascii_lowercase().as_str()))
    })
}

/// Returns a condition of PEP 508 without spaces around it. The installer parses it; here it only cannot be anything
/// else: a comparison of words and quoted texts, without a character of URLs, paths, options or further parts.
fn condition(text: &str) -> Result<String, RequirementError> {
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b" ._+*!<>=~()'\"-".contains(&c);
    let compares = COMPARISONS.iter().any(|operator| text.contains(operator)) || text.contains(" in ");
    if !(compares && text.bytes().all(is_allowed)) {
        return Err(RequirementError::Marker);
    }
    Ok(text.trim_matches(' ').to_owned())
}

/// Parses `name` or `@scope/name`, and after an `@` a version, a range or a tag of the registry.
fn node(text: &str) -> Result<Requirement, RequirementError> {
    let at = text
        .char_indices()
        .skip(1)
        .find(|(_, c)| *c == '@')
        .map(|(at, _)| at);
    let (name, wanted) = match at {
        Some(at) => (&text[..at], Some(text[at + 1..].trim_matches(' '))),
        None => (text, None),
    };
    if name.contains([':', '\\']) || (name.contains('/') && !name.starts_with('@')) || is_archive(name) {
        return Err(RequirementError::Source);
    }
    let good = match name.strip_prefix('@') {
        Some(scoped) => scoped
            .split_once('/')
            .is_some_and(|(scope, name)| is_node_name(scope) && is_node_name(name)),
        None => is_node_name(name),
    };
    if !good {
        return Err(RequirementError::Name);
    }
    let text = match wanted {
        None => name.to_owned(),
        Some(wanted) if wanted.contains(['/', ':', '@', '\\']) || is_archive(wanted) => {
            return Err(RequirementError::Source);
        }
        Some(wanted) if is_range(wanted) => format!("{name}@{wanted}"),
        Some(_) => return Err(RequirementError::Version),
    };
    Ok(Requirement {
        name: name.to_owned(),
        text,
    })
}

/// True for a name that npm takes for a file.
fn is_archive(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    [".tgz", ".tar", ".tar.gz"].iter().any(|end| text.ends_with(end))
}

fn is_node_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"._~-".contains(&c))
        && !matches!(name, "node_modules" | "favicon.ico")
}

fn is_range(wanted: &str) -> bool {
    let begins = |c: char| c.is_ascii_alphanumeric() || "^~<>=*".contains(c);
    wanted.starts_with(begins)
        && wanted
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b".*^~<>=|+ -".contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use RequirementError as E;

    fn check(language: Language, text: &str, expect: Result<&str, RequirementError>) {
        let parsed = Requirement::parse(language, text);
        assert_eq!(
            parsed.as_ref().map(Requirement::as_str).map_err(|error| *error),
            expect,
            "{text:?}"
        );
    }

    #[test]
    fn requirements_of_python_are_canonical() {
        let check = |text, expect| check(Language::Python, text, Ok(expect));
        check("numpy", "numpy");
        check(" NumPy ", "numpy");
        check("zope.interface", "zope-interface");
        check("typing__extensions", "typing-extensions");
        check("numpy == 2.1.0", "numpy==2.1.0");
        check("numpy>=1.26,<3", "numpy<3,>=1.26");
        check("numpy (<3, >=1.26)", "numpy<3,>=1.26");
        check("numpy==1.*", "numpy==1.*");
        check(
            "requests[socks , Use_Chardet]>=2",
            "requests[socks,use-chardet]>=2",
        );
        check("x==1!2.0rc1.post2.dev3+local.7", "x==1!2.0rc1.post2.dev3+local.7");
        check(
            "x ; python_version < '3.9' and(os_name=='posix' or sys_platform not in \"win32\")",
            "x ; python_version < '3.9' and(os_name=='posix' or sys_platform not in \"win32\")",
        );
    }

    /// claim: [PKG-1]
    #[test]
    fn only_a_requirement_reaches_pip() {
        let check = |text: &str, error| check(Language::Python, text, Err(error));
        check("", E::Length);
        check(&"a".repeat(201), E::Length);
        check("--index-url=https://evil.test/simple", E::Option);
        check("-r file", E::Option);
        check("-e .", E::Option);
        check(" -rfile", E::Option);
        check("numpy; import os", E::Marker);
        check("numpy; python_version", E::Marker);
        check("numpy; python_version < '3' ; x", E::Marker);
        check("numpy; python_version < '3$(id)'", E::Marker);
        check("pkg @ https://evil.test/x.whl", E::Source);
        check("pkg@file:///etc/passwd", E::Source);
        check("git+https://evil.test/x", E::Source);
        check("../x", E::Source);
        check("./x", E::Source);
        check("/etc/passwd", E::Source);
        check("C:\\x", E::Source);
        check(".", E::Name);
        check("..", E::Name);
        check("numpy-", E::Name);
        check("_numpy", E::Name);
        check("numpy --index-url x", E::Version);
        check("numpy -r x", E::Version);
        check("numpy pandas", E::Version);
        check("numpy==", E::Version);
        check("numpy>=1.*", E::Version);
        check("numpy==1.0.zip", E::Version);
        check("numpy==1;", E::Marker);
        check("numpy==1 --hash=sha256:00", E::Source);
        check("numpy[x", E::Extras);
        check("numpy[--pre]", E::Extras);
        check("numpy\n--index-url=x", E::Character('\n'));
        check("numpy\0", E::Character('\0'));
        check("numpy\t", E::Character('\t'));
        check("\u{2010}r file", E::Character('\u{2010}'));
        check("nu\u{441}py", E::Character('\u{441}'));
        check("numpy\u{2028}x", E::Character('\u{2028}'));
        check("numpy#egg=x", E::Version);
        check("${HOME}", E::Name);
    }

    #[test]
    fn requirements_of_node_are_names_and_ranges() {
        let check = |text, expect| check(Language::Node, text, Ok(expect));
        check("lodash", "lodash");
        check("lodash@4", "lodash@4");
        check("lodash@^4.17.0 || >=5 <6", "lodash@^4.17.0 || >=5 <6");
        check("lodash@latest", "lodash@latest");
        check("@types/node@~20.1", "@types/node@~20.1");
        check("JSONStream", "JSONStream");
    }

    /// claim: [PKG-1]
    #[test]
    fn only_a_requirement_reaches_npm() {
        let check = |text: &str, error| check(Language::Node, text, Err(error));
        check("--registry=https://evil.test", E::Option);
        check("-g", E::Option);
        check("user/repo", E::Source);
        check("github:user/repo", E::Source);
        check("https://evil.test/x.tgz", E::Source);
        check("lodash@https://evil.test/x.tgz", E::Source);
        check("lodash@file:../x", E::Source);
        check("lodash@npm:evil@1", E::Source);
        check("lodash@workspace:*", E::Source);
        check("lodash@git+ssh://x", E::Source);
        check("@evil/../x", E::Name);
        check("@evil", E::Name);
        check("@/x", E::Name);
        check("@a/b/c", E::Name);
        check("../x", E::Source);
        check("./x", E::Source);
        check(".", E::Name);
        check("~", E::Name);
        check("~/x", E::Source);
        check("x.tgz", E::Source);
        check("x@y.tar.gz", E::Source);
        check("x@", E::Version);
        check("x@--registry", E::Version);
        check("x@.", E::Version);
        check("x@$(id)", E::Version);
        check("node_modules", E::Name);
        check("lodash\n", E::Character('\n'));
        check("lod\u{2013}ash", E::Character('\u{2013}'));
        check("a b", E::Name);
    }

    #[test]
    fn set_of_requirements_is_limited_and_canonical() {
        let set = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            requirements(Language::Python, &texts)
        };
        assert_eq!(set(&["b", "a", "A"]).unwrap(), set(&["a", "b"]).unwrap());
        assert_eq!(set(&vec!["a"; 101]).unwrap_err().code, ErrorCode::InvalidArgument);
        assert!(set(&["a", "-r x"]).unwrap_err().message.contains("-r x"));
        let shell = requirements(Language::Shell, &["a".to_owned(), "b".to_owned()]);
        assert_eq!(
            shell.unwrap(),
            set(&["a", "b"]).unwrap(),
            "of the Python that it calls"
        );
        let npms = requirements(Language::Shell, &["lodash@4".to_owned()]);
        assert!(
            npms.unwrap_err()
                .hint
                .contains("for packages of Python and Node.js")
        );
    }
}
