//! Certificates for one test.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// The paths of a certificate and its key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// In PEM.
    pub certificate: PathBuf,
    /// In PEM.
    pub key: PathBuf,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Default for Authority {
    fn default() -> Self {
        Authority::new()
    }
}

impl Authority {
    /// Creates an authority that no server and no client trusts yet.
    ///
    /// # Panics
    ///
    /// Panics if there is no randomness for a key.
    pub fn new() -> Self {
        let mut params = called(CertificateParams::default(), "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, key());
        Authority(issuer.expect("an authority may sign itself"))
    }

    /// Writes the authority's own certificate.
    ///
    /// # Panics
    ///
    /// Panics if the path cannot be written.
    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.0.pem()).expect("the path is writable");
    }

    /// Signs a certificate for a name or an address, and writes it.
    ///
    /// # Panics
    ///
    /// Panics if the directory cannot be written, or `name` is not a valid name.
    pub fn sign(&self, name: &str, dir: &Path) -> CertificateFiles {
        self.sign_it(named(name), dir)
    }

    /// Like [`sign`](Authority::sign), but the certificate expired long ago.
    ///
    /// # Panics
    ///
    /// Panics like [`Authority::sign`].
    pub fn sign_expired(&self, name: &str, dir: &Path) -> CertificateFiles {
        let mut params = named(name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign_it(params, dir)
    }

    fn sign_it(&self, params: CertificateParams, dir: &Path) -> CertificateFiles {
        let key = key();
        let signed = params.signed_by(&key, &self.0);
        let certificate = signed.expect("an authority may sign");
        CertificateFiles::write(&certificate.pem(), &key, dir)
    }
}

impl CertificateFiles {
    /// Writes a certificate that only its own key signs.
    ///
    /// # Panics
    ///
    /// Panics like [`Authority::sign`].
    pub fn self_signed(name: &str, dir: &Path) -> CertificateFiles {
        let key = key();
        let signed = named(name).self_signed(&key);
        let certificate = signed.expect("anybody may sign for himself");
        CertificateFiles::write(&certificate.pem(), &key, dir)
    }

    fn write(certificate: &str, key: &KeyPair, dir: &Path) -> CertificateFiles {
        let dir = tempfile::tempdir_in(dir).expect("the directory is writable");
        let dir = dir.keep();
        let files = CertificateFiles {
            certificate: dir.join("certificate.pem"),
            key: dir.join("key.pem"),
        };
        std::fs::write(&files.certificate, certificate).expect("the directory is writable");
        std::fs::write(&files.key, key.serialize_pem()).expect("the directory is writable");
        files
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("there is randomness")
}

fn named(name: &str) -> CertificateParams {
    let params = CertificateParams::new([name.to_owned()]);
    called(params.expect("that is a name"), name)
}

fn called(mut params: CertificateParams, name: &str) -> CertificateParams {
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
