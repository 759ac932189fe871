//! The Rust code of the book: every document is compiled and run as the documentation of a module.
//!
//! The code may use the dev-dependencies of this package: `distlock` with its feature `testing`,
//! `tokio`, `metrics-exporter-prometheus`. The test `structure` checks that every document with
//! such code is listed here. README.md is the documentation of `distlock`.

/// Declares a module with a document of the book as its documentation.
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
