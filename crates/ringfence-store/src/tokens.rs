//! Bearer tokens of the HTTP server: who has one, and what its bearer may. A token is random and is shown when it is
//! made; what is kept is its SHA-256. Readers take the file as it is, for it is replaced whole; a writer holds a lock
//! from reading to writing.

use crate::{
    digest::{from_hex, to_hex},
    tree::Stamp,
    whole_file::{Directory, FileError, Taken},
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
/// So that a token is known for what it is where it should not be.
const PREFIX: &str = "rft_";
const VERSION: u32 = 1;

/// What the bearer of a token is to this server.
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
    /// Of the principal; written as a namespace's.
    pub name: Namespace,
    /// In hexadecimal digits.
    pub sha256: String,
    /// Empty: all.
    pub namespaces: Vec<Namespace>,
    /// Empty: those of the server.
    pub toolsets: Vec<String>,
    /// 0: as many as it likes.
    pub rate_per_minute: u32,
    /// After how long its calls are detached, 0: never. None: as the server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detach_after_ms: Option<u64>,
    /// The largest limits of its programs, where they are below the server's.
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

/// Which file was read: another one differs in some of it. The second is its size.
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

    /// None: there is no file, because no token was ever made.
    pub fn stamp(&self) -> Result<Option<FileVersion>, TokenError> {
        let stat = self.directory.stat(FILE)?;
        Ok(stat.map(|stat| (Stamp::of(&stat), stat.st_size)))
    }

    /// All of them, expired ones too. None: there is no file.
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

    /// Keeps an entry, whose `sha256` is filled in, and gives its token.
    pub fn create(&self, mut entry: TokenEntry) -> Result<Zeroizing<String>, TokenError> {
        let _lock = self.directory.lock_within(LOCK, LOCK_PATIENCE)?;
        let mut tokens = self.read()?.unwrap_or_default();
        tokens.retain(|token| !is_over(token, entry.created_unix_ms));
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

    /// False: no token has this name. The file stays when the last one goes, so that a server whose tokens are
    /// revoked does not become an open one.
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
        let file = File {
            version: VERSION,
            tokens,
        };
        let failed = self.directory.failed::<io::Error>("write", FILE);
        let bytes = serde_json::to_vec_pretty(&file).map_err(|error| failed(error.into()))?;
        self.directory.write(FILE, &bytes, Taken::Replaced)?;
        Ok(())
    }
}

fn is_empty(limits: &LimitsRequest) -> bool {
    *limits == LimitsRequest::default()
}

fn is_over(token: &TokenEntry, now_unix_ms: u64) -> bool {
    token
        .expires_unix_ms
        .is_some_and(|expires| expires <= now_unix_ms)
}

/// Of a token as it is presented.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Compared without telling by time how much of it is right.
pub fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.ct_eq(other).into()
}

/// The place of the entry that a token is of, if it has not expired.
pub fn find<'a>(
    tokens: impl Iterator<Item = &'a TokenEntry>,
    presented: &[u8; 32],
    now_unix_ms: u64,
) -> Option<usize> {
    let is_of = |entry: &TokenEntry| from_hex(&entry.sha256).is_some_and(|kept| is_same(&kept, presented));
    // Each is looked at, so that the time says nothing of the place of the right one either.
    let found = tokens
        .enumerate()
        .fold(None, |found, one| if is_of(one.1) { Some(one) } else { found });
    found
        .filter(|(_, entry)| !is_over(entry, now_unix_ms))
        .map(|(place, _)| place)
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
    fn a_token_is_found_by_itself_alone_and_is_not_in_the_file() {
        let state = TestDir::new();
        let tokens = Tokens::open(&state).unwrap();
        assert!(tokens.read().unwrap().is_none() && tokens.stamp().unwrap().is_none());
        let first = tokens.create(entry("a", None)).unwrap();
        let second = tokens.create(entry("b", Some(2000))).unwrap();
        assert!(first.starts_with(PREFIX) && first.len() == 47 && first != second);
        let kept = tokens.read().unwrap().unwrap();
        let name = |token: &str, now| {
            let place = find(kept.iter(), &hash(token), now);
            place.map(|place| kept[place].name.as_str())
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
    fn a_revoked_token_is_gone_and_the_file_is_another() {
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
    fn an_expired_token_makes_room_for_another_of_its_name() {
        let state = TestDir::new();
        let tokens = Tokens::open(&state).unwrap();
        tokens.create(entry("a", Some(1000))).unwrap();
        tokens.create(entry("a", None)).unwrap();
        assert_eq!(tokens.read().unwrap().unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_file_is_an_error_and_not_an_empty_list() {
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
