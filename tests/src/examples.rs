//! The Rust code of the book: each of its documents is compiled and run as documentation of a module here.
//!
//! It may use what this package's tests may: `distlock` with its test kit, `tokio`, `metrics-exporter-prometheus`. The
//! test `structure` checks that each document with such code is here. README.md is the documentation of `distlock`.

/// Names a document of the book.
macro_rules! document {
    ($name:ident, $path:literal) => {
        #[doc = include_str!(concat!("../../docs/", $path))]
        mod $name {}
    };
}

document!(introduction, "README.md");
document!(first_lock, "first-lock.md");
document!(keys, "keys.md");
document!(migration, "migration.md");
document!(observing, "operations/observing.md");
document!(testing, "testing.md");
