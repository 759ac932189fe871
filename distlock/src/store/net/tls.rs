//! TLS handshakes, and explanations of their errors.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::tls::Tls;
use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;

/// Why a connection has no TLS.
pub(crate) enum TlsFailure {
    /// The server does not speak TLS.
    PlainText,
    Io(io::Error),
    /// The detail has the remedy.
    Explained(StoreError),
}

impl From<StoreError> for TlsFailure {
    fn from(error: StoreError) -> Self {
        TlsFailure::Explained(error)
    }
}

/// Performs a TLS handshake. A plain port may send nothing at all, so the caller limits the time.
pub(crate) async fn secure(
    tls: &Tls,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, TlsFailure> {
    let name = tls.expected_server_name(host);
    let server = ServerName::try_from(name.to_owned()).map_err(|_| {
        tls_error(format!(
            "`{name}` cannot be a certificate's name; set the server's name with `Tls::server_name`"
        ))
    })?;
    // This reads files, which may be on slow storage.
    let settings = tls.clone();
    let config = tokio::task::spawn_blocking(move || config(&settings)).await;
    let config = config.map_err(|error| tls_error(error.to_string()))??;
    let secured = TlsConnector::from(Arc::new(config)).connect(server, stream);
    secured.await.map_err(|error| handshake_error(error, name))
}

/// Returns the error of an established connection if TLS caused it.
pub(crate) fn read_error(error: &io::Error) -> Option<StoreError> {
    as_rustls_error(error).map(|error| tls_error(explain(error, "the URL's host")))
}

fn handshake_error(error: io::Error, name: &str) -> TlsFailure {
    match as_rustls_error(&error) {
        Some(rustls::Error::InvalidMessage(_)) => TlsFailure::PlainText,
        Some(error) => tls_error(explain(error, &format!("`{name}`"))).into(),
        None => TlsFailure::Io(error),
    }
}

fn as_rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn tls_error(detail: String) -> StoreError {
    StoreError::new(Outage::Tls, detail)
}

fn config(tls: &Tls) -> StoreResult<ClientConfig> {
    // The program's default provider, if it installed one. distlock does not install one for it.
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            tls_error(format!(
                "the crypto provider offers no TLS 1.2 or 1.3 ({error}); install another `CryptoProvider`"
            ))
        })?
        .with_root_certificates(roots(tls)?);
    let Some((certificate, key)) = tls.presented_certificate() else {
        return Ok(builder.with_no_client_auth());
    };
    let setting = "`Tls::client_certificate`";
    let chain = certificates(certificate, setting)?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, setting, error))?;
    builder
        .with_client_auth_cert(chain, private)
        .map_err(|error| {
            tls_error(format!(
                "the key in {} does not belong to the certificate in {} ({error}); fix {setting}",
                key.display(),
                certificate.display()
            ))
        })
}

fn roots(tls: &Tls) -> StoreResult<RootCertStore> {
    let Some(path) = tls.trusted_ca_file() else {
        return default_roots();
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, "`Tls::ca_file`")? {
        let added = roots.add(certificate);
        added.map_err(|error| unreadable(path, "`Tls::ca_file`", error))?;
    }
    Ok(roots)
}

#[cfg(feature = "tls-native-roots")]
fn default_roots() -> StoreResult<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
    Err(tls_error(format!(
        "this system has no trusted certificates ({}); install ca-certificates, or name a file with `Tls::ca_file`",
        errors.join("; ")
    )))
}

#[cfg(all(feature = "tls-webpki-roots", not(feature = "tls-native-roots")))]
// The other variant can fail: the system's roots may be missing.
#[allow(clippy::unnecessary_wraps)]
fn default_roots() -> StoreResult<RootCertStore> {
    Ok(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect())
}

#[cfg(not(any(feature = "tls-webpki-roots", feature = "tls-native-roots")))]
fn default_roots() -> StoreResult<RootCertStore> {
    Err(tls_error(
        "this build trusts no certificates by default; name the file of the server's CA with `Tls::ca_file`, or \
         enable the feature `tls-native-roots` or `tls-webpki-roots`"
            .into(),
    ))
}

fn certificates(path: &Path, setting: &str) -> StoreResult<Vec<CertificateDer<'static>>> {
    let found =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => {
            Err(unreadable(path, setting, "it contains no certificate"))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(unreadable(path, setting, error)),
    }
}

fn unreadable(path: &Path, setting: &str, reason: impl std::fmt::Display) -> StoreError {
    let path = path.display();
    tls_error(format!(
        "{path} cannot be used as a PEM file ({reason}); fix the file, or {setting}"
    ))
}

/// Returns what is wrong, and which setting to check.
fn explain(error: &rustls::Error, name: &str) -> String {
    use CertificateError as Bad;
    use rustls::Error;
    match error {
        Error::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => {
                format!("the server's certificate has expired ({error}); renew it on the server")
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                format!(
                    "the server's certificate is not valid yet ({error}); check this machine's clock"
                )
            }
            // A CA that was recreated has its old name and a new key.
            Bad::UnknownIssuer | Bad::BadSignature => {
                "the server's certificate is signed by a CA that is not trusted \
                here; name the file of its CA with `Tls::ca_file`"
                    .into()
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => format!(
                "the server's certificate is not for {name} ({error}); write one of its names into the URL, or set it \
                 with `Tls::server_name`"
            ),
            _ => format!(
                "the server's certificate is not accepted ({error}); replace it on the server"
            ),
        },
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::HandshakeFailure,
        ) => format!(
            "the server does not accept the client certificate, or received none ({error}); with \
             `Tls::client_certificate`, set one that is signed by a CA in the server's `tls-ca-cert-file` (Redis) or \
             `ssl_ca_file` (PostgreSQL)"
        ),
        _ => error.to_string(),
    }
}
