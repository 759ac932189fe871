//! What a hand-off in PostgreSQL cannot do without: a durable update of one row, and then a message
//! from one session to another.

use std::future::poll_fn;
use std::time::Instant;

use anyhow::Context;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::load::Locker;
use super::order::{Round, Rounds};
use super::postgres::Update;

pub(super) struct Notify {
    update: Update,
    sender: Client,
    channel: String,
    messages: UnboundedReceiver<()>,
    count: usize,
    /// Listens as long as it lives.
    _listener: Client,
}

impl Notify {
    pub(super) async fn connect(url: &str, count: usize) -> anyhow::Result<Self> {
        let (sender, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let (listener, mut connection) = tokio_postgres::connect(url, NoTls).await?;
        let (pushes, messages) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                let is_push = matches!(message, AsyncMessage::Notification(_));
                if is_push && pushes.send(()).is_err() {
                    return;
                }
            }
        });
        let channel = format!("bench_{}", std::process::id());
        listener.batch_execute(&format!("listen {channel}")).await?;
        Ok(Notify {
            update: Update::connect(url).await?,
            sender,
            channel,
            messages,
            count,
            _listener: listener,
        })
    }
}

impl Rounds for Notify {
    async fn round(&mut self) -> anyhow::Result<Round> {
        let notify = self.sender.prepare("select pg_notify($1, 'x')").await?;
        let (mut latencies, mut updates) = (Vec::new(), Vec::new());
        for _ in 0..self.count {
            let started = Instant::now();
            self.update.acquire("notify").await?;
            updates.push(started.elapsed().as_secs_f64() * 1e6);
            self.sender.execute(&notify, &[&self.channel]).await?;
            self.messages.recv().await.context("no message")?;
            latencies.push(started.elapsed().as_secs_f64() * 1e6);
        }
        let samples = [("latency", latencies), ("update", updates)];
        Ok(Round::new(self.count, samples))
    }
}
