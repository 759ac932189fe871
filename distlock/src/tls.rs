//! What a TLS connection needs beside the URL.

use std::path::{Path, PathBuf};

/// How the certificate of a `rediss://` server is checked, and what is shown to it.
///
/// Without any of this the server's certificate must be signed by one of the roots that the build trusts: the
/// system's (feature `tls-native-roots`), or else Mozilla's (feature `tls-webpki-roots`). Files are PEM, and are read
/// again whenever a connection is opened: a certificate that was renewed is taken up without a restart.
///
/// ```no_run
/// # async fn f() -> Result<(), distlock::Error> {
/// let manager = distlock::LockManager::builder()
///     .url("rediss://redis.internal:6379")
///     .tls(distlock::Tls::new().ca_file("/etc/redis/ca.crt"))
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it does nothing until it is given to `LockManagerBuilder::tls`"]
pub struct Tls {
    ca_file: Option<PathBuf>,
    client_certificate: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

impl Tls {
    /// The build's roots, no client certificate, and the name in the URL.
    pub fn new() -> Self {
        Tls::default()
    }

    /// Trusts who is signed by one of the certificates in this file, and nobody else.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Shows the server this certificate, with its chain, and proves with the key that it is ours (Redis:
    /// `tls-auth-clients`).
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// The name, or address, that must stand in the server's certificate; without it the URL's host. For a server that
    /// is reached through a tunnel, or by another name than its own.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    pub(crate) fn trusted(&self) -> Option<&Path> {
        self.ca_file.as_deref()
    }

    pub(crate) fn shown(&self) -> Option<(&Path, &Path)> {
        let (certificate, key) = self.client_certificate.as_ref()?;
        Some((certificate, key))
    }

    pub(crate) fn expected<'a>(&'a self, host: &'a str) -> &'a str {
        self.server_name.as_deref().unwrap_or(host)
    }
}
