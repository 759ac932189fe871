//! The store, as the command line names it.

use std::env;

use clap::Args;
use distlock::{Credentials, LockManager, LockManagerBuilder, Quorum};

use crate::service::LEASE;

/// The first part of all keys that the example writes; it keeps them away from real ones.
pub(crate) const NAMESPACE: &str = "inventory-demo";

/// Where the locks and the stock are.
#[derive(Clone, PartialEq, Eq, Args)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct StoreOptions {
    /// Where the locks and the stock are: `memory:<name>` for instances in this process, or for processes
    /// `redis://[user:password@]host[:port][/db]`, `redis+sentinel://host,host/service`,
    /// `redis+cluster://host,host`, `redis+quorum://host,host,host`, `redis+unix:///path`.
    #[arg(
        long = "store",
        value_name = "URL",
        env = "DISTLOCK_URL",
        hide_env_values = true,
        default_value = "memory:inventory"
    )]
    pub(crate) url: String,

    /// How many replicas have to acknowledge a lock before it counts.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) min_replicas: u32,
}

impl StoreOptions {
    /// A lock manager for it.
    pub(crate) fn locks(&self) -> LockManagerBuilder {
        let mut builder = LockManager::builder()
            .url(&self.url)
            .namespace(NAMESPACE)
            .min_replicas(self.min_replicas);
        if self.url.contains("+quorum://") {
            // New servers do not vote for as long as the longest lease, and there is none longer here.
            builder = builder.quorum(Quorum::default().max_lease(LEASE));
        }
        match SentinelUser::from_env() {
            None => builder,
            Some(SentinelUser { name, password }) => builder.sentinel_credentials(match name {
                Some(name) => Credentials::new(name, password),
                None => Credentials::password(password),
            }),
        }
    }
}

/// Who we are to the sentinels: the same variables that `LockManager::from_env` reads.
pub(crate) struct SentinelUser {
    pub(crate) name: Option<String>,
    pub(crate) password: String,
}

impl SentinelUser {
    pub(crate) fn from_env() -> Option<Self> {
        let password = env::var("DISTLOCK_SENTINEL_PASSWORD").ok()?;
        let name = env::var("DISTLOCK_SENTINEL_USERNAME").ok();
        Some(SentinelUser { name, password })
    }
}
