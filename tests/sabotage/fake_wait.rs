//! Connections that fake a successful reply to WAIT.

use std::sync::Arc;

use redis::{Arg, Cmd, RedisResult, Value};

use crate::protocol::store_error::StoreError;
use crate::store::BoxFuture;
use crate::store::redis::transport::{Connection, ConnectionEventHandler, Transport};

#[derive(Debug)]
pub(super) struct FakeWaitTransport(Arc<dyn Transport>);

impl FakeWaitTransport {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        FakeWaitTransport(transport)
    }
}

impl Transport for FakeWaitTransport {
    fn open(
        &self,
        on_event: ConnectionEventHandler,
    ) -> BoxFuture<'_, Result<Arc<dyn Connection>, StoreError>> {
        Box::pin(async move {
            let connection = self.0.open(on_event).await?;
            Ok(Arc::new(FakeWaitConnection(connection)) as Arc<dyn Connection>)
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}

#[derive(Debug)]
struct FakeWaitConnection(Arc<dyn Connection>);

impl Connection for FakeWaitConnection {
    fn send(&self, command: Cmd) -> BoxFuture<'_, RedisResult<Value>> {
        self.0.send(command)
    }

    fn send_all<'a>(
        &'a self,
        commands: &'a [Cmd],
    ) -> BoxFuture<'a, RedisResult<Vec<RedisResult<Value>>>> {
        let Some((_, writes)) = commands.split_last().filter(|(last, _)| is_wait(last)) else {
            return self.0.send_all(commands);
        };
        Box::pin(async move {
            let mut replies = self.0.send_all(writes).await?;
            replies.push(Ok(Value::Int(i64::MAX)));
            Ok(replies)
        })
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> BoxFuture<'a, RedisResult<()>> {
        self.0.subscribe(channel)
    }

    fn has_pushes(&self) -> bool {
        self.0.has_pushes()
    }

    fn activity(&self) -> u64 {
        self.0.activity()
    }

    fn peer(&self) -> Option<&str> {
        self.0.peer()
    }
}

fn is_wait(command: &Cmd) -> bool {
    matches!(command.args_iter().next(), Some(Arg::Simple(b"WAIT")))
}
