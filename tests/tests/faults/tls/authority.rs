//! Certificates, made for one test.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};

/// Somebody who signs certificates.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Where a certificate and its key are.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = called(CertificateParams::default(), "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// Writes its own certificate.
    pub(super) fn write(&self, path: &Path) {
        std::fs::write(path, self.0.pem()).unwrap();
    }

    /// Signs a certificate for a name or an address, and writes it.
    pub(super) fn sign(&self, name: &str, dir: &Path) -> Files {
        self.sign_it(named(name), dir)
    }

    /// One whose time was over long ago.
    pub(super) fn sign_expired(&self, name: &str, dir: &Path) -> Files {
        let mut params = named(name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign_it(params, dir)
    }

    fn sign_it(&self, params: CertificateParams, dir: &Path) -> Files {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Files::write(&certificate.pem(), &key, dir)
    }
}

impl Files {
    /// A certificate that nobody signed but its owner.
    pub(super) fn self_signed(name: &str, dir: &Path) -> Files {
        let key = KeyPair::generate().unwrap();
        let params = named(name);
        Files::write(&params.self_signed(&key).unwrap().pem(), &key, dir)
    }

    fn write(certificate: &str, key: &KeyPair, dir: &Path) -> Files {
        let dir = tempfile::tempdir_in(dir).unwrap().keep();
        let files = Files {
            certificate: dir.join("certificate.pem"),
            key: dir.join("key.pem"),
        };
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }
}

/// For a name or an address.
fn named(name: &str) -> CertificateParams {
    called(CertificateParams::new([name.to_owned()]).unwrap(), name)
}

fn called(mut params: CertificateParams, name: &str) -> CertificateParams {
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
