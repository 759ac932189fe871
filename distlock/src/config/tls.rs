//! Settings of a TLS connection besides the URL.

use std::path::{Path, PathBuf};

/// The TLS settings of a `rediss://` connection: trusted roots, client certificate and server name.
///
/// By default, the server's certificate must be signed by a root that the build trusts: the
/// system's (feature `tls-native-roots`), otherwise Mozilla's (feature `tls-webpki-roots`). Files
/// are PEM and are read again for every new connection, so a renewed certificate takes effect
/// without a restart. If a file cannot be read, `connect` fails with
/// [`Error::Config`](crate::Error::Config), and a later connection with
/// [`Outage::Tls`](crate::Outage::Tls).
///
/// ```
/// use distlock::{LockManager, Tls};
///
/// let locks = LockManager::builder()
///     .tls(Tls::new().ca_file("/etc/redis/ca.crt"))
///     .connect_lazy("rediss://127.0.0.1:6380")?;
/// # Ok::<(), distlock::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it has no effect until it is passed to `LockManagerBuilder::tls`"]
pub struct Tls {
    ca_file: Option<PathBuf>,
    client_certificate: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

impl Tls {
    /// Creates the default settings: the build's roots, no client certificate, the name in the URL.
    ///
    /// ```
    /// # use distlock::{LockManager, Tls};
    /// let builder = LockManager::builder().tls(Tls::new());
    /// assert!(builder.connect_lazy("redis://127.0.0.1:6379").is_err(), "it is asked for, so it must be rediss");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn new() -> Self {
        Tls::default()
    }

    /// Sets the file of trusted certificates. Only a server certificate that is signed by one of
    /// them is accepted.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Sets the certificate, with its chain, that the client presents to the server, and its
    /// private key (Redis: `tls-auth-clients`).
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the name or address that the server's certificate must contain; default: the URL's
    /// host. Use it for a server that is reached through a tunnel, or by another name than its own.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    pub(crate) fn trusted_ca_file(&self) -> Option<&Path> {
        self.ca_file.as_deref()
    }

    pub(crate) fn presented_certificate(&self) -> Option<(&Path, &Path)> {
        let (certificate, key) = self.client_certificate.as_ref()?;
        Some((certificate, key))
    }

    pub(crate) fn expected_server_name<'a>(&'a self, host: &'a str) -> &'a str {
        self.server_name.as_deref().unwrap_or(host)
    }
}
