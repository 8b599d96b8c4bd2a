//! How a subject and the name of a limit become a key.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::Error;

/// How keys are made: `prefix{subject}:name`.
///
/// The name of the limit is part of the key, so two limits never share a bucket. The
/// subject stands in braces, so all limits of one subject lie in one slot of a cluster.
/// Where prefix and subject together are above a length, the subject's SHA-256 stands in its
/// place, so that what comes from outside can't fill the server with long keys.
///
/// ```
/// use tokenbucket_client::{Client, Keys};
///
/// let client = Client::in_process()
///     .keys(Keys::default().prefix("rl:").hash_above(Some(64)))
///     .build()?;
/// # Ok::<(), tokenbucket_client::Error>(())
/// ```
#[derive(Clone)]
pub struct Keys {
    prefix: String,
    hash_above: Option<usize>,
    made_by: Option<Make>,
}

/// Makes a key of the name of a limit and of a subject.
type Make = Arc<dyn Fn(&str, &[u8]) -> Vec<u8> + Send + Sync>;

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("prefix", &self.prefix)
            .field("hash_above", &self.hash_above)
            .field("made_by", &self.made_by.as_ref().map(|_| "a function"))
            .finish()
    }
}

/// What a hashed subject begins with. A subject that begins so by itself is hashed as
/// well: no subject can pass for the hash of another.
const HASHED: &[u8] = b"sha256=";
const DEFAULT_LONGEST: usize = 256;

impl Default for Keys {
    /// No prefix; subjects above 254 bytes, 256 with their braces, are hashed.
    fn default() -> Self {
        Self {
            prefix: String::new(),
            hash_above: Some(DEFAULT_LONGEST),
            made_by: None,
        }
    }
}

impl Keys {
    /// What every key begins with, as for an ACL rule `~rl:*`. Without braces, which
    /// would take the subject's place in choosing the slot of a cluster.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The length in bytes of prefix, braces and subject above which the subject is hashed;
    /// `None` for never. The name has no part in it: all limits of a subject must have the
    /// same braces.
    #[must_use]
    pub fn hash_above(mut self, bytes: Option<usize>) -> Self {
        self.hash_above = bytes;
        self
    }

    /// Keys made by a function of the limit's name and the subject, to share buckets with
    /// clients in other languages or with keys that are there already. It rules alone: no
    /// prefix, no hash. Two limits whose keys are the same share a bucket; and limits that
    /// are asked together in a cluster must lie in one slot.
    ///
    /// ```
    /// # use tokenbucket_client::Keys;
    /// let keys = Keys::default().made_by(|name, subject| {
    ///     [b"rl:", name.as_bytes(), b":", subject].concat()
    /// });
    /// ```
    #[must_use]
    pub fn made_by(mut self, key: impl Fn(&str, &[u8]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.made_by = Some(Arc::new(key));
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.prefix.contains(['{', '}']) {
            return Err(Error::argument("the prefix of keys must have no braces"));
        }
        Ok(())
    }

    pub(crate) fn key(&self, name: &str, subject: &[u8]) -> Vec<u8> {
        if let Some(make) = &self.made_by {
            return make(name, subject);
        }
        let length = subject
            .len()
            .saturating_add(self.prefix.len())
            .saturating_add(2);
        let mut key = Vec::with_capacity(length.min(512).saturating_add(name.len()));
        key.extend_from_slice(self.prefix.as_bytes());
        key.push(b'{');
        // Without a byte before the first closing brace the server would choose the slot
        // by the whole key, and the limits of one subject would lie apart.
        let no_tag = matches!(subject.first(), None | Some(b'}'));
        if no_tag
            || subject.starts_with(HASHED)
            || self.hash_above.is_some_and(|most| length > most)
        {
            let mut hash = String::with_capacity(64);
            for byte in Sha256::digest(subject) {
                // Writing to a string can't fail.
                let _ = write!(hash, "{byte:02x}");
            }
            key.extend_from_slice(HASHED);
            key.extend_from_slice(hash.as_bytes());
        } else {
            key.extend_from_slice(subject);
        }
        key.extend_from_slice(b"}:");
        key.extend_from_slice(name.as_bytes());
        key
    }
}

/// A name can't end the subject's braces: a key says where its subject ends.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > 64 || name.contains(['{', '}']) {
        return Err(Error::argument(
            "the name of a limit must have 1 to 64 bytes and no braces",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(subject: &[u8]) -> Vec<u8> {
        Keys::default().key("api", subject)
    }

    #[test]
    fn a_key_is_made_of_subject_and_name() {
        assert_eq!(key(b"user:42"), b"{user:42}:api");
        assert_eq!(key(b"\xff\x00"), b"{\xff\x00}:api");
        let keys = Keys::default().prefix("rl:");
        assert_eq!(keys.key("api", b"user:42"), b"rl:{user:42}:api");
    }

    #[test]
    fn long_subjects_are_hashed() {
        let at = [b'x'; 254];
        assert_eq!(key(&at).len(), 256 + 4);
        let above = [b'x'; 255];
        let hashed = key(&above);
        assert!(hashed.starts_with(b"{sha256="), "{hashed:?}");
        assert_eq!(hashed.len(), 1 + 7 + 64 + 5);
        assert_ne!(hashed, key(&[b'x'; 256]));
        let kept = Keys::default().hash_above(None).key("api", &above);
        assert_eq!(kept.len(), 257 + 4);
        // The hash of the SHA-256 test vector "abc".
        let keys = Keys::default().hash_above(Some(0));
        assert_eq!(
            keys.key("n", b"abc"),
            b"{sha256=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad}:n"
        );
    }

    /// Whatever their names: the limits of one subject lie in one slot.
    #[test]
    fn all_limits_of_a_subject_have_the_same_braces() {
        for length in 0..600 {
            let subject = vec![b'x'; length];
            let braces = |name: &str| {
                let key = Keys::default().key(name, &subject);
                let end = key.iter().position(|&byte| byte == b'}').unwrap();
                key[..=end].to_vec()
            };
            assert_eq!(braces("a"), braces(&"long".repeat(16)), "{length}");
        }
    }

    #[test]
    fn no_two_subjects_share_a_key() {
        let hash = key(&[b'x'; 300]);
        let posing = hash[1..hash.len() - 5].to_vec();
        let subjects: Vec<Vec<u8>> = vec![
            b"".to_vec(),
            b"a".to_vec(),
            b"}".to_vec(),
            b"}:api".to_vec(),
            b"a}:api".to_vec(),
            b"{a".to_vec(),
            b"{a}".to_vec(),
            vec![b'x'; 300],
            posing,
        ];
        let mut keys: Vec<Vec<u8>> = subjects.iter().map(|subject| key(subject)).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), subjects.len());
    }

    #[test]
    fn a_function_rules_alone() {
        let keys = Keys::default()
            .prefix("rl:")
            .made_by(|name, subject| [name.as_bytes(), b"/", subject].concat());
        assert_eq!(keys.key("api", &[b'x'; 300]).len(), 304);
        assert_eq!(keys.key("api", b"user:42"), b"api/user:42");
    }

    #[test]
    fn names_and_prefixes_are_checked() {
        assert!(check_name("api.v1:read").is_ok());
        for name in ["", "{", "a}b", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(Keys::default().prefix("a{b").check().is_err());
    }
}
