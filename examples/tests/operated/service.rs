//! The example as a process.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use distlock_tests::documents::typed;
use distlock_tests::{RedisServer, Worker, eventually};

/// Upper limit of every wait on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Service {
    process: Worker,
    address: SocketAddr,
}

impl Service {
    /// Starts the service, and waits until it holds the lock of the import.
    pub(crate) fn start(server: &RedisServer) -> Self {
        // If another process takes this port first, the service ends with an error.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let mut command = Command::new(env!("CARGO_BIN_EXE_operated"));
        command
            .args(typed(
                "examples/README.md",
                "cargo run -p examples --bin operated",
            ))
            .args(["--listen", &address.to_string()])
            .env("DISTLOCK_URL", server.url());
        let process = Worker::spawn(&mut command);
        process.expect_line("import begins", TIMEOUT);
        Service { process, address }
    }

    /// Waits until the exported metrics contain this metric with this label, and returns them.
    pub(crate) fn until_exported(&self, metric: &str, label: &str) -> String {
        let mut text = String::new();
        eventually(TIMEOUT, || {
            text = self.metrics();
            let mut series = text.lines().filter(|line| line.starts_with(metric));
            series.any(|line| line.contains(label))
        });
        text
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        response
    }

    pub(crate) fn terminate(mut self) {
        assert!(self.process.terminate(TIMEOUT).success());
    }
}
