//! Third-party proxies for Redis, which forward scripts but no pub/sub messages.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::child::Process;
use crate::client::{Reply, Resp};
use crate::ports::free_port;
use crate::server::RedisServer;

/// Upper limit of the time that a start takes on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// Number of ports that are tried if another process takes each of them first.
const PORT_ATTEMPTS: u32 = 20;

/// Environment variable with the path of the Envoy binary, which then replaces twemproxy.
const ENVOY: &str = "DISTLOCK_ENVOY";

/// A proxy in front of one server, or of several servers that share the keys.
#[derive(Debug)]
pub struct Middleman {
    port: u16,
    process: Process,
    _parent: Sender<()>,
    _dir: TempDir,
}

impl Middleman {
    /// Starts twemproxy, or Envoy if the variable `DISTLOCK_ENVOY` has the path of its binary.
    ///
    /// # Panics
    ///
    /// Panics if the proxy is not installed, or does not start.
    #[track_caller]
    pub fn before(servers: &[&RedisServer]) -> Middleman {
        for _ in 0..PORT_ATTEMPTS {
            if let Some(started) = Self::start(servers) {
                return started;
            }
        }
        panic!("no port was free for a proxy, {PORT_ATTEMPTS} times");
    }

    #[track_caller]
    fn start(servers: &[&RedisServer]) -> Option<Middleman> {
        let dir = tempfile::tempdir().expect("a directory for a proxy");
        let port = free_port();
        let mut command = match std::env::var_os(ENVOY) {
            Some(envoy) => as_envoy(envoy, dir.path(), port, servers),
            None => as_twemproxy(dir.path(), port, servers),
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let what = format!("{command:?}");
        let (process, parent) = spawn(command);
        let process = process.unwrap_or_else(|error| {
            panic!("cannot start {what}: {error}; install it (apt-get install nutcracker), or run ./test.sh")
        });
        let mut proxy = Middleman {
            port,
            process,
            _parent: parent,
            _dir: dir,
        };
        let deadline = Instant::now() + DEADLINE;
        while !proxy.answers() {
            // Another process may have taken the port.
            if proxy.process.exited().is_some() {
                return None;
            }
            assert!(Instant::now() < deadline, "the proxy does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(proxy)
    }

    /// Returns the proxy's address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns `redis://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns true if the proxy runs scripts on its server.
    fn answers(&self) -> bool {
        let reply = || Resp::connect(self.addr())?.try_cmd(&["EVAL", "return 7", "1", "{k}"]);
        matches!(reply(), Ok(Reply::Int(7)))
    }
}

/// Starts the process from a thread that lives as long as the sender. Envoy ends with the thread
/// that started it, which would otherwise be the thread of the first test.
fn spawn(mut command: Command) -> (std::io::Result<Process>, Sender<()>) {
    let (parent, is_needed) = channel();
    let (started, process) = channel();
    std::thread::spawn(move || {
        let _ = started.send(Process::spawn(&mut command));
        let _ = is_needed.recv();
    });
    (process.recv().expect("the thread sends the result"), parent)
}

fn as_twemproxy(dir: &Path, port: u16, servers: &[&RedisServer]) -> Command {
    let list: String = servers
        .iter()
        .map(|server| format!("   - {}:1\n", server.addr()))
        .collect();
    let config = format!(
        "pool:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash_tag: \"{{}}\"\n  distribution: ketama\n  \
         auto_eject_hosts: false\n  server_retry_timeout: 100\n  servers:\n{list}"
    );
    let path = dir.join("nutcracker.yml");
    fs::write(&path, config).expect("the directory is writable");
    let mut command = Command::new("nutcracker");
    command.arg("-c").arg(path).arg("-o").arg(dir.join("log"));
    command.args(["-a", "127.0.0.1", "-s", &free_port().to_string()]);
    command
}

fn as_envoy(envoy: OsString, dir: &Path, port: u16, servers: &[&RedisServer]) -> Command {
    let address = |address: SocketAddr| {
        format!(
            "{{ socket_address: {{ address: {}, port_value: {} }} }}",
            address.ip(),
            address.port()
        )
    };
    let endpoints: Vec<_> = servers
        .iter()
        .map(|server| format!("{{ endpoint: {{ address: {} }} }}", address(server.addr())))
        .collect();
    let config = format!(
        r#"static_resources:
  listeners:
  - address: {listen}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: redis
          settings: {{ op_timeout: 5s, enable_hashtagging: true }}
          prefix_routes: {{ catch_all_route: {{ cluster: servers }} }}
  clusters:
  - name: servers
    type: STATIC
    lb_policy: MAGLEV
    load_assignment:
      cluster_name: servers
      endpoints: [ {{ lb_endpoints: [ {endpoints} ] }} ]
"#,
        listen = address((Ipv4Addr::LOCALHOST, port).into()),
        endpoints = endpoints.join(", "),
    );
    let path = dir.join("envoy.yaml");
    fs::write(&path, config).expect("the directory is writable");
    let mut command = Command::new(envoy);
    command
        .arg("-c")
        .arg(path)
        .args(["--concurrency", "1", "--use-dynamic-base-id", "-l", "off"]);
    command
}
