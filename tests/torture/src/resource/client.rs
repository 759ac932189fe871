//! The worker's side of the resource. It blocks, so a stop can hit a body between read and write.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

use super::{Answer, Request};

#[derive(Debug)]
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).context("cannot reach the resource")?;
        stream.set_nodelay(true)?;
        Ok(Client(BufReader::new(stream)))
    }

    pub(crate) fn send(&mut self, request: &Request) -> anyhow::Result<Answer> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.0.get_mut().write_all(&line)?;
        let mut answer = String::new();
        self.0.read_line(&mut answer)?;
        serde_json::from_str(&answer).context("the resource's answer")
    }
}

/// The idle connections to the resource.
#[derive(Debug)]
pub(crate) struct Pool {
    address: SocketAddr,
    idle: Mutex<Vec<Client>>,
}

impl Pool {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Pool {
            address,
            idle: Mutex::default(),
        }
    }

    /// Sends a request on an idle connection, or on a new one.
    pub(crate) fn send(&self, request: &Request) -> anyhow::Result<Answer> {
        let idle = self.idle().pop();
        let mut client = match idle {
            Some(client) => client,
            None => Client::connect(self.address)?,
        };
        let answer = client.send(request)?;
        self.idle().push(client);
        Ok(answer)
    }

    pub(crate) fn close(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
