//! The resource's process: a thread for each connection, one lock around everything.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

use super::things::Store;
use crate::history::Recorder;
use crate::sabotage;

/// Options of the resource's process.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the log goes.
    #[arg(long)]
    dir: PathBuf,
}

/// Serves until stdin closes, which the supervisor's end does too.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let log = Recorder::create(&args.dir.join("resource.jsonl"))
        .with_context(|| format!("cannot write to {}", args.dir.display()))?;
    let fence_reads = sabotage::rules().fence_reads;
    let store = Arc::new(Mutex::new(Store::new(log, fence_reads)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("listening {}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let store = store.clone();
            // An error is a worker that was killed.
            std::thread::spawn(move || serve(stream, &store));
        }
    });
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn serve(stream: TcpStream, store: &Mutex<Store>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut answers = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let request = serde_json::from_str(&line?)?;
        let answer = store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .serve(request);
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        answers.write_all(&line)?;
    }
    Ok(())
}
