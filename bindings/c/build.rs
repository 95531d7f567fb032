//! Gives the shared library its SONAME: the part of the version within which programs need not be
//! linked again (VERSIONING.md).

fn main() {
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    let minor = env!("CARGO_PKG_VERSION_MINOR");
    let abi = if major == "0" { format!("0.{minor}") } else { major.to_owned() };
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libesker_c.so.{abi}");
}
