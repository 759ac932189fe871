//! Runs other locks under the loads of the bench, which starts this program and speaks to it by lines: an
//! order of a few words, an answer in JSON. An order without an answer `{"error": ...}` was carried out.
//!
//! * `open PEER PLACE CORE URL`: connects a caller; `PLACE` is the name of one with hyphens, `CORE` a number or
//!   `-` for none;
//! * `pair PEER COUNT`: its pairs of acquire and release, `{"samples_us": [...]}`;
//! * `close`: all callers go;
//! * `sparse PEER URL MS`: `{"per_second": ..., "gaps_us": [...], "waits_ms": [...]}`;
//! * `many PEER URL PID`: many tasks, `PID` being the server's: `{"per_second": [...], "client_s": ..., "server_s": ...}`.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

#[path = "../../bench/src/cores.rs"]
mod cores;
#[path = "../../bench/src/load.rs"]
mod load;
mod lockers;
#[path = "../../bench/src/place.rs"]
mod place;
mod session;
#[path = "../../bench/src/used.rs"]
mod used;

use load::{Locker, MANY, Many, Sparse, TASKS};
use lockers::{AsyncRedisLock, Connect, Rlock, Rslock};
use place::Place;
use session::Session;

const SPARSE_KEY: &str = "bench:sparse:peer";

fn main() -> anyhow::Result<()> {
    let mut sessions = HashMap::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<_> = line.split_whitespace().collect();
        let answer = obey(&words, &mut sessions)
            .unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn obey(words: &[&str], sessions: &mut HashMap<String, Session>) -> anyhow::Result<Value> {
    match *words {
        ["open", peer, place, core, url] => {
            let place = Place::ALL
                .into_iter()
                .find(|known| known.name().replace(' ', "-") == place)
                .with_context(|| format!("there is no place `{place}`"))?;
            let core = (core != "-").then(|| core.parse()).transpose()?;
            let session = match peer {
                Rslock::NAME => Session::open::<Rslock>(place, core, url)?,
                AsyncRedisLock::NAME => Session::open::<AsyncRedisLock>(place, core, url)?,
                Rlock::NAME => Session::open::<Rlock>(place, core, url)?,
                _ => bail!("there is no peer `{peer}`"),
            };
            sessions.insert(peer.to_owned(), session);
            Ok(json!({}))
        }
        ["pair", peer, count] => {
            let session = sessions.get_mut(peer).context("it is not open")?;
            let samples = session.pairs(count.parse()?)?;
            let samples = samples.iter().map(|sample| sample.as_secs_f64() * 1e6);
            Ok(json!({ "samples_us": samples.collect::<Vec<_>>() }))
        }
        ["close"] => {
            sessions.clear();
            Ok(json!({}))
        }
        ["sparse", peer, url, window] => {
            let window = Duration::from_millis(window.parse()?);
            let sparse = match peer {
                Rslock::NAME => sparse::<Rslock>(url, window)?,
                AsyncRedisLock::NAME => sparse::<AsyncRedisLock>(url, window)?,
                Rlock::NAME => sparse::<Rlock>(url, window)?,
                _ => bail!("there is no peer `{peer}`"),
            };
            Ok(json!({
                "per_second": sparse.per_second,
                "gaps_us": sparse.gaps,
                "waits_ms": sparse.waits,
            }))
        }
        ["many", peer, url, server] => {
            let server = server.parse()?;
            let many = match peer {
                Rslock::NAME => many::<Rslock>(url, server)?,
                AsyncRedisLock::NAME => many::<AsyncRedisLock>(url, server)?,
                Rlock::NAME => many::<Rlock>(url, server)?,
                _ => bail!("there is no peer `{peer}`"),
            };
            Ok(json!({
                "per_second": many.per_second,
                "client_s": many.used.client,
                "server_s": many.used.server,
            }))
        }
        _ => bail!("`{}` is no order", words.join(" ")),
    }
}

fn sparse<L: Connect + Locker>(url: &str, window: Duration) -> anyhow::Result<Sparse> {
    let url = url.to_owned();
    Place::Task.run(None, move || async move {
        let mut lockers = Vec::new();
        for _ in 0..TASKS {
            lockers.push(L::connect(&url, SPARSE_KEY).await?);
        }
        load::sparse(lockers, window).await
    })
}

fn many<L: Connect + Locker>(url: &str, server: u32) -> anyhow::Result<Many> {
    let url = url.to_owned();
    Place::Task.run(None, move || async move {
        let locker = L::connect(&url, "").await?;
        let keys = (0..MANY).map(|task| format!("bench:throughput:{}:{task}", L::NAME));
        let lockers: Vec<_> = keys.map(|key| locker.with_key(&key)).collect();
        load::many(&lockers, server).await
    })
}
