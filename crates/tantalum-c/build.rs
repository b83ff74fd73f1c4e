//! The shared library's name for the dynamic linker: programs that are linked to it look for this one.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtantalum.so.0");
}
