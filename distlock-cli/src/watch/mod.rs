//! `distlock watch`: shows the locks while they change.
//!
//! `model` has the results of the queries, `view` shows them on a terminal, and `plain` as lines.
//! `screen` is the terminal and its keys.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use distlock::{__doctor, Error, LockManager};
use ratatui::widgets::TableState;
use serde_json::json;

use crate::cli::{Global, Watch};
use crate::connect::builder;
use crate::exit::{CommandResult, Failure};
use crate::output;
use crate::output::table::printable;
use crate::output::time::rfc3339;
use crate::watch::model::{Change, HeldLock, Model};
use crate::watch::screen::{Key, Screen};

mod model;
mod plain;
mod screen;
mod view;

/// Minimum interval between two queries of the store.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) async fn main(global: Global, options: Watch) -> CommandResult {
    let (builder, url) = builder(&global)?;
    let title = format!("distlock, namespace {}", __doctor::namespace(&builder));
    let manager = builder.connect(&url).await?;
    let has_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let mut watching = Watching {
        manager,
        prefix: options.prefix,
        interval: options.interval.max(MIN_INTERVAL),
        model: Model::default(),
        queried_at: Instant::now(),
    };
    if options.plain || global.json || !has_terminal {
        watching.print_lines(global.json).await?;
    } else {
        let prefix = printable(&watching.prefix);
        let title = format!("{title}, keys {prefix}*");
        watching.show_on_screen(&title).await?;
    }
    watching.manager.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

struct Watching {
    manager: LockManager,
    prefix: String,
    interval: Duration,
    model: Model,
    queried_at: Instant,
}

impl Watching {
    /// Queries the store once. Returns the changes, and the error of an unavailable store if it is
    /// new. An error that does not pass by itself ends the watch.
    async fn query(&mut self) -> Result<(Vec<Change>, Option<Error>), Failure> {
        let listed = self.manager.list(&self.prefix).await;
        let after = self.queried_at.elapsed();
        self.queried_at = Instant::now();
        match listed {
            Ok(locks) => {
                let held = locks.iter().flat_map(HeldLock::of).collect();
                Ok((self.model.record(held, after), None))
            }
            Err(error) if error.is_unavailable() && error.is_retryable() => {
                let is_news = self.model.record_failure(error.to_string());
                Ok((Vec::new(), is_news.then_some(error)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a line for each change until the process ends.
    async fn print_lines(&mut self, as_json: bool) -> Result<(), Failure> {
        loop {
            let (changes, outage) = self.query().await?;
            let at = SystemTime::now();
            for change in changes {
                if as_json {
                    output::json(&plain::as_json(at, &change))?;
                } else {
                    let line = plain::line(at, &change);
                    output::write(format!("{line}\n").as_bytes())?;
                }
            }
            match outage {
                None => {}
                Some(error) if as_json => output::json(&json!({
                    "at": rfc3339(at),
                    "change": "unavailable",
                    "message": error.to_string(),
                }))?,
                Some(error) => Failure::from(error).print(false),
            }
            tokio::time::sleep(self.interval).await;
        }
    }

    /// Shows the locks on the terminal until the user quits.
    async fn show_on_screen(&mut self, title: &str) -> Result<(), Failure> {
        let mut screen = Screen::open()?;
        let mut table = TableState::default();
        loop {
            self.query().await?;
            let next = tokio::time::Instant::now() + self.interval;
            loop {
                screen.draw(|frame| view::draw(frame, &self.model, title, &mut table))?;
                let key = tokio::select! {
                    key = screen.key() => key,
                    () = tokio::time::sleep_until(next) => break,
                };
                match key {
                    Key::Quit => return Ok(()),
                    Key::Up => table.select_previous(),
                    Key::Down => table.select_next(),
                    Key::Resized => {}
                }
            }
        }
    }
}
