//! The orders and the stock as a task of a worker uses them.

use std::io;
use std::net::SocketAddr;

use distlock::FencingToken;
use tokio::net::TcpStream;

use crate::connection::{Connection, parse};
use crate::orders::Order;
use crate::service::ServiceError;

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct Client {
    connection: Connection,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, worker: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let mut connection = Connection::new(stream)?;
        let pid = std::process::id();
        connection.send(&format!("worker {worker} {pid}")).await?;
        Ok(Client { connection })
    }

    /// Waits for the next order. Returns `None` if all are done.
    pub(crate) async fn next_order(&mut self) -> io::Result<Option<Order>> {
        match &*self.receive().await? {
            "end" => Ok(None),
            id => Ok(Some(Order::with_id(parse(id)?))),
        }
    }

    /// Reads how many pieces of the order's item are left. Returns `None` if the order has already
    /// taken its pieces: if a worker is killed after its write, another worker gets its order.
    ///
    /// Reading shows the token as well. Older tokens are rejected from here on, so that no earlier
    /// holder can write between this read and the write after it.
    pub(crate) async fn read(
        &mut self,
        token: Option<FencingToken>,
    ) -> Result<Option<u32>, ServiceError> {
        match &*self.query(&format!("read {}", word(token))).await? {
            "stale" => Err(ServiceError::Stale),
            "fulfilled" => Ok(None),
            left => Ok(Some(parse(left)?)),
        }
    }

    /// Writes the remaining pieces of the item, and marks the order as fulfilled.
    pub(crate) async fn write(
        &mut self,
        left: u32,
        token: Option<FencingToken>,
    ) -> Result<(), ServiceError> {
        let request = format!("write {left} {}", word(token));
        match &*self.query(&request).await? {
            "written" => Ok(()),
            _ => Err(ServiceError::Stale),
        }
    }

    /// Reports that the call has failed and is repeated. A lost lock drops its call at an await, so
    /// replies that the call did not receive come first.
    pub(crate) async fn retry(&mut self) -> io::Result<()> {
        self.connection.send("retry").await?;
        while self.receive().await? != "retry" {}
        Ok(())
    }

    /// Confirms the order to the customer, or rejects it.
    pub(crate) async fn finish(&mut self, is_fulfilled: bool) -> io::Result<()> {
        let outcome = if is_fulfilled {
            "confirmed"
        } else {
            "rejected"
        };
        self.connection.send(outcome).await
    }

    async fn query(&mut self, request: &str) -> io::Result<String> {
        self.connection.send(request).await?;
        self.receive().await
    }

    async fn receive(&mut self) -> io::Result<String> {
        let line = self.connection.receive().await?;
        line.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Returns a token as a word of a request, or 0 without a lock.
fn word(token: Option<FencingToken>) -> u64 {
    token.map_or(0, u64::from)
}
