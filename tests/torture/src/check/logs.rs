//! What the servers executed, in the order in which they did.

use std::iter::Peekable;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::history::{self, Nanos, ServerEvent};

/// The events of all servers of a run, each with the number of its server. Those of one server stay in their order.
pub(super) fn merged(
    dir: &Path,
) -> anyhow::Result<impl Iterator<Item = anyhow::Result<(usize, ServerEvent)>>> {
    let streams = files(dir)?
        .iter()
        .map(|file| Ok(history::stream::<ServerEvent>(file)?.peekable()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(merge(streams))
}

fn merge(
    mut streams: Vec<Peekable<impl Iterator<Item = anyhow::Result<ServerEvent>>>>,
) -> impl Iterator<Item = anyhow::Result<(usize, ServerEvent)>> {
    std::iter::from_fn(move || {
        let heads = streams.iter_mut().enumerate();
        let heads = heads.filter_map(|(server, stream)| Some((at(stream.peek()?), server)));
        let (_, server) = heads.min()?;
        let event = streams[server].next()?;
        Some(event.map(|event| (server, event)))
    })
}

/// An error is passed on at once.
fn at(event: &anyhow::Result<ServerEvent>) -> Nanos {
    event.as_ref().map_or(0, ServerEvent::at)
}

/// `server.jsonl`, or `server-0.jsonl` and so on.
fn files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let single = dir.join("server.jsonl");
    if single.exists() {
        return Ok(vec![single]);
    }
    let of_shards = (0..).map(|shard| dir.join(format!("server-{shard}.jsonl")));
    let files: Vec<_> = of_shards.take_while(|file| file.exists()).collect();
    (!files.is_empty())
        .then_some(files)
        .with_context(|| format!("{} has no server's log", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Recorder;

    #[test]
    fn logs_of_several_servers_are_one() {
        let dir = tempfile::tempdir().unwrap();
        assert!(merged(dir.path()).is_err());
        for (shard, times) in [(0, &[1, 4, 5][..]), (1, &[2, 3, 9]), (2, &[])] {
            let file = dir.path().join(format!("server-{shard}.jsonl"));
            let recorder = Recorder::create(&file).unwrap();
            for at in times {
                recorder.record(&ServerEvent::Amnesia { at: *at });
            }
        }
        let merged = merged(dir.path()).unwrap().map(Result::unwrap);
        let merged: Vec<_> = merged.map(|(server, event)| (event.at(), server)).collect();
        let expected = [(1, 0), (2, 1), (3, 1), (4, 0), (5, 0), (9, 1)];
        assert_eq!(merged, expected);
    }
}
