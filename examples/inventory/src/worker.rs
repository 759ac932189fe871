//! A service process: orders come in as lines on stdin, events go out as lines on stdout.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::cli::WorkerOptions;
use crate::event::Event;
use crate::orders::Order;
use crate::service::Service;
use crate::stock::{RedisStock, Stock};

/// `inventory worker`, until stdin ends.
pub(crate) async fn main(options: WorkerOptions) -> Result<ExitCode> {
    let (events, said) = unbounded_channel();
    let speaker = std::thread::spawn(move || speak(said));
    let mut code = ExitCode::SUCCESS;
    if let Err(error) = serve(&options, events.clone()).await {
        let message = format!("{error:#}");
        // It ends when the parent does not read any more.
        let _ = events.send(Event::Failed { message });
        code = ExitCode::from(2);
    }
    drop(events);
    let _ = speaker.join();
    Ok(code)
}

async fn serve(options: &WorkerOptions, events: UnboundedSender<Event>) -> Result<()> {
    if options.locked {
        distlock::install(options.store.locks().connect().await?)?;
    }
    let stock = RedisStock::connect(&options.store, &options.stock).await?;
    let service = Service::new(
        Stock::Redis(stock),
        options.locked,
        options.number,
        events.clone(),
    );
    let _ = events.send(Event::Ready);

    let mut work = JoinSet::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let order: Order = line.parse().with_context(|| format!("`{line}`"))?;
        let service = service.clone();
        work.spawn(async move { service.work_off(&order).await });
    }
    work.join_all().await;
    distlock::shutdown().await;
    Ok(())
}

/// Writes whole lines: a reader that sees the end of a line has seen all of it.
fn speak(mut said: UnboundedReceiver<Event>) {
    let mut out = std::io::stdout().lock();
    while let Some(event) = said.blocking_recv() {
        let line = format!("{event}\n");
        if out
            .write_all(line.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            return;
        }
    }
}
