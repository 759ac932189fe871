//! A replica of the shop, as a process.

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

pub(crate) struct Replica {
    child: Child,
    address: SocketAddr,
    client: Client,
}

impl Replica {
    /// Starts it on a free port, and waits until it listens.
    pub(crate) async fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_shop"))
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = said
            .next_line()
            .await
            .unwrap()
            .expect("it says where it listens");
        let address = line.strip_prefix("listening on http://").expect(&line);
        Replica {
            address: address.parse().unwrap(),
            child,
            client: Client::new(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends an order, and again while others have its item, as often as is reasonable.
    pub(crate) async fn order(&self, item: i64, id: i64, pieces: u32) -> (StatusCode, Value) {
        for _ in 0..60 {
            let response = self.send(item, id, pieces).await;
            let Some(seconds) = response.headers().get("retry-after") else {
                return (response.status(), response.json().await.unwrap());
            };
            // Not because of Redis or the database, which are well: 503 is what they answer who write without turns.
            assert_eq!(
                response.status(),
                StatusCode::LOCKED,
                "order {id} of item {item}"
            );
            let seconds = seconds.to_str().unwrap().parse().unwrap();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        panic!("order {id} of item {item} is told to come back again and again");
    }

    async fn send(&self, item: i64, id: i64, pieces: u32) -> Response {
        let url = format!("http://{}/items/{item}/orders/{id}", self.address);
        let order = self.client.put(url).json(&json!({ "quantity": pieces }));
        order.send().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.address);
        let response = self.client.get(url).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.text().await.unwrap()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        let pid = self.child.id().expect("it runs");
        kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGTERM).unwrap();
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        self.child.wait().await.unwrap()
    }
}
