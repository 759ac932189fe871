//! A caller that stays connected from one round of pairs to the next.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::load::{self, Locker};
use crate::lockers::Connect;
use crate::place::Place;

/// The caller is somewhere else than who orders. It goes when this is dropped.
pub(crate) struct Session {
    orders: Option<UnboundedSender<usize>>,
    answers: Receiver<Vec<Duration>>,
    caller: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Session {
    /// Connects, and answers once that is done.
    pub(crate) fn open<L: Connect + Locker>(
        place: Place,
        core: Option<usize>,
        url: &str,
    ) -> anyhow::Result<Self> {
        let (orders, ordered) = unbounded_channel();
        let (answering, answers) = channel();
        let url = url.to_owned();
        let caller = thread::spawn(move || {
            place.run(core, move || async move {
                let key = format!("bench:pair:{}", L::NAME);
                serve(L::connect(&url, &key).await?, ordered, answering).await
            })
        });
        let mut session = Session {
            orders: Some(orders),
            answers,
            caller: Some(caller),
        };
        session.pairs(0)?;
        Ok(session)
    }

    pub(crate) fn pairs(&mut self, count: usize) -> anyhow::Result<Vec<Duration>> {
        let orders = self.orders.as_ref();
        // A caller that is gone does not answer.
        let _ = orders.map(|orders| orders.send(count));
        match self.answers.recv() {
            Ok(samples) => Ok(samples),
            Err(_) => Err(self.end().err().context("the caller is gone")?),
        }
    }

    fn end(&mut self) -> anyhow::Result<()> {
        drop(self.orders.take());
        match self.caller.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            _ => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Whoever waits for an answer has seen the error.
        let _ = self.end();
    }
}

async fn serve(
    locker: impl Locker,
    mut ordered: UnboundedReceiver<usize>,
    answering: Sender<Vec<Duration>>,
) -> anyhow::Result<()> {
    while let Some(count) = ordered.recv().await {
        let samples = load::pairs(&locker, count).await?;
        if answering.send(samples).is_err() {
            break;
        }
    }
    Ok(())
}
