//! Compiles the C sources into shared libraries and tells the crate where they are.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["fakeclock", "othertype"] {
        let source = format!("{name}.c");
        println!("cargo::rerun-if-changed={source}");
        let out = std::env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?;
        let library = PathBuf::from(out).join(format!("libtokenbucket_{name}.so"));
        // `cc` itself only makes static archives; its compiler can make what
        // LD_PRELOAD and a server need.
        let status = cc::Build::new()
            .get_compiler()
            .to_command()
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o"])
            .arg(&library)
            .arg(&source)
            .status()?;
        if !status.success() {
            return Err(format!("the C compiler could not build {source}: {status}").into());
        }
        println!(
            "cargo::rustc-env=TOKENBUCKET_{}_LIBRARY={}",
            name.to_uppercase(),
            library.display()
        );
    }
    Ok(())
}
