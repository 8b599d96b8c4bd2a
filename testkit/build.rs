//! Compiles `fakeclock.c` into a shared library and tells the crate where it is.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=fakeclock.c");
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?;
    let library = PathBuf::from(out).join("libtokenbucket_fakeclock.so");
    // `cc` itself only makes static archives; its compiler can make what
    // LD_PRELOAD needs.
    let status = cc::Build::new()
        .get_compiler()
        .to_command()
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o"])
        .arg(&library)
        .arg("fakeclock.c")
        .status()?;
    if !status.success() {
        return Err(format!("the C compiler could not build fakeclock.c: {status}").into());
    }
    println!(
        "cargo::rustc-env=TOKENBUCKET_FAKECLOCK_LIBRARY={}",
        library.display()
    );
    Ok(())
}
