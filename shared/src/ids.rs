//! Identities. A value of one of these types has the form its column demands.

use std::fmt;

use mysql_async::Value;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that is not of the form an identity demands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is not valid: {rule}")]
pub struct InvalidId {
    pub what: &'static str,
    pub value: String,
    pub rule: &'static str,
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn parse(value: impl Into<String>) -> Result<Self, InvalidId> {
                let value = value.into();
                let valid: fn(&str) -> bool = $valid;
                if valid(&value) {
                    Ok(Self(value))
                } else {
                    // A hostile id may be huge: enough of it is quoted to recognise it.
                    Err(InvalidId { what: $what, value: value.chars().take(80).collect(), rule: $rule })
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }

        impl From<$name> for Value {
            fn from(id: $name) -> Value {
                Value::Bytes(id.0.into_bytes())
            }
        }
    };
}

fn is_relationship_id(value: &str) -> bool {
    (1..=128).contains(&value.len())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@:+/-".contains(&b))
        && value != "."
        && value != ".."
}

text_id!(
    /// Who or what a request gives something to: 1–128 of `[A-Za-z0-9._@:+/-]`.
    SubjectId, "subject_id", "1 to 128 of the characters A-Z a-z 0-9 . _ @ : + / - and not . or ..", is_relationship_id
);
text_id!(
    /// What a request gives access to: 1–128 of `[A-Za-z0-9._@:+/-]`.
    TargetKey, "target_key", "1 to 128 of the characters A-Z a-z 0-9 . _ @ : + / - and not . or ..", is_relationship_id
);
text_id!(
    /// One (project, target branch) with its own slot; part of the branch name.
    PartitionKey, "partition", "1 to 64 of the characters A-Z a-z 0-9 _ -, the first a letter or digit",
    |value| (1..=64).contains(&value.len())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        && value.as_bytes()[0].is_ascii_alphanumeric()
);
text_id!(
    /// Who calls: the authorizer's principal (JWT `sub` or IAM ARN), or one of Muster's own.
    Principal, "principal", "1 to 255 printable ASCII characters without spaces",
    |value| (1..=255).contains(&value.len()) && value.bytes().all(|b| (b'!'..=b'~').contains(&b))
);
text_id!(
    /// The caller's `Idempotency-Key`.
    RequestKey, "Idempotency-Key", "1 to 255 printable ASCII characters that neither begin nor end with a space",
    |value| (1..=255).contains(&value.len())
        && value.bytes().all(|b| (b' '..=b'~').contains(&b))
        && value.trim_matches(' ').len() == value.len()
);
text_id!(
    /// A request's id: a UUIDv7 made by us, in lower case.
    OperationId, "operation_id", "a UUID of version 7 in lower case, as POST /requests answered it",
    |value| value.len() == 36
        && uuid::Uuid::try_parse(value).is_ok_and(|id| id.get_version_num() == 7)
        && value.bytes().all(|b| !b.is_ascii_uppercase())
);

impl OperationId {
    pub fn new() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

impl Default for OperationId {
    fn default() -> Self {
        Self::new()
    }
}

impl PartitionKey {
    /// The partition that unknown targets are created in.
    pub fn default_partition() -> Self {
        Self("default".to_owned())
    }
}

impl Principal {
    /// Muster itself, where no caller stands behind an action.
    pub fn muster() -> Self {
        Self("muster".to_owned())
    }

    /// Muster itself, revoking what has expired.
    pub fn expiry() -> Self {
        Self("muster:expiry".to_owned())
    }
}

/// A batch's number. Unique in one database, not across a failover: nothing outside is named by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A JSON string: numbers above 2^53 do not survive every reader.
impl Serialize for BatchId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for BatchId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| serde::de::Error::custom(format!("batch_id {text:?} is not a number in a string")))
    }
}

impl From<BatchId> for Value {
    fn from(id: BatchId) -> Value {
        Value::UInt(id.0)
    }
}

/// Chosen before BEGIN: makes a lost COMMIT answerable, and names the branch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimToken(pub [u8; 16]);

impl ClaimToken {
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// 32 lower-case hex digits.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    pub fn from_hex(text: &str) -> Option<Self> {
        // Only the spelling that we write is ours.
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return None;
        }
        let mut bytes = [0; 16];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl Serialize for ClaimToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.hex())
    }
}

impl From<ClaimToken> for Value {
    fn from(token: ClaimToken) -> Value {
        Value::Bytes(token.0.to_vec())
    }
}

/// First path component of every branch that is ours.
pub const BRANCH_ROOT: &str = "muster/";

/// `muster/<partition_key>/<token hex>`: a pure function of the claim token, so a retry finds it.
pub fn branch_name(partition: &PartitionKey, token: ClaimToken) -> String {
    format!("{BRANCH_ROOT}{partition}/{}", token.hex())
}

/// Every branch of one partition begins with this.
pub fn branch_prefix(partition: &PartitionKey) -> String {
    format!("{BRANCH_ROOT}{partition}/")
}

/// Reads a branch name back; `None` where the branch is not one of ours.
pub fn parse_branch(branch: &str) -> Option<(PartitionKey, ClaimToken)> {
    let (partition, token) = branch.strip_prefix(BRANCH_ROOT)?.split_once('/')?;
    Some((PartitionKey::parse(partition).ok()?, ClaimToken::from_hex(token)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_name_reads_back_as_the_token_that_made_it() {
        let partition = PartitionKey::parse("team-a").expect("a valid key");
        let token = ClaimToken::random();
        assert_eq!(parse_branch(&branch_name(&partition, token)), Some((partition, token)));
        assert_eq!(parse_branch("feature/x"), None);
        assert_eq!(parse_branch("muster/team-a/ABCDEFABCDEFABCDEFABCDEFABCDEFAB"), None);
    }

    #[test]
    fn ids_of_another_form_are_refused() {
        for bad in ["", ".", "..", "a b", "é", "a\n", &"x".repeat(129)] {
            assert!(SubjectId::parse(bad).is_err(), "{bad:?}");
        }
        for bad in ["", " k", "k ", "k\n", "é", &"x".repeat(256)] {
            assert!(RequestKey::parse(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "01890000-0000-4000-8000-000000000000", "01890000-0000-7000-8000-00000000000A"] {
            assert!(OperationId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(OperationId::parse(OperationId::new().as_str()).is_ok());
        assert!(SubjectId::parse("a@b/c:d+e-f_g.h").is_ok());
    }
}
