//! One record and the head: the bytes that are hashed and signed. The format is described at the top of `audit`.

use super::entry::Encoded;
use crate::{
    Signer,
    digest::{from_hex, to_hex},
};
use rusqlite::Row;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

const RECORD_PREFIX: &[u8] = b"ringfence audit record v1\0";
const SIGNATURE_PREFIX: &[u8] = b"ringfence audit signature v1\0";
const HEAD_PREFIX: &[u8] = b"ringfence audit head v1\0";

pub(super) const NO_HASH: [u8; 32] = [0; 32];

/// The columns, in the order in which [`Record::of_row`] reads them.
pub(super) const COLUMNS: &str = "seq, time_us, server_id, action, outcome, namespace, execution_id, caller, details, \
     prev_hash, hash, signature";

/// One record as stored. Reading it checks nothing; [`super::verify`] does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// From 1, without gaps.
    pub seq: u64,
    /// Microseconds since 1970, by the clock of the server.
    pub time_us: i64,
    pub server_id: String,
    /// An [`super::Action`], or a word of a later version.
    pub action: String,
    /// An [`super::Outcome`], or a word of a later version.
    pub outcome: String,
    pub namespace: String,
    pub execution_id: Option<String>,
    pub caller: String,
    /// JSON text of an object, exactly as stored and hashed.
    #[serde(skip)]
    pub details: String,
    #[serde(with = "as_hex")]
    pub prev_hash: [u8; 32],
    #[serde(with = "as_hex")]
    pub hash: [u8; 32],
    /// Ed25519, over the hash.
    #[serde(with = "as_hex")]
    pub signature: [u8; 64],
}

mod as_hex {
    use super::{from_hex, to_hex};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_hex(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        deserializer: D,
    ) -> Result<[u8; N], D::Error> {
        let digits = String::deserialize(deserializer)?;
        from_hex(&digits).ok_or_else(|| D::Error::custom("not the digits of a hash"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub seq: u64,
    pub hash: [u8; 32],
    pub time_us: i64,
}

impl Record {
    pub(super) fn next(
        head: Option<&Head>,
        encoded: &Encoded,
        server_id: &str,
        time_us: i64,
        signer: &Signer,
    ) -> Self {
        let entry = &encoded.entry;
        let mut record = Self {
            seq: head.map_or(0, |head| head.seq) + 1,
            time_us,
            server_id: server_id.to_owned(),
            action: entry.action.as_str().to_owned(),
            outcome: entry.outcome.as_str().to_owned(),
            namespace: entry.namespace.clone(),
            execution_id: entry.execution_id.clone(),
            caller: entry.caller.clone(),
            details: encoded.details.clone(),
            prev_hash: head.map_or(NO_HASH, |head| head.hash),
            hash: NO_HASH,
            signature: [0; 64],
        };
        record.hash = record.computed_hash();
        record.signature = signer.sign(&signed_bytes(&record.hash));
        record
    }

    pub(super) fn computed_hash(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(RECORD_PREFIX);
        digest.update(self.prev_hash);
        let mut field = |parts: &[&[u8]]| {
            let bytes: usize = parts.iter().map(|part| part.len()).sum();
            digest.update((bytes as u64).to_le_bytes());
            parts.iter().for_each(|part| digest.update(part));
        };
        field(&[&self.seq.to_le_bytes()]);
        field(&[&self.time_us.to_le_bytes()]);
        field(&[self.server_id.as_bytes()]);
        field(&[self.action.as_bytes()]);
        field(&[self.outcome.as_bytes()]);
        field(&[self.namespace.as_bytes()]);
        match &self.execution_id {
            None => field(&[]),
            Some(id) => field(&[&[1], id.as_bytes()]),
        }
        field(&[self.caller.as_bytes()]);
        field(&[self.details.as_bytes()]);
        digest.finalize().into()
    }

    pub(super) fn is_signed_by(&self, public_key: &[u8; 32]) -> bool {
        crate::verify(public_key, &signed_bytes(&self.hash), &self.signature)
    }

    /// Returns true if it is what was hashed, and comes after that record.
    pub(super) fn follows(&self, before: Option<Head>) -> bool {
        let is_next = |before: Head| self.seq == before.seq + 1 && self.prev_hash == before.hash;
        before.is_none_or(is_next) && self.computed_hash() == self.hash
    }

    pub(super) fn head(&self) -> Head {
        let (seq, hash, time_us) = (self.seq, self.hash, self.time_us);
        Head { seq, hash, time_us }
    }

    pub(super) fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            time_us: row.get(1)?,
            server_id: row.get(2)?,
            action: row.get(3)?,
            outcome: row.get(4)?,
            namespace: row.get(5)?,
            execution_id: row.get(6)?,
            caller: row.get(7)?,
            details: row.get(8)?,
            prev_hash: row.get(9)?,
            hash: row.get(10)?,
            signature: row.get(11)?,
        })
    }

    /// Returns one line of JSON, with the details byte for byte as stored, if they are JSON on one line.
    pub fn to_json(&self) -> String {
        // Through a `Value`, which sorts the names.
        let mut line = serde_json::to_value(self).unwrap_or_default().to_string();
        line.pop();
        line.push_str(",\"details\":");
        // Edited details must break neither the line nor the object.
        let one_line = !self.details.contains(['\n', '\r']);
        if one_line && serde_json::from_str::<serde::de::IgnoredAny>(&self.details).is_ok() {
            line.push_str(&self.details);
        } else {
            line.push_str(&Value::from(self.details.as_str()).to_string());
        }
        line.push('}');
        line
    }

    pub(super) fn of_json(line: &str) -> Option<Self> {
        let mut record: Self = serde_json::from_str(line).ok()?;
        // Byte for byte. Inside a string, the quotes of this pattern would be escaped.
        let (_, details) = line.split_once(",\"details\":")?;
        let details = details.strip_suffix('}')?;
        record.details = match details.starts_with('"') {
            true => serde_json::from_str(details).ok()?,
            false => details.to_owned(),
        };
        Some(record)
    }

    pub(super) fn detail(&self, name: &str) -> Option<Value> {
        let details: Value = serde_json::from_str(&self.details).ok()?;
        details.get(name).cloned()
    }
}

impl Head {
    pub(super) fn signed_bytes(&self) -> Vec<u8> {
        let (seq, time_us) = (self.seq.to_le_bytes(), self.time_us.to_le_bytes());
        [HEAD_PREFIX, &seq, &time_us, &self.hash].concat()
    }
}

fn signed_bytes(hash: &[u8; 32]) -> Vec<u8> {
    [SIGNATURE_PREFIX, hash].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            seq: 1,
            time_us: 1_700_000_000_000_000,
            server_id: "s".to_owned(),
            action: "tool.called".to_owned(),
            outcome: "ok".to_owned(),
            namespace: "default".to_owned(),
            execution_id: None,
            caller: "c".to_owned(),
            details: r#"{"b":1.10,"a":2}"#.to_owned(),
            prev_hash: NO_HASH,
            hash: NO_HASH,
            signature: [7; 64],
        }
    }

    /// Computed by another program (Python's hashlib) from the description at the top of `audit`.
    #[test]
    fn hash_matches_the_documented_format() {
        assert_eq!(
            to_hex(&record().computed_hash()),
            "d6d480625b54b13c50e0f85eee1f5b33f3a0c5664c90ef1e651c320b4d3ac03a"
        );
        let with_id = Record {
            execution_id: Some("e".to_owned()),
            ..record()
        };
        assert_eq!(
            to_hex(&with_id.computed_hash()),
            "10f8ce9c2d143edaad84b4cf59bf77851d9b647a0cc2089c4a9531c27acb5d65"
        );
    }

    #[test]
    fn text_moved_between_fields_changes_the_hash() {
        let shifted = Record {
            server_id: "st".to_owned(),
            action: "ool.called".to_owned(),
            ..record()
        };
        assert_ne!(record().computed_hash(), shifted.computed_hash());
        let empty_id = Record {
            execution_id: Some(String::new()),
            ..record()
        };
        assert_ne!(record().computed_hash(), empty_id.computed_hash());
    }

    #[test]
    fn json_line_contains_the_details_as_stored() {
        assert!(record().to_json().ends_with(r#","details":{"b":1.10,"a":2}}"#));
    }

    #[test]
    fn edited_details_cannot_break_the_line_or_forge_another_field() {
        for details in ["{}\n{\"seq\":9}", "{},\"seq\":9", "", "{\"a\":\n1}", "\u{2028}\0"] {
            let line = Record {
                details: details.to_owned(),
                ..record()
            }
            .to_json();
            assert!(!line.contains('\n'), "{line:?}");
            let read: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(read["seq"], 1);
            assert_eq!(read["details"], details);
        }
    }
}
