//! What users set: options of a lock, credentials, servers, certificates.

pub(crate) mod credentials;
pub(crate) mod limits;
pub(crate) mod options;
pub(crate) mod quorum;
#[cfg_attr(not(feature = "tls"), allow(dead_code, unreachable_pub))]
// A URL that needs it is refused.
pub(crate) mod tls;
