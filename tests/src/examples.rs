//! The Rust code of the book: every document is compiled and run as the documentation of a module.
//!
//! The code may use the dev-dependencies of this package, such as `distlock` with its feature
//! `testing`, `tokio` and `futures`. The test `structure` checks that every document with
//! such code is listed here. README.md is the documentation of `distlock`. The example of the
//! attribute is here because `distlock-macros` cannot depend on `distlock` without building it twice.

/// Declares a module with a document of the book as its documentation.
macro_rules! document {
    ($name:ident, $path:literal) => {
        #[doc = include_str!(concat!("../../docs/", $path))]
        mod $name {}
    };
}

document!(attribute, "../distlock-macros/doc/example.md");
document!(cancellation, "guide/cancellation.md");
document!(introduction, "README.md");
document!(databases, "guide/databases.md");
document!(first_lock, "guide/first-lock.md");
document!(keys, "guide/keys.md");
document!(migration, "migration.md");
document!(migration_databases, "migration-databases.md");
document!(observing, "operations/observing.md");
document!(options, "guide/options.md");
document!(postgres, "guide/postgres.md");
document!(readers_writers, "guide/readers-writers.md");
document!(semaphores, "guide/semaphores.md");
document!(testing, "guide/testing.md");
document!(frameworks, "guide/frameworks.md");
document!(functions, "guide/functions.md");
document!(recipe_jobs, "recipes/jobs.md");
document!(recipe_leader, "recipes/leader.md");
document!(recipe_outbox, "recipes/outbox.md");
document!(recipe_payment, "recipes/payment.md");
document!(recipe_tenant, "recipes/tenant.md");
document!(recipe_transfer, "recipes/transfer.md");
