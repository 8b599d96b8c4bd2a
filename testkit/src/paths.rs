//! Where the built modules are.

use std::path::{Path, PathBuf};

/// The root folder of the workspace this crate was compiled in.
///
/// # Panics
///
/// Never in practice: this crate always lives one folder below it.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the workspace")
        .to_path_buf()
}

/// The module under test: `TOKENBUCKET_MODULE`, or else
/// `target/release/libtokenbucket.so` in the workspace.
///
/// # Panics
///
/// When that file is missing: `cargo test` does not build it.
#[track_caller]
pub fn module_path() -> PathBuf {
    built("TOKENBUCKET_MODULE", "target/release/libtokenbucket.so")
}

/// The module built with the feature `panic-command`:
/// `TOKENBUCKET_PANIC_MODULE`, or else
/// `target/panic/release/libtokenbucket.so` in the workspace.
///
/// # Panics
///
/// When that file is missing: `cargo test` does not build it.
#[track_caller]
pub fn panic_module_path() -> PathBuf {
    built(
        "TOKENBUCKET_PANIC_MODULE",
        "target/panic/release/libtokenbucket.so",
    )
}

#[track_caller]
fn built(variable: &str, default: &str) -> PathBuf {
    let path = match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => workspace().join(default),
    };
    assert!(
        path.is_file(),
        "{} is missing: run `make build` first, or name the module in {variable}",
        path.display()
    );
    path
}

/// A module with a type of its own and the command `OTHER.SET key`, which makes a key
/// of that type.
pub fn other_module_path() -> PathBuf {
    PathBuf::from(env!("TOKENBUCKET_OTHERTYPE_LIBRARY"))
}
