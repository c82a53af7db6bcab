//! The `satcast` binary.
fn main() {}
