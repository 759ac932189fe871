//! The commands of README.md and docs/topologies.md, run as a reader pastes them, with this build in place of `cargo run`.

use std::{env, fs};

use distlock_tests::Commands;

use crate::running::{PROGRAM, TOO_LONG, assert_nothing_was_lost, output};

/// Of each run in the guide.
const ORDERS: u64 = 200;

/// The binary of Envoy, if it is to be tried in place of twemproxy.
fn envoy() -> Option<String> {
    env::var("DISTLOCK_ENVOY").ok()
}

/// Runs the commands of a block of the guide.
#[track_caller]
fn works(name: &str) {
    let server = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let said = Commands::of("docs/topologies.md", name)
        .instead_of("cargo run --", PROGRAM)
        .instead_of_each("\"$(tests/servers/fetch.sh valkey-9.1)\"", &server)
        .instead_of_each(
            "\"$(tests/servers/fetch.sh envoy-1.40)\"",
            &envoy().unwrap_or_default(),
        )
        .run(TOO_LONG);
    assert_nothing_was_lost(&said.stdout, ORDERS);
}

/// Makes a test of each block. Their names are those of what they need, which other servers may not have.
macro_rules! documented {
    ($($module:ident: $name:literal),+) => {
        $(mod $module {
            #[test]
            fn works_as_documented() {
                super::works($name);
            }
        })+
    };
}

documented! {
    plain: "plain",
    another: "another",
    sentinel: "sentinel",
    cluster: "cluster",
    replicas: "replicas",
    quorum: "quorum"
}

mod proxies {
    #[test]
    fn work_as_documented() {
        let is_envoy = super::envoy().is_some();
        super::works(if is_envoy { "envoy" } else { "twemproxy" });
    }
}

#[test]
fn the_first_command_of_the_readme_works() {
    let said = Commands::of("README.md", "demo")
        .instead_of("cargo run --", PROGRAM)
        .run(TOO_LONG);
    assert_nothing_was_lost(&said.stdout, 3_000);
    let chart = fs::read_to_string(said.dir().join("chart.svg")).unwrap();
    assert!(chart.starts_with("<svg"), "{chart}");
}

#[test]
fn the_help_explains_the_options() {
    let (code, help, _) = output("memory:", "--help");
    assert_eq!(code, Some(0));
    for option in [
        "--store",
        "--processes",
        "--orders",
        "--kill-one",
        "--chart",
    ] {
        assert!(help.contains(option), "{option} is not in {help}");
    }
}
