//! Who runs on which core: where the scheduler puts threads decides what a wake-up costs, so each latency
//! is measured with it and without it.

use std::fs;

use distlock_tests::RedisServer;

use crate::cores;

/// The cores of the server and of its clients; without them the scheduler chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    server: Option<usize>,
    pub(crate) clients: Option<usize>,
}

impl Setting {
    /// Pinned too, where there are two cores.
    pub(crate) fn all() -> Vec<Setting> {
        let unpinned = Setting {
            name: "unpinned",
            server: None,
            clients: None,
        };
        match allowed()[..] {
            [server, clients, ..] => vec![
                unpinned,
                Setting {
                    name: "pinned",
                    server: Some(server),
                    clients: Some(clients),
                },
            ],
            _ => vec![unpinned],
        }
    }

    /// A server on its core.
    pub(crate) fn start_server(&self) -> anyhow::Result<RedisServer> {
        let server = RedisServer::start();
        self.place_server(&server)?;
        Ok(server)
    }

    /// Puts a server that runs on its core; several share it.
    pub(crate) fn place_server(&self, server: &RedisServer) -> anyhow::Result<()> {
        match self.server {
            Some(core) => cores::pin(Some(server.pid()), core),
            None => Ok(()),
        }
    }
}

/// The cores that this process may use, as Linux lists them; elsewhere none is known.
fn allowed() -> Vec<usize> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(|list| parsed(list.trim())).unwrap_or_default()
}

/// `0-1,4` are 0, 1 and 4.
fn parsed(list: &str) -> Vec<usize> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_understood() {
        assert_eq!(parsed("0-1,4"), [0, 1, 4]);
        assert_eq!(parsed("3"), [3]);
        assert!(parsed("").is_empty());
    }
}
