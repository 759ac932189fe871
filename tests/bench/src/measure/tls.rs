//! What TLS costs: one server, by its plain port and by the other.

use distlock::{LockManager, Tls};
use distlock_tests::{Authority, RedisServer};

use super::Context;
use super::ways::{Course, Way};
use crate::report::Findings;

const HOST: &str = "127.0.0.1";
const PLAIN: &str = "plain TCP";
const TLS: &str = "TLS";

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let dir = tempfile::tempdir()?;
    let authority = Authority::new();
    let ca = dir.path().join("ca.pem");
    authority.write(&ca);
    let files = authority.sign(HOST, dir.path());
    let mut rows = Vec::new();
    for setting in &context.settings {
        let server = RedisServer::builder()
            .tls(&ca, &files.certificate, &files.key)
            .start();
        setting.place_server(&server)?;
        let ways = vec![
            Way {
                name: PLAIN,
                builder: LockManager::builder().url(server.url()),
            },
            Way {
                name: TLS,
                builder: LockManager::builder()
                    .url(format!("rediss://{HOST}:{}", server.tls_port()))
                    .tls(Tls::new().ca_file(&ca)),
            },
        ];
        let course = Course::of(ways, setting, context.scale)?;
        rows.push(course.pair(TLS, PLAIN)?);
        rows.push(course.hand_off(TLS, PLAIN)?);
    }
    Ok(rows.into())
}
