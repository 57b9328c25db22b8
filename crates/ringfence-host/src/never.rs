//! Commands that are never run, not even by approval. The list explains a refusal and spares a person the question;
//! safety never rests on it, because every list of bad words has gaps.

use crate::words::Words;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Never {
    /// The program, as a whole word.
    pub(crate) program: String,
    /// Whole words. One of these, of `letters` or of `beginning` must be there; without all three, any use is meant.
    #[serde(default)]
    pub(crate) with: Vec<String>,
    /// Letters of short options, also in a bundle.
    #[serde(default)]
    pub(crate) letters: String,
    /// Prefixes of words.
    #[serde(default)]
    pub(crate) beginning: Vec<String>,
    pub(crate) why: String,
}

impl Never {
    /// True if the command matches the entry, also as the argument of a program that runs another.
    pub(crate) fn matches(&self, words: &Words) -> bool {
        let named = |word: &str| {
            let name = word.rsplit('/').next().unwrap_or_default();
            name == self.program || (self.program == "mkfs" && name.starts_with("mkfs."))
        };
        let wrapped = |at: &usize| {
            let before = &words.all()[..*at];
            before
                .first()
                .is_none_or(|first| WRAPPERS.contains(&first.rsplit('/').next().unwrap_or_default()))
        };
        let places = words.all().iter().enumerate().filter(|(_, word)| named(word));
        let mut places = places.map(|(at, _)| at).filter(wrapped);
        places.any(|at| self.fits(&words.all()[at + 1..]))
    }

    fn fits(&self, rest: &[String]) -> bool {
        if self.with.is_empty() && self.letters.is_empty() && self.beginning.is_empty() {
            return true;
        }
        rest.iter().any(|word| {
            let bundle = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            self.with.iter().any(|one| one == word)
                || self.beginning.iter().any(|one| word.starts_with(one.as_str()))
                || bundle.is_some_and(|letters| letters.chars().any(|c| self.letters.contains(c)))
        })
    }
}

/// Programs that run another from their arguments: an approval is for one run, and the list applies to the other, too.
pub(crate) const WRAPPERS: [&str; 34] = [
    "bash",
    "busybox",
    "chroot",
    "chrt",
    "dash",
    "doas",
    "env",
    "expect",
    "find",
    "flock",
    "ionice",
    "ksh",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "runuser",
    "script",
    "setpriv",
    "setsid",
    "sh",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "unshare",
    "watch",
    "xargs",
    "zsh",
];

/// Programs that run code from their arguments or input, or programs that a directory's configuration names.
pub(crate) const INTERPRETERS: [&str; 20] = [
    "awk", "bun", "deno", "emacs", "gawk", "gdb", "git", "lua", "make", "mawk", "node", "npm", "npx", "perl",
    "php", "pip", "python", "ruby", "sed", "vim",
];

/// True if an approval of this program is for one run only.
pub(crate) fn is_single_use(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    WRAPPERS.contains(&name) || INTERPRETERS.contains(&unversioned)
}
