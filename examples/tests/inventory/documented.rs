//! The commands of docs/topologies.md, run as a reader pastes them, with this build in place of `cargo run`, on ports
//! that are free.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use distlock_tests::eventually;

use crate::running::{PROGRAM, TOO_LONG, assert_nothing_was_lost};

const GUIDE: &str = include_str!("../../../docs/topologies.md");

/// Of each run in there.
const ORDERS: u64 = 200;

/// The names and the commands of the guide's blocks: ```` ```sh name ````.
fn blocks() -> BTreeMap<&'static str, &'static str> {
    let mut blocks = BTreeMap::new();
    for block in GUIDE.split("\n```sh ").skip(1) {
        let (name, rest) = block.split_once('\n').unwrap();
        let (commands, _) = rest.split_once("\n```").unwrap();
        let before = blocks.insert(name, commands);
        assert!(before.is_none(), "two blocks are called {name}");
    }
    blocks
}

/// Puts a free port for each number that begins with 70.
fn on_free_ports(commands: &str) -> String {
    let mut ports = BTreeMap::new();
    let mut replaced = String::new();
    for word in commands.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        if number.len() == 4 && number.starts_with("70") {
            let port = ports.entry(number).or_insert_with(free_port);
            replaced += &port.to_string();
            replaced += &word[number.len()..];
        } else {
            replaced += word;
        }
    }
    replaced
}

/// One whose cluster bus would be free as well, and that nobody gets who takes any.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let from = 10_000 + u16::try_from(std::process::id() % 5_000).unwrap();
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let port = from + NEXT.fetch_add(1, Ordering::Relaxed);
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

/// Runs the commands of a block, in a shell that ends at the first that fails.
#[track_caller]
fn works(name: &str) {
    let server = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let commands = on_free_ports(blocks()[name])
        .replace("cargo run --", PROGRAM)
        .replace("\"$(tests/servers/fetch.sh valkey-9.1)\"", &server)
        .replace(
            "\"$(tests/servers/fetch.sh envoy-1.40)\"",
            &envoy().unwrap_or_default(),
        )
        .replace("redis-server ", &format!("{server} "));
    let dir = tempfile::tempdir().unwrap();
    let said = |name: &str| dir.path().join(name);
    let [table, errors] = ["stdout", "stderr"].map(said);
    let mut shell = Command::new("bash");
    shell
        .args(["-euxo", "pipefail", "-c", &commands])
        .current_dir(dir.path())
        .env("TMPDIR", dir.path())
        .env("PATH", format!("/usr/sbin:{}", env::var("PATH").unwrap()))
        .stdin(Stdio::null())
        .stdout(File::create(&table).unwrap())
        .stderr(File::create(&errors).unwrap())
        .process_group(0);
    let mut shell = Group(shell.spawn().unwrap());
    let mut ended = None;
    eventually(TOO_LONG, || {
        ended = shell.0.try_wait().unwrap();
        ended.is_some()
    });
    drop(shell);
    let [table, errors] = [table, errors].map(|path| fs::read_to_string(path).unwrap());
    println!("{table}{errors}");
    assert!(ended.unwrap().success(), "{name}: {ended:?}");
    assert_nothing_was_lost(&table, ORDERS);
}

/// What is still there of a block that failed ends with the test.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let mut kill = Command::new("kill");
        // Nothing is left of one that worked.
        let _ = kill
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.0.wait();
    }
}

/// The binary of Envoy, if it is to be tried in place of twemproxy.
fn envoy() -> Option<String> {
    env::var("DISTLOCK_ENVOY").ok()
}

/// Makes a test of each block, and knows their names.
macro_rules! documented {
    ($($name:ident)+) => {
        const TRIED: &[&str] = &[$(stringify!($name)),+];

        $(mod $name {
            #[test]
            fn works_as_documented() {
                super::works(stringify!($name));
            }
        })+
    };
}

documented! { plain another tls sentinel cluster replicas quorum }

mod proxies {
    #[test]
    fn work_as_documented() {
        let is_envoy = super::envoy().is_some();
        super::works(if is_envoy { "envoy" } else { "twemproxy" });
    }
}

#[test]
fn every_block_is_tried() {
    let tried = TRIED.iter().chain(&["twemproxy", "envoy"]).copied();
    assert!(blocks().into_keys().eq(tried.collect::<BTreeSet<_>>()));
}
