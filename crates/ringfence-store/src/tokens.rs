//! Bearer tokens of the HTTP server: their principals and rights. A token is random and shown only when created; its
//! SHA-256 is stored. The file is replaced atomically, so readers need no lock; a writer locks from reading to writing.

use crate::{
    digest::{from_hex, to_hex},
    tree::Stamp,
    whole_file::{Directory, FileError, IfExists},
};
use data_encoding::BASE64URL_NOPAD;
use ringfence_types::{LimitsRequest, Namespace, closed_words};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{io, path::Path, time::Duration};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

const DIRECTORY: &str = "access";
const FILE: &str = "tokens.json";
const LOCK: &str = "tokens.lock";
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const FILE_BYTES_MAX: u64 = 4 << 20;
const TOKENS_MAX: usize = 1000;
const RANDOM_BYTES: usize = 32;
/// Makes a leaked token recognizable.
const PREFIX: &str = "rft_";
const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalRole {
    /// May use the tools.
    #[default]
    Caller,
    /// May also approve, in the dialogue of its client.
    Operator,
}

closed_words!(PrincipalRole: Caller = "caller", Operator = "operator");

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// Name of the principal, in the syntax of a namespace.
    pub name: Namespace,
    /// SHA-256 of the token, in hexadecimal.
    pub sha256: String,
    /// Allowed namespaces. Empty: all.
    pub namespaces: Vec<Namespace>,
    /// Allowed toolsets. Empty: those of the server.
    pub toolsets: Vec<String>,
    /// 0: unlimited.
    pub rate_per_minute: u32,
    /// Time after which its calls are detached; 0: never. `None`: the server's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detach_after_ms: Option<u64>,
    /// Maximum limits of its programs, where they are below the server's.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub limits: LimitsRequest,
    pub role: PrincipalRole,
    pub created_unix_ms: u64,
    pub expires_unix_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    tokens: Vec<TokenEntry>,
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0} is damaged")]
    Damaged(String),
    #[error("`{0}` has a token already")]
    Exists(Namespace),
    #[error("there are {TOKENS_MAX} tokens")]
    Full,
    #[error("no randomness: {0}")]
    Random(getrandom::Error),
}

/// Version of the file that was read: its stamp and its size. Another file differs in at least one of them.
pub type FileVersion = (Stamp, i64);

#[derive(Debug)]
pub struct Tokens {
    directory: Directory,
}

impl Tokens {
    pub fn open(state_dir: &Path) -> Result<Self, TokenError> {
        let directory = Directory::private(state_dir.join(DIRECTORY))?;
        Ok(Self { directory })
    }

    /// Returns the version of the file. `None` if there is no file, because no token was ever created.
    pub fn stamp(&self) -> Result<Option<FileVersion>, TokenError> {
        let stat = self.directory.stat(FILE)?;
        Ok(stat.map(|stat| (Stamp::of(&stat), stat.st_size)))
    }

    /// Returns all tokens, including expired ones. `None` if there is no file.
    pub fn read(&self) -> Result<Option<Vec<TokenEntry>>, TokenError> {
        let damaged = || TokenError::Damaged(self.directory.path.join(FILE).display().to_string());
        let Some(bytes) = self.directory.read(FILE, FILE_BYTES_MAX)? else {
            return Ok(None);
        };
        let file: File = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        match file.version {
            VERSION if bytes.len() as u64 <= FILE_BYTES_MAX => Ok(Some(file.tokens)),
            _ => Err(damaged()),
        }
    }

    /// Stores an entry, with its `sha256` filled in, and returns the token. Expired entries are removed.
    pub fn create(&self, mut entry: TokenEntry) -> Result<Zeroizing<String>, TokenError> {
        let _lock = self.directory.lock_within(LOCK, LOCK_PATIENCE)?;
        let mut tokens = self.read()?.unwrap_or_default();
        tokens.retain(|token| !is_expired(token, entry.created_unix_ms));
        if tokens.iter().any(|token| token.name == entry.name) {
            return Err(TokenError::Exists(entry.name));
        }
        if tokens.len() >= TOKENS_MAX {
            return Err(TokenError::Full);
        }
        let mut random = Zeroizing::new([0; RANDOM_BYTES]);
        getrandom::fill(&mut *random).map_err(TokenError::Random)?;
        let mut token = Zeroizing::new(String::with_capacity(64));
        token.push_str(PREFIX);
        BASE64URL_NOPAD.encode_append(&*random, &mut token);
        entry.sha256 = to_hex(&hash(&token));
        tokens.push(entry);
        self.write(tokens)?;
        Ok(token)
    }

    /// Returns false without such a token. The file stays, even if empty, so that the server does not become open.
    pub fn revoke(&self, name: &Namespace) -> Result<bool, TokenError> {
        let _lock = self.directory.lock_within(LOCK, LOCK_PATIENCE)?;
        let mut tokens = self.read()?.unwrap_or_default();
        let before = tokens.len();
        tokens.retain(|token| token.name != *name);
        let existed = tokens.len() < before;
        if existed {
            self.write(tokens)?;
        }
        Ok(existed)
    }

    fn write(&self, tokens: Vec<TokenEntry>) -> Result<(), TokenError> {
        let version = VERSION;
        let file = File { version, tokens };
        let failed = self.directory.failed::<io::Error>("write", FILE);
        let bytes = serde_json::to_vec_pretty(&file).map_err(|error| failed(error.into()))?;
        self.directory.write(FILE, &bytes, IfExists::Replace)?;
        Ok(())
    }
}

fn is_empty(limits: &LimitsRequest) -> bool {
    *limits == LimitsRequest::default()
}

fn is_expired(token: &TokenEntry, now_unix_ms: u64) -> bool {
    token.expires_unix_ms.is_some_and(|end| end <= now_unix_ms)
}

pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares in constant time, so that the time does not reveal how much of a hash is right.
pub fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.ct_eq(other).into()
}

/// Returns the index of the token's entry, if it has not expired.
pub fn find<'a>(
    tokens: impl Iterator<Item = &'a TokenEntry>,
    presented: &[u8; 32],
    now_unix_ms: u64,
) -> Option<usize> {
    let is_of = |entry: &TokenEntry| from_hex(&entry.sha256).is_some_and(|kept| is_same(&kept, presented));
    // Every entry is compared, so that the time does not reveal the index of the right one either.
    let found = tokens.enumerate().filter(|(_, entry)| is_of(entry)).last();
    found
        .filter(|(_, entry)| !is_expired(entry, now_unix_ms))
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::TestDir;

    fn entry(name: &str, expires_unix_ms: Option<u64>) -> TokenEntry {
        TokenEntry {
            name: name.to_owned().try_into().unwrap(),
            sha256: String::new(),
            namespaces: vec![name.to_owned().try_into().unwrap()],
            toolsets: vec!["execute".to_owned()],
            rate_per_minute: 0,
            detach_after_ms: None,
            limits: LimitsRequest::default(),
            role: PrincipalRole::Caller,
            created_unix_ms: 1000,
            expires_unix_ms,
        }
    }

    #[test]
    fn only_the_exact_token_is_found_and_it_is_not_stored() {
        let state = TestDir::new();
        let tokens = Tokens::open(&state).unwrap();
        assert!(tokens.read().unwrap().is_none() && tokens.stamp().unwrap().is_none());
        let first = tokens.create(entry("a", None)).unwrap();
        let second = tokens.create(entry("b", Some(2000))).unwrap();
        assert!(first.starts_with(PREFIX) && first.len() == 47 && first != second);
        let kept = tokens.read().unwrap().unwrap();
        let name = |token: &str, now| {
            let index = find(kept.iter(), &hash(token), now);
            index.map(|index| kept[index].name.as_str())
        };
        assert_eq!(name(&first, 1500), Some("a"));
        assert_eq!(name(&second, 1999), Some("b"));
        assert_eq!(name(&second, 2000), None);
        for wrong in ["", "rft_", &first[..46], &format!("{}x", *first), &kept[0].sha256] {
            assert_eq!(name(wrong, 1500), None, "{wrong}");
        }
        let text = std::fs::read_to_string(state.join("access/tokens.json")).unwrap();
        assert!(!text.contains(&first[4..]) && text.contains(&kept[0].sha256));
    }

    #[test]
    fn revoked_token_is_removed_and_the_file_version_changes() {
        let state = TestDir::new();
        let tokens = Tokens::open(&state).unwrap();
        tokens.create(entry("a", None)).unwrap();
        let stamp = tokens.stamp().unwrap();
        assert!(matches!(
            tokens.create(entry("a", None)),
            Err(TokenError::Exists(_))
        ));
        assert_eq!(tokens.stamp().unwrap(), stamp);
        let name = "a".to_owned().try_into().unwrap();
        assert!(tokens.revoke(&name).unwrap() && !tokens.revoke(&name).unwrap());
        assert_ne!(tokens.stamp().unwrap(), stamp);
        assert_eq!(tokens.read().unwrap(), Some(Vec::new()));
    }

    #[test]
    fn expired_token_can_be_replaced_by_one_of_its_name() {
        let state = TestDir::new();
        let tokens = Tokens::open(&state).unwrap();
        tokens.create(entry("a", Some(1000))).unwrap();
        tokens.create(entry("a", None)).unwrap();
        assert_eq!(tokens.read().unwrap().unwrap().len(), 1);
    }

    #[test]
    fn damaged_token_file_is_an_error_not_an_empty_list() {
        let state = TestDir::new();
        let tokens = Tokens::open(&state).unwrap();
        for text in [
            "",
            "{}",
            "[]",
            r#"{"version":2,"tokens":[]}"#,
            r#"{"version":1,"tokens":[{"name":"a"}]}"#,
        ] {
            std::fs::write(state.join("access/tokens.json"), text).unwrap();
            assert!(matches!(tokens.read(), Err(TokenError::Damaged(_))), "{text}");
            assert!(tokens.create(entry("a", None)).is_err(), "{text}");
        }
    }
}
