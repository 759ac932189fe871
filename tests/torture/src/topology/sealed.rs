//! A server that is reached over TLS.

use std::path::PathBuf;

use distlock_tests::{Authority, RedisServer, RedisServerBuilder};
use tempfile::TempDir;

#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) server: RedisServer,
    /// The certificate of those who signed the server's.
    pub(super) authority: PathBuf,
    /// It reads its files again when it is started again.
    _dir: TempDir,
}

impl Sealed {
    pub(super) fn start(server: RedisServerBuilder) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("torture-tls-")
            .tempdir()
            .expect("a directory for certificates");
        let authority = Authority::new();
        let path = dir.path().join("ca.pem");
        authority.write(&path);
        let files = authority.sign("127.0.0.1", dir.path());
        let server = server.tls(&path, &files.certificate, &files.key).start();
        Sealed {
            server,
            authority: path,
            _dir: dir,
        }
    }
}
