//! What a TLS connection needs beside the URL.

use std::path::{Path, PathBuf};

/// How the certificate of a `rediss://` server is checked, and what is shown to it.
///
/// Without any of this the server's certificate must be signed by one of the roots that the build
/// trusts: the system's (feature `tls-native-roots`), or else Mozilla's (feature
/// `tls-webpki-roots`). Files are PEM, and are read again whenever a connection is opened: a
/// certificate that was renewed is taken up without a restart.
///
/// ```
/// use distlock::{LockManager, Tls};
///
/// let locks = LockManager::builder()
///     .url("rediss://127.0.0.1:6380")
///     .tls(Tls::new().ca_file("/etc/redis/ca.crt"))
///     .connect_lazy()?;
/// # Ok::<(), distlock::Error>(())
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
    ///
    /// ```
    /// # use distlock::{LockManager, Tls};
    /// let builder = LockManager::builder().tls(Tls::new());
    /// assert!(builder.url("redis://127.0.0.1:6379").connect_lazy().is_err(), "it is asked for, so it must be rediss");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn new() -> Self {
        Tls::default()
    }

    /// Trusts who is signed by one of the certificates in this file, and nobody else.
    ///
    /// ```
    /// # use distlock::{LockManager, Tls};
    /// # let folder = std::path::Path::new("/etc/redis");
    /// let tls = Tls::new().ca_file(folder.join("ca.crt"));
    /// let locks = LockManager::builder().url("rediss://127.0.0.1:6380").tls(tls).connect_lazy()?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Shows the server this certificate, with its chain, and proves with the key that it is ours
    /// (Redis: `tls-auth-clients`).
    ///
    /// ```
    /// # use distlock::{LockManager, Tls};
    /// let tls = Tls::new()
    ///     .ca_file("/etc/redis/ca.crt")
    ///     .client_certificate("/etc/shop/tls.crt", "/etc/shop/tls.key");
    /// let locks = LockManager::builder().url("rediss://127.0.0.1:6380").tls(tls).connect_lazy()?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// The name, or address, that must stand in the server's certificate; without it the URL's
    /// host. For a server that is reached through a tunnel, or by another name than its own.
    ///
    /// ```
    /// # use distlock::{LockManager, Tls};
    /// // Through a tunnel, whose near end has no certificate.
    /// let tls = Tls::new().ca_file("/etc/redis/ca.crt").server_name("redis.internal");
    /// let locks = LockManager::builder().url("rediss://127.0.0.1:6380").tls(tls).connect_lazy()?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
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
