//! What a server answers.

/// One reply of a server, RESP2 or RESP3. Simple texts that are not UTF-8 come
/// with replacement characters; [`RawClient::last_bytes`](crate::RawClient::last_bytes)
/// has them untouched.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+text`
    Simple(String),
    /// `-text`, and RESP3's `!` bulk error
    Error(String),
    /// `:number`
    Integer(i64),
    /// `$bytes`; `None` is RESP2's null `$-1`
    Bulk(Option<Vec<u8>>),
    /// `*items`; `None` is RESP2's null `*-1`
    Array(Option<Vec<Reply>>),
    /// RESP3 `_`
    Null,
    /// RESP3 `#t` or `#f`
    Boolean(bool),
    /// RESP3 `,number`
    Double(f64),
    /// RESP3 `(digits`, as they came
    BigNumber(String),
    /// RESP3 `=`: the three letters of the format, and the text
    Verbatim(String, Vec<u8>),
    /// RESP3 `%`, in the order it came
    Map(Vec<(Reply, Reply)>),
    /// RESP3 `~`, in the order it came
    Set(Vec<Reply>),
    /// RESP3 `>`: a message outside the order of the replies
    Push(Vec<Reply>),
}

impl Reply {
    /// The four integers of a TB.* reply, or else the text of the error.
    ///
    /// # Panics
    ///
    /// When the reply is neither an array of exactly four integers nor an error.
    #[track_caller]
    pub fn four(self) -> Result<[i64; 4], String> {
        match &self {
            Reply::Error(text) => return Err(text.clone()),
            Reply::Array(Some(items)) => {
                if let [Reply::Integer(a), Reply::Integer(b), Reply::Integer(c), Reply::Integer(d)] =
                    items[..]
                {
                    return Ok([a, b, c, d]);
                }
            }
            _ => {}
        }
        panic!("not an array of four integers: {self:?}")
    }

    /// The integers of a TB.* reply, those of nested arrays in place.
    ///
    /// # Panics
    ///
    /// When there is anything else in it.
    #[track_caller]
    pub fn integers(&self) -> Vec<i64> {
        match self {
            Reply::Integer(number) => vec![*number],
            Reply::Array(Some(items)) => items.iter().flat_map(Reply::integers).collect(),
            other => panic!("not integers: {other:?}"),
        }
    }

    /// The integer.
    ///
    /// # Panics
    ///
    /// When the reply is anything else.
    #[track_caller]
    pub fn integer(self) -> i64 {
        match self {
            Reply::Integer(number) => number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// The bytes of a bulk or verbatim string, or of a simple one; `None` for a null.
    ///
    /// # Panics
    ///
    /// When the reply is anything else.
    #[track_caller]
    pub fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Reply::Bulk(bytes) => bytes,
            Reply::Verbatim(_, bytes) => Some(bytes),
            Reply::Simple(text) => Some(text.into_bytes()),
            Reply::Null => None,
            other => panic!("not a string: {other:?}"),
        }
    }

    /// The text of the error, or `None` when the reply is none.
    pub fn error(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_integers_or_the_error() {
        let four = [1, 9, 0, 1000].map(Reply::Integer).to_vec();
        assert_eq!(Reply::Array(Some(four)).four(), Ok([1, 9, 0, 1000]));
        assert_eq!(Reply::Error("ERR".into()).four(), Err("ERR".into()));
    }
}
