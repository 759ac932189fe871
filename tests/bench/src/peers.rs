//! Other locks in the same run: the package `tests/peers`, built and started here, spoken to by lines. What
//! it is told, and what it answers, is said in its `main.rs`.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::load::{Many, Sparse};
use crate::place::Place;
use crate::used::Used;

/// How they are called, as crates and in orders.
pub(crate) const NAMES: [&str; 3] = ["rslock", "async-redis-lock", "rlock"];

/// A process that can be told to work. It is ended when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Peers(Arc<Mutex<Process>>);

#[derive(Debug)]
struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Peers {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(build()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the peers")?;
        let answers = child.stdout.take().context("no answers")?;
        Ok(Peers(Arc::new(Mutex::new(Process {
            orders: child.stdin.take(),
            answers: BufReader::new(answers),
            child,
        }))))
    }

    /// A caller of each peer connects.
    pub(crate) async fn open(
        &self,
        place: Place,
        core: Option<usize>,
        url: &str,
    ) -> anyhow::Result<()> {
        for peer in NAMES {
            self.open_one(peer, place, core, url).await?;
        }
        Ok(())
    }

    /// A caller of one peer connects. `url` names several servers, with commas between them, for a peer that takes that.
    pub(crate) async fn open_one(
        &self,
        peer: &str,
        place: Place,
        core: Option<usize>,
        url: &str,
    ) -> anyhow::Result<()> {
        let place = place.name().replace(' ', "-");
        let core = core.map_or("-".to_owned(), |core| core.to_string());
        let order = format!("open {peer} {place} {core} {url}");
        self.order(order).await.map(drop)
    }

    /// How long each pair of one peer took.
    pub(crate) async fn pairs(&self, peer: &str, count: usize) -> anyhow::Result<Vec<Duration>> {
        let answer = self.order(format!("pair {peer} {count}")).await?;
        let samples = numbers(&answer["samples_us"])?.into_iter();
        Ok(samples
            .map(|us| Duration::from_secs_f64(us / 1e6))
            .collect())
    }

    /// The callers go.
    pub(crate) async fn close(&self) -> anyhow::Result<()> {
        self.order("close".into()).await?;
        Ok(())
    }

    pub(crate) async fn sparse(
        &self,
        peer: &str,
        url: &str,
        window: Duration,
    ) -> anyhow::Result<Sparse> {
        let order = format!("sparse {peer} {url} {}", window.as_millis());
        let answer = self.order(order).await?;
        Ok(Sparse {
            per_second: answer["per_second"].as_f64().context("not a number")?,
            gaps: numbers(&answer["gaps_us"])?,
            waits: numbers(&answer["waits_ms"])?,
        })
    }

    /// One turn of many tasks of a peer.
    pub(crate) async fn many(&self, peer: &str, url: &str, server: u32) -> anyhow::Result<Many> {
        let answer = self.order(format!("many {peer} {url} {server}")).await?;
        let seconds = |of: &str| answer[of].as_f64().context("not a number");
        Ok(Many {
            per_second: numbers(&answer["per_second"])?,
            used: Used {
                client: seconds("client_s")?,
                server: seconds("server_s")?,
            },
        })
    }

    /// The answer is waited for where it disturbs no worker.
    async fn order(&self, order: String) -> anyhow::Result<Value> {
        let process = self.0.clone();
        let asking = tokio::task::spawn_blocking(move || {
            let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
            process.order(&order).with_context(|| order)
        });
        asking.await?
    }
}

impl Process {
    fn order(&mut self, order: &str) -> anyhow::Result<Value> {
        let orders = self.orders.as_mut().context("it has ended")?;
        writeln!(orders, "{order}")?;
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "the peers are gone");
        let answer: Value = serde_json::from_str(&line)?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends when it can be told nothing any more.
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// Builds the peers beside what else is built, and says where the program is.
fn build() -> anyhow::Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| here.join("../../target"), PathBuf::from)
        .join("peers");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(here.join("../peers/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the peers cannot be built");
    Ok(target.join("release/peers"))
}

fn numbers(list: &Value) -> anyhow::Result<Vec<f64>> {
    let list = list.as_array().context("not a list")?;
    let numbers = list.iter().map(Value::as_f64);
    numbers.collect::<Option<_>>().context("not numbers")
}
