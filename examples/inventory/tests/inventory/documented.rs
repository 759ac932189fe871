//! The commands of README.md and of the pages on topologies, run as a reader pastes them, with this
//! build in place of `cargo run`.

use std::{env, fs};

use distlock_tests::Commands;

use crate::{PROGRAM, TIMEOUT, assert_nothing_was_lost};

const OPERATIONS: &str = "docs/operations/topologies.md";
const INTERNALS: &str = "docs/internals/topologies.md";

/// Runs the commands of a block of `page`.
#[track_caller]
fn works(page: &str, name: &str) {
    let server = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let envoy = env::var("DISTLOCK_ENVOY").unwrap_or_default();
    let output = Commands::of(page, name)
        .instead_of("cargo run --", PROGRAM)
        .instead_of_each("\"$(tests/servers/fetch.sh valkey-9.1)\"", &server)
        .instead_of_each("\"$(tests/servers/fetch.sh envoy-1.40)\"", &envoy)
        .run(TIMEOUT);
    assert_nothing_was_lost(&output.stdout, 200);
}

/// Makes a test of each block. The modules are named after what some servers do not have.
macro_rules! documented {
    ($($module:ident: $page:ident $name:literal),+) => {
        $(mod $module {
            #[test]
            fn works_as_documented() {
                super::works(super::$page, $name);
            }
        })+
    };
}

documented! {
    plain: OPERATIONS "plain",
    another: INTERNALS "another",
    sentinel: OPERATIONS "sentinel",
    cluster: OPERATIONS "cluster",
    replicas: OPERATIONS "replicas",
    quorum: OPERATIONS "quorum"
}

mod proxies {
    /// With Envoy if `DISTLOCK_ENVOY` names its binary, otherwise with twemproxy.
    #[test]
    fn work_as_documented() {
        let has_envoy = std::env::var_os("DISTLOCK_ENVOY").is_some();
        let name = if has_envoy { "envoy" } else { "twemproxy" };
        super::works(super::OPERATIONS, name);
    }
}

#[test]
fn the_first_command_of_the_readme_works() {
    let output = Commands::of("README.md", "demo")
        .instead_of("cargo run --", PROGRAM)
        .run(TIMEOUT);
    assert_nothing_was_lost(&output.stdout, 3_000);
    let chart = fs::read_to_string(output.dir().join("chart.svg")).unwrap();
    assert!(chart.starts_with("<svg"), "{chart}");
}
