//! A replica of the shop, as a process.

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

pub(crate) struct Replica {
    child: Child,
    pub(crate) address: SocketAddr,
    client: Client,
}

impl Replica {
    /// Starts a replica on a free port, and waits until it listens.
    pub(crate) async fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_shop"))
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        let address = line.strip_prefix("listening on http://").expect(&line);
        Replica {
            address: address.parse().unwrap(),
            child,
            client: Client::new(),
        }
    }

    /// Sends an order, and repeats it while other orders hold the lock of its item.
    pub(crate) async fn order(&self, item: i64, id: i64, pieces: u32) -> (StatusCode, Value) {
        let url = format!("http://{}/items/{item}/orders/{id}", self.address);
        for _ in 0..60 {
            let order = self.client.put(&url).json(&json!({ "quantity": pieces }));
            let response = order.send().await.unwrap();
            if response.status() != StatusCode::LOCKED {
                return (response.status(), response.json().await.unwrap());
            }
            let seconds = response.headers()["retry-after"].to_str().unwrap();
            tokio::time::sleep(Duration::from_secs(seconds.parse().unwrap())).await;
        }
        panic!("order {id} of item {item} does not get the lock");
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.address);
        let response = self.client.get(url).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.text().await.unwrap()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = self.child.id().expect("it runs");
        kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGTERM).unwrap();
    }

    pub(crate) async fn ended(mut self) -> ExitStatus {
        self.child.wait().await.unwrap()
    }
}
