//! The code from which `docs/migration.md` migrates. Each file is a block of that document, word for
//! word, which the test `structure` checks. Here it compiles with the versions in `Cargo.toml`.

pub mod async_redis_lock;
pub mod both;
pub mod by_hand;
pub mod rlock;
pub mod rslock;
pub mod sqlx;
