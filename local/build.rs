//! A migration added to the folder must reach the binary: the embedding macro alone does not notice new files.

fn main() {
    println!("cargo::rerun-if-changed=../migrations");
}
