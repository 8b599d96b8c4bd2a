//! What a command is to the server.

use std::ffi::CStr;

use crate::error::Error;
use crate::ffi::Call;
use crate::reply::Reply;
use crate::stats::Tally;

/// A command of the module: one type, one file.
pub trait Command {
    /// How the server knows it.
    const SPEC: Spec;

    /// Where its calls are counted.
    const TALLY: &'static Tally;

    /// What it answers.
    type Reply: Reply;

    /// Carries the command out. In this order: arity, all arguments, the key and
    /// its type, the decision, the write. The answer is given by the caller once
    /// all of that is done, so that a panic never leaves half a reply.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with the call. The bucket is as it was before.
    fn run(call: &Call<'_>) -> Result<Self::Reply, Error>;
}

/// A command's name, flags and keys, and what `COMMAND DOCS` says of it.
pub struct Spec {
    /// Name, in the case in which error texts give it.
    pub name: &'static CStr,
    /// Flags as `RedisModule_CreateCommand` takes them.
    pub flags: &'static CStr,
    /// Number of arguments with the name itself; `-n` for n or more.
    pub arity: i32,
    /// What is done to the keys.
    pub key_access: KeyAccess,
    /// Which arguments are keys.
    pub keys: Keys,
    /// One line of what it does.
    pub summary: &'static CStr,
    /// Time complexity.
    pub complexity: &'static CStr,
    /// Version of the module that brought it.
    pub since: &'static CStr,
    /// The arguments behind the name.
    pub args: &'static [Arg],
}

/// What a command does to its keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyAccess {
    /// Reads them.
    Read,
    /// Reads them, and writes what depends on what was there.
    Update,
}

/// Which arguments are keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// The first.
    First,
    /// The first, and from there every so many to the last.
    Every(i32),
}

/// One argument, for the documentation.
pub struct Arg {
    /// Name as shown.
    pub name: &'static CStr,
    /// What it is.
    pub kind: ArgKind,
    /// Whether it can be left out.
    pub optional: bool,
}

impl Arg {
    /// The argument of this name and kind, which can't be left out.
    pub const fn required(name: &'static CStr, kind: ArgKind) -> Self {
        Self {
            name,
            kind,
            optional: false,
        }
    }

    /// The argument of this name and kind, which can be left out.
    pub const fn optional(name: &'static CStr, kind: ArgKind) -> Self {
        Self {
            name,
            kind,
            optional: true,
        }
    }
}

/// The type of an argument, for the documentation.
#[derive(Clone, Copy)]
pub enum ArgKind {
    /// The key.
    Key,
    /// A number of tokens.
    Amount,
    /// A number of tokens per second, or per another period.
    Rate,
    /// A whole number of milliseconds.
    Milliseconds,
    /// A group of arguments, once or more.
    Groups(&'static [Arg]),
}
