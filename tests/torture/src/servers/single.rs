//! One server, in plain text or over TLS.

use std::path::{Path, PathBuf};

use distlock_tests::{Authority, Proxy, RedisServer, RedisServerBuilder};
use tempfile::TempDir;

use super::Target;
use super::server::ServerFaults;
use super::user::{PASSWORD, USER};
use crate::plan::Planned;

#[derive(Debug)]
pub(super) struct Single {
    server: RedisServer,
    certificates: Option<Certificates>,
    faults: ServerFaults,
}

#[derive(Debug)]
struct Certificates {
    authority: PathBuf,
    /// Kept because the server reads the files again when it restarts.
    _dir: TempDir,
}

impl Single {
    pub(super) fn plain(server: RedisServerBuilder, keys: u32) -> Self {
        Single {
            server: server.start(),
            certificates: None,
            faults: ServerFaults::new(keys),
        }
    }

    pub(super) fn over_tls(server: RedisServerBuilder, keys: u32) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("torture-tls-").tempdir()?;
        let authority = Authority::new();
        let path = dir.path().join("ca.pem");
        authority.write(&path);
        let files = authority.sign("127.0.0.1", dir.path());
        Ok(Single {
            server: server.tls(&path, &files.certificate, &files.key).start(),
            certificates: Some(Certificates {
                authority: path,
                _dir: dir,
            }),
            faults: ServerFaults::new(keys),
        })
    }
}

impl Target for Single {
    fn url(&self, ports: &[u16]) -> String {
        let scheme = match self.certificates {
            None => "redis",
            Some(_) => "rediss",
        };
        format!("{scheme}://{USER}:{PASSWORD}@127.0.0.1:{}", ports[0])
    }

    fn own_url(&self) -> String {
        self.server.url()
    }

    fn primaries(&self) -> Vec<&RedisServer> {
        vec![&self.server]
    }

    fn links(&self) -> Vec<Proxy> {
        vec![match self.certificates {
            None => self.server.proxy(),
            Some(_) => self.server.tls_proxy(),
        }]
    }

    fn authority(&self) -> Option<&Path> {
        let certificates = self.certificates.as_ref()?;
        Some(&certificates.authority)
    }

    fn begin(&mut self, fault: &Planned) -> anyhow::Result<()> {
        self.faults.begin(&self.server, fault)
    }

    fn end(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        self.faults.end(&self.server, fault)?;
        Ok(true)
    }
}
