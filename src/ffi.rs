//! All that is unsafe: the server's module API behind safe types, and the guard
//! between the server and our code.
//!
//! Three layers. [`Api`] is the table of the server's functions, resolved once at
//! load: what every supported server has is a plain function pointer, what some
//! lack is an `Option`. [`Call`], [`Key`] and [`Loader`] are safe and speak Rust.
//! The `extern "C"` functions at the end are shims into [`guarded`], which
//! catches every panic: one that crossed into C would abort the server.
//!
//! Raw arguments and replies are used instead of the wrapped handlers of
//! `redis-module`, which allocate a vector and retain and free every argument.
#![allow(
    clippy::as_conversions,
    reason = "constants of the C header, and a length of four"
)]

use std::ffi::{c_char, c_int, c_long, c_void, CStr};
use std::fmt::Write as _;
use std::panic::{catch_unwind, AssertUnwindSafe, PanicHookInfo};
use std::ptr::{addr_of, null, null_mut};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use redis_module::raw;
use tokenbucket_core::STORED_LEN;

use crate::command::{Arg, ArgKind, Command, KeyAccess, Keys, Spec};
use crate::error::Error;
use crate::reply::Reply;
use crate::stats;

/// Memory comes from the server, which so accounts for it. Not in unit tests,
/// which run without a server.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;
const EMPTY: c_int = raw::REDISMODULE_KEYTYPE_EMPTY as c_int;
const STRING: c_int = raw::REDISMODULE_KEYTYPE_STRING as c_int;
const READ: c_int = raw::REDISMODULE_READ as c_int;
const WRITE: c_int = raw::REDISMODULE_WRITE as c_int;

/// The class `d` of keyspace events.
const NOTIFY_MODULE: c_int = raw::REDISMODULE_NOTIFY_MODULE;

/// The ACL category of all commands, where the server can add one.
const ACL_CATEGORY: &CStr = c"tokenbucket";

/// How many of the newest connections are looked at before the module is unloaded:
/// all there ever were on most servers, and a fraction of a second on the others.
const NEWEST_CLIENTS: u64 = 1 << 22;

/// The longest line of our own in the server's log, in bytes.
const LOG_LINE: usize = 512;

static API: OnceLock<Api> = OnceLock::new();

/// Declares the table of the server's functions and how it is filled.
macro_rules! api {
    (required { $($field:ident: $function:ident $kind:ty,)* } optional { $($maybe:ident: $absent:ident $other:ty,)* }) => {
        /// The functions of the server that we call.
        struct Api {
            $($field: $kind,)*
            $($maybe: Option<$other>,)*
        }

        impl Api {
            /// The table, or what the log says of a function that the server lacks.
            fn resolve() -> Result<Self, &'static CStr> {
                Ok(Self {
                    // SAFETY: the server wrote these pointers while it ran
                    // `RedisModule_Init` on this thread; nobody writes them since.
                    $($field: unsafe { raw::$function }.ok_or(too_old!(stringify!($function)))?,)*
                    // SAFETY: as above.
                    $($maybe: unsafe { raw::$absent },)*
                })
            }
        }
    };
}

/// What the log says when a server lacks a function.
macro_rules! too_old {
    ($name:expr) => {
        match CStr::from_bytes_with_nul(
            concat!(
                "this server is too old: it lacks ",
                $name,
                "; Redis 6.2 or Valkey 7.2 is the oldest that will do\0"
            )
            .as_bytes(),
        ) {
            Ok(text) => text,
            Err(_) => c"this server is too old",
        }
    };
}

type Ctx = *mut raw::RedisModuleCtx;
type Str = *mut raw::RedisModuleString;
type RawKey = *mut raw::RedisModuleKey;
type InfoCtx = *mut raw::RedisModuleInfoCtx;
type Handler = unsafe extern "C" fn(Ctx, *mut Str, c_int) -> c_int;

api! {
    required {
        create_command: RedisModule_CreateCommand
            unsafe extern "C" fn(Ctx, *const c_char, Option<Handler>, *const c_char, c_int, c_int, c_int) -> c_int,
        set_module_options: RedisModule_SetModuleOptions unsafe extern "C" fn(Ctx, c_int),
        wrong_arity: RedisModule_WrongArity unsafe extern "C" fn(Ctx) -> c_int,
        reply_with_error: RedisModule_ReplyWithError unsafe extern "C" fn(Ctx, *const c_char) -> c_int,
        reply_with_array: RedisModule_ReplyWithArray unsafe extern "C" fn(Ctx, c_long) -> c_int,
        reply_with_long_long: RedisModule_ReplyWithLongLong unsafe extern "C" fn(Ctx, i64) -> c_int,
        string_ptr_len: RedisModule_StringPtrLen unsafe extern "C" fn(*const raw::RedisModuleString, *mut usize) -> *const c_char,
        open_key: RedisModule_OpenKey unsafe extern "C" fn(Ctx, Str, c_int) -> RawKey,
        close_key: RedisModule_CloseKey unsafe extern "C" fn(RawKey),
        key_type: RedisModule_KeyType unsafe extern "C" fn(RawKey) -> c_int,
        value_length: RedisModule_ValueLength unsafe extern "C" fn(RawKey) -> usize,
        string_dma: RedisModule_StringDMA unsafe extern "C" fn(RawKey, *mut usize, c_int) -> *mut c_char,
        string_truncate: RedisModule_StringTruncate unsafe extern "C" fn(RawKey, usize) -> c_int,
        delete_key: RedisModule_DeleteKey unsafe extern "C" fn(RawKey) -> c_int,
        set_abs_expire: RedisModule_SetAbsExpire unsafe extern "C" fn(RawKey, i64) -> c_int,
        signal_modified_key: RedisModule_SignalModifiedKey unsafe extern "C" fn(Ctx, Str) -> c_int,
        notify_keyspace_event: RedisModule_NotifyKeyspaceEvent unsafe extern "C" fn(Ctx, c_int, *const c_char, Str) -> c_int,
        register_info_func: RedisModule_RegisterInfoFunc unsafe extern "C" fn(Ctx, raw::RedisModuleInfoFunc) -> c_int,
        info_add_section: RedisModule_InfoAddSection unsafe extern "C" fn(InfoCtx, *const c_char) -> c_int,
        info_add_field_c_string: RedisModule_InfoAddFieldCString unsafe extern "C" fn(InfoCtx, *const c_char, *const c_char) -> c_int,
        info_add_field_u64: RedisModule_InfoAddFieldULongLong unsafe extern "C" fn(InfoCtx, *const c_char, u64) -> c_int,
        replicate: RedisModule_Replicate unsafe extern "C" fn(Ctx, *const c_char, *const c_char, ...) -> c_int,
        get_detached_context: RedisModule_GetDetachedThreadSafeContext unsafe extern "C" fn(Ctx) -> Ctx,
        free_detached_context: RedisModule_FreeThreadSafeContext unsafe extern "C" fn(Ctx),
        get_client_id: RedisModule_GetClientId unsafe extern "C" fn(Ctx) -> u64,
        get_client_info_by_id: RedisModule_GetClientInfoById unsafe extern "C" fn(*mut c_void, u64) -> c_int,
    }
    optional {
        // From Redis 7.0 on.
        get_command: RedisModule_GetCommand unsafe extern "C" fn(Ctx, *const c_char) -> *mut raw::RedisModuleCommand,
        set_command_info: RedisModule_SetCommandInfo
            unsafe extern "C" fn(*mut raw::RedisModuleCommand, *const raw::RedisModuleCommandInfo) -> c_int,
        // From Redis 7.2 on.
        cached_microseconds: RedisModule_CachedMicroseconds unsafe extern "C" fn() -> i64,
        set_command_acl_categories: RedisModule_SetCommandACLCategories
            unsafe extern "C" fn(*mut raw::RedisModuleCommand, *const c_char) -> c_int,
        // From Redis 7.4 and Valkey 8.0 on.
        add_acl_category: RedisModule_AddACLCategory unsafe extern "C" fn(Ctx, *const c_char) -> c_int,
    }
}

/// One call of a command: its arguments, and what it may do.
pub struct Call<'call> {
    api: &'static Api,
    ctx: Ctx,
    arguments: &'call [Str],
}

impl Call<'_> {
    /// Checks the number of arguments, the command's name included.
    pub fn check_arity(&self, least: usize, most: usize) -> Result<(), Error> {
        if (least..=most).contains(&self.arguments.len()) {
            Ok(())
        } else {
            Err(Error::WrongArity)
        }
    }

    /// How many groups of `size` arguments follow the command's name: one or
    /// more, and nothing left over.
    pub fn groups_of(&self, size: usize) -> Result<usize, Error> {
        let count = self.arguments.len().saturating_sub(1);
        match (count.checked_div(size), count.checked_rem(size)) {
            (Some(groups), Some(0)) if groups > 0 => Ok(groups),
            _ => Err(Error::WrongArity),
        }
    }

    /// Whether there is an argument at `position`, the command's name being 0.
    pub fn has_argument(&self, position: usize) -> bool {
        position < self.arguments.len()
    }

    /// The bytes of the argument at `position`, the command's name being 0.
    pub fn argument(&self, position: usize) -> Result<&[u8], Error> {
        let string = self.string(position)?;
        let mut len = 0;
        // SAFETY: the server keeps the string alive and unchanged for as long as
        // the call lasts, which is what `self` borrows.
        let start = unsafe { (self.api.string_ptr_len)(string, &mut len) };
        if start.is_null() {
            return Err(Error::Internal);
        }
        // SAFETY: the function gave the address and the length of that string.
        Ok(unsafe { std::slice::from_raw_parts(start.cast(), len) })
    }

    /// Microseconds since the Unix epoch by the server's wall clock. Where the
    /// server has a cached time of the command it is that one, so that all calls
    /// of a transaction or a script see one instant.
    pub fn now(&self) -> u64 {
        match self.api.cached_microseconds {
            // SAFETY: takes nothing, and reads a variable of the server.
            Some(cached) => u64::try_from(unsafe { cached() }).unwrap_or(0),
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .ok()
                .and_then(|time| u64::try_from(time.as_micros()).ok())
                .unwrap_or(0),
        }
    }

    /// Opens the key at `position` for reading only.
    pub fn open_for_reading(&self, position: usize) -> Result<Key<'_>, Error> {
        self.open(position, READ)
    }

    /// Opens the key at `position` for reading and writing. Nothing is signalled
    /// as changed unless it is written.
    pub fn open_for_update(&self, position: usize) -> Result<Key<'_>, Error> {
        self.open(position, READ | WRITE)
    }

    fn open(&self, position: usize, mode: c_int) -> Result<Key<'_>, Error> {
        let name = self.string(position)?;
        // SAFETY: context and name are the server's own, of this very call. A key
        // that is not there gives null, which all that is done below allows.
        let handle = unsafe { (self.api.open_key)(self.ctx, name, mode) };
        Ok(Key {
            call: self,
            name,
            handle,
        })
    }

    fn string(&self, position: usize) -> Result<Str, Error> {
        self.arguments
            .get(position)
            .copied()
            .ok_or(Error::WrongArity)
    }
}

/// What is stored at a key.
pub enum Value {
    /// Nothing.
    Missing,
    /// A string of the length of a bucket.
    Bytes([u8; STORED_LEN]),
    /// Anything else. It was not touched.
    Other,
}

/// An open key, closed when dropped, by a panic too.
pub struct Key<'call> {
    call: &'call Call<'call>,
    name: Str,
    handle: RawKey,
}

impl Key<'_> {
    /// What is stored.
    pub fn value(&self) -> Value {
        let api = self.call.api;
        // SAFETY: the handle is open, or null, which is an empty key.
        let kind = unsafe { (api.key_type)(self.handle) };
        if kind == EMPTY {
            return Value::Missing;
        }
        // Length before access: direct access turns short strings and integers
        // into plain ones, in memory only. So no foreign value is looked into,
        // but one of twenty bytes; the server offers no other way to tell it.
        // SAFETY: as above.
        if kind != STRING || unsafe { (api.value_length)(self.handle) } != STORED_LEN {
            return Value::Other;
        }
        match self.direct(READ) {
            // SAFETY: `direct` gives the address of exactly `STORED_LEN` bytes,
            // and nothing writes them meanwhile: the server runs one command at
            // a time. Bytes have no alignment.
            Some(start) => Value::Bytes(unsafe { start.cast::<[u8; STORED_LEN]>().read() }),
            None => Value::Other,
        }
    }

    /// Stores `bytes` with an expiry in milliseconds since the Unix epoch, tells
    /// replicas, the AOF, and whoever watches the key.
    pub fn set(&self, bytes: &[u8; STORED_LEN], expires_at_ms: u64) -> Result<(), Error> {
        let api = self.call.api;
        let expires_at_ms = i64::try_from(expires_at_ms).map_err(|_| Error::Internal)?;
        // SAFETY: the handle is open for writing.
        if unsafe { (api.key_type)(self.handle) } == EMPTY {
            // SAFETY: as above. Creates the string, in the encoding that is then
            // changed in place.
            check(unsafe { (api.string_truncate)(self.handle, STORED_LEN) })?;
        }
        let start = self.direct(WRITE).ok_or(Error::Internal)?;
        // SAFETY: `direct` gives the address of exactly `STORED_LEN` bytes that
        // are the value's own, and `bytes` is ours.
        unsafe { start.cast::<[u8; STORED_LEN]>().write(*bytes) };
        // SAFETY: the handle is open for writing and holds a value.
        check(unsafe { (api.set_abs_expire)(self.handle, expires_at_ms) })?;
        // SAFETY: the format tells what follows: a string of the server, bytes
        // and their length, a C string, and a signed 64-bit integer.
        check(unsafe {
            (api.replicate)(
                self.call.ctx,
                c"SET".as_ptr(),
                c"sbcl".as_ptr(),
                self.name,
                bytes.as_ptr().cast::<c_char>(),
                STORED_LEN,
                c"PXAT".as_ptr(),
                expires_at_ms,
            )
        })?;
        self.signal_modified()
    }

    /// Removes the key, and tells replicas, the AOF, and whoever watches it.
    pub fn delete(&self) -> Result<(), Error> {
        let api = self.call.api;
        // SAFETY: the handle is open for writing.
        if unsafe { (api.key_type)(self.handle) } == EMPTY {
            return Ok(());
        }
        // SAFETY: as above.
        check(unsafe { (api.delete_key)(self.handle) })?;
        // SAFETY: the format tells what follows: a string of the server.
        check(unsafe {
            (api.replicate)(self.call.ctx, c"DEL".as_ptr(), c"s".as_ptr(), self.name)
        })?;
        self.signal_modified()
    }

    /// Closes the key, and tells those who subscribed to the events of modules
    /// that a call on it was denied. Costs next to nothing when nobody did.
    pub fn notify_denied(self) {
        let (call, name) = (self.call, self.name);
        // Whoever listens may use the key.
        drop(self);
        // SAFETY: context and name are the server's own, of this very call. The
        // answer says whether the key's name could be read, which it could.
        unsafe {
            (call.api.notify_keyspace_event)(call.ctx, NOTIFY_MODULE, c"tb.denied".as_ptr(), name)
        };
    }

    fn signal_modified(&self) -> Result<(), Error> {
        // SAFETY: context and name are the server's own, of this very call.
        check(unsafe { (self.call.api.signal_modified_key)(self.call.ctx, self.name) })
    }

    /// The address of the value's `STORED_LEN` bytes; `None` for another length.
    fn direct(&self, mode: c_int) -> Option<*mut c_char> {
        let mut len = 0;
        // SAFETY: the handle is open in this mode and holds a string.
        let start = unsafe { (self.call.api.string_dma)(self.handle, &mut len, mode) };
        (!start.is_null() && len == STORED_LEN).then_some(start)
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: opened by us and closed once; null is allowed.
        unsafe { (self.call.api.close_key)(self.handle) };
    }
}

fn check(status: c_int) -> Result<(), Error> {
    if status == OK {
        Ok(())
    } else {
        Err(Error::Internal)
    }
}

/// The module while it is being loaded.
pub struct Loader<'load> {
    api: &'static Api,
    ctx: Ctx,
    arguments: &'load [Str],
    has_acl_category: bool,
}

impl Loader<'_> {
    /// Number of arguments given to the module.
    pub fn argument_count(&self) -> usize {
        self.arguments.len()
    }

    /// Registers a command.
    ///
    /// # Errors
    ///
    /// Says what the server refused.
    pub fn register<C: Command>(&self) -> Result<(), &'static CStr> {
        let spec = const { &C::SPEC };
        let (last, step) = match spec.keys {
            Keys::First => (1, 1),
            Keys::Every(step) => (-1, step),
        };
        // SAFETY: the strings are C strings that live for ever, and the shim has
        // the signature of a handler. The server copies what it keeps.
        check(unsafe {
            (self.api.create_command)(
                self.ctx,
                spec.name.as_ptr(),
                Some(on_command::<C>),
                spec.flags.as_ptr(),
                1,
                last,
                step,
            )
        })
        .map_err(|_| c"the server refused a command: another module may have its name")?;
        let Some(get_command) = self.api.get_command else {
            return Ok(());
        };
        // SAFETY: as above. The command was just created.
        let command = unsafe { get_command(self.ctx, spec.name.as_ptr()) };
        if command.is_null() {
            return Err(c"the server does not know a command that it just took");
        }
        self.describe(command, spec)
            .map_err(|_| c"the server refused the description of a command")?;
        self.categorize(command, spec)
            .map_err(|_| c"the server refused the ACL categories of a command")
    }

    /// Gives the server a command's arity, key specification and documentation,
    /// where it takes them.
    fn describe(&self, command: *mut raw::RedisModuleCommand, spec: &Spec) -> Result<(), Error> {
        let Some(set_command_info) = self.api.set_command_info else {
            return Ok(());
        };
        // An empty entry ends each list.
        let mut key_specs = [key_spec(spec), NO_KEY_SPEC];
        let mut groups: Vec<Vec<raw::RedisModuleCommandArg>> = spec
            .args
            .iter()
            .map(|arg| match arg.kind {
                ArgKind::Groups(args) => args.iter().map(command_arg).chain([NO_ARG]).collect(),
                _ => Vec::new(),
            })
            .collect();
        let mut args: Vec<raw::RedisModuleCommandArg> =
            spec.args.iter().map(command_arg).chain([NO_ARG]).collect();
        for (arg, group) in args.iter_mut().zip(&mut groups) {
            if !group.is_empty() {
                arg.subargs = group.as_mut_ptr();
            }
        }
        let info = raw::RedisModuleCommandInfo {
            version: addr_of!(INFO_VERSION),
            summary: spec.summary.as_ptr(),
            complexity: spec.complexity.as_ptr(),
            since: spec.since.as_ptr(),
            history: null_mut(),
            tips: null(),
            arity: spec.arity,
            key_specs: key_specs.as_mut_ptr(),
            args: args.as_mut_ptr(),
        };
        // SAFETY: the command is the server's own; all that `info` points to
        // outlives the call, and the server copies what it keeps.
        check(unsafe { set_command_info(command, &info) })
    }

    /// Puts a command into the ACL categories that follow from its flags, which
    /// the server does not do for modules by itself, and into the module's own
    /// where there is one.
    fn categorize(&self, command: *mut raw::RedisModuleCommand, spec: &Spec) -> Result<(), Error> {
        let Some(set_categories) = self.api.set_command_acl_categories else {
            return Ok(());
        };
        let categories = match (spec.key_access, self.has_acl_category) {
            (KeyAccess::Read, true) => c"read fast tokenbucket",
            (KeyAccess::Read, false) => c"read fast",
            (KeyAccess::Update, true) => c"write fast tokenbucket",
            (KeyAccess::Update, false) => c"write fast",
        };
        // SAFETY: the command is the server's own, the names are a C string.
        check(unsafe { set_categories(command, categories.as_ptr()) })
    }

    /// Registers the module's section of `INFO`.
    ///
    /// # Errors
    ///
    /// Says what the server refused.
    pub fn register_info(&self) -> Result<(), &'static CStr> {
        // SAFETY: the function has the signature that the server calls.
        check(unsafe { (self.api.register_info_func)(self.ctx, Some(on_info)) })
            .map_err(|_| c"the server refused the section of INFO")
    }
}

/// The module's section of `INFO`, while it is being written.
pub struct InfoSection {
    api: &'static Api,
    ctx: InfoCtx,
}

impl InfoSection {
    /// A line with a number.
    pub fn number(&self, name: &CStr, value: u64) {
        // SAFETY: the context is that of this section, the name a C string.
        unsafe { (self.api.info_add_field_u64)(self.ctx, name.as_ptr(), value) };
    }

    /// A line with a text.
    pub fn text(&self, name: &CStr, value: &CStr) {
        // SAFETY: as above, and so is the value.
        unsafe { (self.api.info_add_field_c_string)(self.ctx, name.as_ptr(), value.as_ptr()) };
    }
}

/// The caller of a command, to be answered.
pub struct Replier {
    api: &'static Api,
    ctx: Ctx,
}

impl Replier {
    /// Announces an array of so many elements, which are to follow.
    pub fn array(&self, len: usize) {
        // SAFETY: the context is that of this call.
        unsafe { (self.api.reply_with_array)(self.ctx, len as c_long) };
    }

    /// An integer.
    pub fn integer(&self, integer: i64) {
        // SAFETY: as above.
        unsafe { (self.api.reply_with_long_long)(self.ctx, integer) };
    }

    fn error(&self, error: Error) {
        match error.text() {
            // SAFETY: as above; the text is a C string that lives for ever.
            Some(text) => unsafe { (self.api.reply_with_error)(self.ctx, text.as_ptr()) },
            // SAFETY: as above.
            None => unsafe { (self.api.wrong_arity)(self.ctx) },
        };
    }
}

static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// The entry that ends a list of key specifications.
const NO_KEY_SPEC: raw::RedisModuleCommandKeySpec = raw::RedisModuleCommandKeySpec {
    notes: null(),
    flags: 0,
    begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID,
    bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
        index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 0 },
    },
    find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_OMITTED,
    fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
        range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
            lastkey: 0,
            keystep: 1,
            limit: 0,
        },
    },
};

/// The entry that ends a list of arguments.
const NO_ARG: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    name: null(),
    type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
    key_spec_index: -1,
    token: null(),
    summary: null(),
    since: null(),
    flags: 0,
    deprecated_since: null(),
    subargs: null_mut(),
    display_text: null(),
};

/// Where the keys are, and what is done to them.
fn key_spec(spec: &Spec) -> raw::RedisModuleCommandKeySpec {
    // The last key counts from the first one found.
    let (lastkey, keystep) = match spec.keys {
        Keys::First => (0, 1),
        Keys::Every(step) => (-1, step),
    };
    let flags = match spec.key_access {
        KeyAccess::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyAccess::Update => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
    };
    raw::RedisModuleCommandKeySpec {
        flags: flags.into(),
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
        },
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey,
                keystep,
                limit: 0,
            },
        },
        ..NO_KEY_SPEC
    }
}

fn command_arg(arg: &Arg) -> raw::RedisModuleCommandArg {
    let (type_, key_spec_index) = match arg.kind {
        ArgKind::Key => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, 0),
        ArgKind::Amount => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE,
            -1,
        ),
        // A rate may have a period, as in 100/m.
        ArgKind::Rate => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            -1,
        ),
        ArgKind::Milliseconds => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            -1,
        ),
        ArgKind::Groups(_) => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
            -1,
        ),
    };
    let optional = if arg.optional {
        raw::REDISMODULE_CMD_ARG_OPTIONAL
    } else {
        0
    };
    let multiple = match arg.kind {
        ArgKind::Groups(_) => raw::REDISMODULE_CMD_ARG_MULTIPLE,
        _ => 0,
    };
    raw::RedisModuleCommandArg {
        name: arg.name.as_ptr(),
        type_,
        key_spec_index,
        flags: (optional | multiple) as c_int,
        ..NO_ARG
    }
}

/// Runs `body`, and gives `None` where it panicked. The hook has logged why.
fn guarded<T>(body: impl FnOnce() -> T) -> Option<T> {
    // What a panic may leave half done is the state of the call alone, and that
    // is dropped: nothing of ours outlives it.
    let outcome = catch_unwind(AssertUnwindSafe(body));
    if outcome.is_err() {
        stats::PANICS.count();
    }
    outcome.ok()
}

/// Carries out one call of the command `C`, and answers it.
fn run<C: Command>(ctx: Ctx, argv: *mut Str, argc: c_int) -> c_int {
    let Some(api) = API.get() else { return ERR };
    let call = Call {
        api,
        ctx,
        // SAFETY: the server passes the arguments of this call and their number.
        arguments: unsafe { arguments(argv, argc) },
    };
    let replier = Replier { api, ctx };
    match guarded(|| C::run(&call)).unwrap_or(Err(Error::Internal)) {
        Ok(reply) => {
            C::TALLY.count(reply.verdict());
            reply.send(&replier);
        }
        Err(error) => {
            stats::count_error(error);
            replier.error(error);
        }
    }
    OK
}

/// The arguments as a slice.
///
/// # Safety
///
/// `argv` points to `argc` arguments that outlive the slice.
unsafe fn arguments<'call>(argv: *mut Str, argc: c_int) -> &'call [Str] {
    match usize::try_from(argc) {
        // SAFETY: the caller's promise.
        Ok(len) if !argv.is_null() => unsafe { std::slice::from_raw_parts(argv, len) },
        _ => &[],
    }
}

/// Writes one line into the server's log.
fn log(ctx: Ctx, level: &CStr, line: &CStr) {
    // SAFETY: written once by the server in `RedisModule_Init`.
    let Some(log) = (unsafe { raw::RedisModule_Log }) else {
        return;
    };
    // SAFETY: the format takes one C string. A null context is allowed.
    unsafe { log(ctx, level.as_ptr(), c"%s".as_ptr(), line.as_ptr()) };
}

/// A line of the log that is put together without the allocator. What does not
/// fit is cut. A NUL would end the line, so it becomes a space.
struct Line {
    bytes: [u8; LOG_LINE],
    len: usize,
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes().map(|byte| if byte == 0 { b' ' } else { byte }) {
            // The last byte stays the NUL that ends the line.
            if let Some(place) = self
                .bytes
                .get_mut(self.len)
                .filter(|_| self.len < LOG_LINE - 1)
            {
                *place = byte;
                self.len = self.len.saturating_add(1);
            }
        }
        Ok(())
    }
}

/// Writes a line that is put together into the server's log.
fn log_line(ctx: Ctx, text: std::fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; LOG_LINE],
        len: 0,
    };
    // Writing to a `Line` does not fail.
    _ = line.write_fmt(text);
    if let Ok(line) = CStr::from_bytes_until_nul(&line.bytes) {
        log(ctx, c"warning", line);
    }
}

/// Logs a panic: in our own words instead of to the standard error of a server
/// that may have none.
fn log_panic(info: &PanicHookInfo<'_>) {
    log_line(
        null_mut(),
        format_args!("tokenbucket: internal error, the call was refused: {info}"),
    );
}

/// Takes over the server's functions and registers the module.
fn load(ctx: Ctx, arguments: &[Str]) -> Result<(), &'static CStr> {
    let api = match API.get() {
        Some(api) => api,
        None => {
            let api = Api::resolve()?;
            API.get_or_init(|| api)
        }
    };
    std::panic::set_hook(Box::new(log_panic));
    // A denial opens the key for writing and leaves it alone: we say ourselves
    // what was modified. Nothing of ours depends on a data set being loaded.
    let options = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    // SAFETY: the context is that of the module being loaded.
    unsafe { (api.set_module_options)(ctx, options as c_int) };
    let has_acl_category = api.add_acl_category.is_some_and(|add| {
        // SAFETY: as above; the name is a C string.
        check(unsafe { add(ctx, ACL_CATEGORY.as_ptr()) }).is_ok()
    });
    crate::on_load(&Loader {
        api,
        ctx,
        arguments,
        has_acl_category,
    })
}

/// The id of a client that has begun a transaction. What is queued in one is kept by the
/// server with a pointer to the command, which is freed when the module is
/// unloaded: `EXEC` would then stop the server.
///
/// The clients are found by their ids, which count up. `CLIENT LIST` would do too,
/// but it looks at the last command of each client, which may be one that was freed
/// by an earlier `MODULE UNLOAD`.
fn client_in_transaction(api: &Api, ctx: Ctx) -> Option<u64> {
    // SAFETY: the context is that of the module. A detached one comes with a client
    // of its own, whose id is the newest.
    let detached = unsafe { (api.get_detached_context)(ctx) };
    // SAFETY: the context was just made.
    let newest = unsafe { (api.get_client_id)(detached) };
    // SAFETY: as above, and it is not used again.
    unsafe { (api.free_detached_context)(detached) };

    (newest.saturating_sub(NEWEST_CLIENTS)..newest).find(|id| {
        let mut info = raw::RedisModuleClientInfo {
            version: raw::REDISMODULE_CLIENTINFO_VERSION.into(),
            flags: 0,
            id: 0,
            addr: [0; 46],
            port: 0,
            db: 0,
        };
        // SAFETY: the structure says which version of it this is, and the server
        // fills that one. For an id that nobody has it says so.
        let found = unsafe { (api.get_client_info_by_id)((&raw mut info).cast(), *id) };
        let multi = u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_MULTI);
        check(found).is_ok() && info.flags & multi != 0
    })
}

unsafe extern "C" fn on_command<C: Command>(ctx: Ctx, argv: *mut Str, argc: c_int) -> c_int {
    run::<C>(ctx, argv, argc)
}

unsafe extern "C" fn on_info(ctx: InfoCtx, _for_crash_report: c_int) {
    let Some(api) = API.get() else { return };
    guarded(|| {
        // The module's name alone, with no name of a section behind it.
        // SAFETY: the context is the server's own, of this very call. A section
        // that was not asked for is refused.
        if check(unsafe { (api.info_add_section)(ctx, c"".as_ptr()) }).is_ok() {
            stats::write(&InfoSection { api, ctx });
        }
    });
}

/// Called by the server when it loads the module.
///
/// # Safety
///
/// For the server to call, with its own context and arguments.
#[no_mangle]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: Ctx, argv: *mut Str, argc: c_int) -> c_int {
    let version = raw::REDISMODULE_APIVER_1 as c_int;
    // SAFETY: the server's own context. Nothing was allocated before this call,
    // which brings the allocator.
    if unsafe { raw::Export_RedisModule_Init(ctx, crate::NAME.as_ptr(), crate::VERSION, version) }
        != OK
    {
        log(
            ctx,
            c"warning",
            c"a module named tokenbucket is loaded already",
        );
        return ERR;
    }
    // SAFETY: the server passes the module's arguments and their number.
    let arguments = unsafe { arguments(argv, argc) };
    match guarded(|| load(ctx, arguments)).unwrap_or(Err(c"internal error")) {
        Ok(()) => OK,
        Err(reason) => {
            log(ctx, c"warning", reason);
            ERR
        }
    }
}

/// Called by the server before it unloads the module, which refuses that while a
/// transaction may hold one of its commands.
///
/// # Safety
///
/// For the server to call, with its own context.
#[no_mangle]
pub unsafe extern "C" fn RedisModule_OnUnload(ctx: Ctx) -> c_int {
    let Some(api) = API.get() else { return OK };
    if let Some(id) = guarded(|| client_in_transaction(api, ctx)).flatten() {
        log_line(
            ctx,
            format_args!(
                "not unloaded: client {id} has a transaction open (MULTI), \
                 which may hold a command of this module; try again"
            ),
        );
        return ERR;
    }
    // The hook is code of the module and goes with it.
    drop(std::panic::take_hook());
    OK
}
