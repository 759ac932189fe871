//! Settings of users: options of a lock, credentials, servers, certificates.

pub(crate) mod credentials;
pub(crate) mod options;
pub(crate) mod quorum;
#[cfg_attr(not(feature = "tls"), allow(dead_code, unreachable_pub))]
// Without the feature, a URL that needs TLS is rejected.
pub(crate) mod tls;
