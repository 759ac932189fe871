//! How a slot of a cluster gets its owner back when a fault interrupted its move, as `redis-cli --cluster fix` does it.

use anyhow::ensure;
use distlock_tests::{RedisServer, Reply};

use super::ask;

/// Number of keys that one `MIGRATE` moves.
const BATCH: usize = 100;

/// What one master reports about a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct View {
    /// The port of the node that serves the slot.
    owner: Option<u16>,
    /// The master imports or migrates the slot.
    is_open: bool,
    /// Number of keys of the slot that the master stores.
    keys: i64,
}

/// A command for one master. Masters are named by their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// `CLUSTER SETSLOT <slot> STABLE`
    Stable,
    /// `CLUSTER SETSLOT <slot> IMPORTING <node>`
    Import(u16),
    /// `CLUSTER SETSLOT <slot> MIGRATING <node>`
    Migrate(u16),
    /// `CLUSTER SETSLOT <slot> NODE <node>`
    Assign(u16),
    /// `CLUSTER ADDSLOTS <slot>`
    Add,
    /// `MIGRATE`, until the master has no key of the slot.
    MoveKeys(u16),
    /// `CLUSTER BUMPEPOCH`, so that all nodes believe the new owner.
    BumpEpoch,
}

/// Returns the commands after which all masters agree that `owner` serves the slot, with all its keys.
fn commands(owner: u16, views: &[(u16, View)]) -> Vec<(u16, Command)> {
    let agreed = View {
        owner: Some(owner),
        ..View::default()
    };
    let is_agreed = |(port, view): &(u16, View)| {
        let keys = if *port == owner { view.keys } else { 0 };
        *view == View { keys, ..agreed }
    };
    if views.iter().all(is_agreed) {
        return Vec::new();
    }
    let of_owner = views.iter().find(|(port, _)| *port == owner);
    let known = of_owner.and_then(|(_, view)| view.owner);
    let mut is_owner = known == Some(owner);
    let others = || views.iter().filter(|(port, _)| *port != owner);
    let mut commands = Vec::new();
    if known.is_none() {
        // A node imports no slot of which it knows no owner.
        match others().find(|(port, view)| view.owner == Some(*port)) {
            Some((port, _)) => commands.push((owner, Command::Assign(*port))),
            None => {
                commands.push((owner, Command::Add));
                is_owner = true;
            }
        }
    }
    // The keys first: a master deletes those of a slot when it learns that another one serves the slot.
    for (port, view) in others().filter(|(_, view)| view.keys > 0) {
        if !is_owner {
            commands.push((owner, Command::Import(*port)));
        }
        if view.owner == Some(*port) {
            commands.push((*port, Command::Migrate(owner)));
        } else {
            // A master moves the keys of another one's slot only if it imports the slot.
            commands.push((*port, Command::Assign(owner)));
            commands.push((*port, Command::Import(owner)));
        }
        commands.push((*port, Command::MoveKeys(owner)));
    }
    if !is_owner {
        commands.push((owner, Command::Assign(owner)));
    }
    commands.push((owner, Command::BumpEpoch));
    let wrong = others().filter(|(_, view)| view.owner != Some(owner));
    commands.extend(wrong.map(|(port, _)| (*port, Command::Assign(owner))));
    // Last, because as long as the slot is open a node refers clients to where a key may be.
    commands.extend(views.iter().map(|(port, _)| (*port, Command::Stable)));
    commands
}

/// Opens a slot of `from` for its move to `to`.
///
/// # Errors
///
/// When a master cannot be asked, or rejects a command.
pub(crate) fn begin_move(slot: u16, from: &RedisServer, to: &RedisServer) -> anyhow::Result<()> {
    let masters = [from, to];
    send(slot, to, Command::Import(from.port()), &masters)?;
    send(slot, from, Command::Migrate(to.port()), &masters)
}

/// Makes `owner` serve a slot, with all its keys, in the view of all `masters`. Returns the commands that were sent: none
/// if the masters agreed.
///
/// # Errors
///
/// When a master cannot be asked, or rejects a command.
pub(crate) fn assign(
    slot: u16,
    owner: &RedisServer,
    masters: &[&RedisServer],
) -> anyhow::Result<Vec<String>> {
    let views = masters
        .iter()
        .map(|master| Ok((master.port(), view(master, slot)?)));
    let views = views.collect::<anyhow::Result<Vec<_>>>()?;
    let mut sent = Vec::new();
    for (port, command) in commands(owner.port(), &views) {
        send(slot, by_port(masters, port)?, command, masters)?;
        sent.push(format!("{command:?} at {port}"));
    }
    Ok(sent)
}

/// Moves up to `count` keys of a slot. Returns how many were moved.
///
/// # Errors
///
/// When a master cannot be asked, or rejects the move.
pub(crate) fn move_keys(
    slot: u16,
    from: &RedisServer,
    to: &RedisServer,
    count: usize,
) -> anyhow::Result<usize> {
    let (slot, count) = (slot.to_string(), count.to_string());
    let keys = ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot, &count])?;
    let keys: Vec<_> = keys.array().iter().filter_map(Reply::text).collect();
    if !keys.is_empty() {
        let port = to.port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000"];
        if let Some(password) = to.password() {
            words.extend(["AUTH", password]);
        }
        words.push("KEYS");
        words.extend(&keys);
        ask(from, &words)?;
    }
    Ok(keys.len())
}

fn by_port<'a>(masters: &[&'a RedisServer], port: u16) -> anyhow::Result<&'a RedisServer> {
    let master = masters.iter().find(|master| master.port() == port);
    master
        .copied()
        .ok_or_else(|| anyhow::anyhow!("no master has port {port}"))
}

fn send(
    slot: u16,
    master: &RedisServer,
    command: Command,
    masters: &[&RedisServer],
) -> anyhow::Result<()> {
    if let Command::MoveKeys(to) = command {
        let to = by_port(masters, to)?;
        while move_keys(slot, master, to, BATCH)? > 0 {}
        return Ok(());
    }
    let slot = slot.to_string();
    let set_slot = |state: &str, port: u16| {
        let id = ask(by_port(masters, port)?, &["CLUSTER", "MYID"])?;
        let id = id.text().unwrap_or_default();
        ask(master, &["CLUSTER", "SETSLOT", &slot, state, id])
    };
    match command {
        Command::Import(port) => set_slot("IMPORTING", port),
        Command::Migrate(port) => set_slot("MIGRATING", port),
        Command::Assign(port) => set_slot("NODE", port),
        Command::Stable => ask(master, &["CLUSTER", "SETSLOT", &slot, "STABLE"]),
        Command::Add => ask(master, &["CLUSTER", "ADDSLOTS", &slot]),
        Command::BumpEpoch | Command::MoveKeys(_) => ask(master, &["CLUSTER", "BUMPEPOCH"]),
    }
    .map(drop)
}

fn view(master: &RedisServer, slot: u16) -> anyhow::Result<View> {
    let nodes = ask(master, &["CLUSTER", "NODES"])?;
    let keys = ask(master, &["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()])?;
    let nodes = nodes.text().unwrap_or_default();
    ensure!(!nodes.is_empty(), "{} knows no nodes", master.addr());
    let mut view = read(nodes, slot);
    view.keys = keys.int();
    Ok(view)
}

/// Reads `CLUSTER NODES`: a line for each node, with its slots from the ninth word on.
fn read(nodes: &str, slot: u16) -> View {
    let mut view = View::default();
    for line in nodes.lines() {
        let mut words = line.split(' ');
        // 127.0.0.1:7000@17000
        let port = words.nth(1).and_then(|address| {
            let (_, port) = address.split('@').next()?.rsplit_once(':')?;
            port.parse().ok()
        });
        for word in words.skip(6) {
            match word.strip_prefix('[') {
                // [16182->-<node>] or [16182-<-<node>]
                Some(open) => {
                    view.is_open |= open.split('-').next() == Some(slot.to_string().as_str());
                }
                None => {
                    let (first, last) = word.split_once('-').unwrap_or((word, word));
                    let number = |text: &str| text.parse::<u16>().ok();
                    if let (Some(first), Some(last)) = (number(first), number(last))
                        && (first..=last).contains(&slot)
                    {
                        view.owner = port;
                    }
                }
            }
        }
    }
    view
}

#[cfg(test)]
mod tests {
    use super::Command::{Add, Assign, BumpEpoch, Import, Migrate, MoveKeys, Stable};
    use super::*;

    /// Views of the masters 1, 2 and 3, the first of which is to serve the slot.
    fn repairs(views: [(Option<u16>, bool, i64); 3]) -> Vec<(u16, Command)> {
        let view = |(owner, is_open, keys)| View {
            owner,
            is_open,
            keys,
        };
        let views: Vec<_> = (1..).zip(views.map(view)).collect();
        let mut commands = commands(1, &views);
        // Whatever is repaired ends with it.
        let closed = commands.split_off(commands.len().saturating_sub(3));
        let stable = [(1, Stable), (2, Stable), (3, Stable)];
        assert!(closed.is_empty() || closed == stable, "{closed:?}");
        commands
    }

    #[test]
    fn a_slot_is_repaired_as_an_operator_would() {
        let first = Some(1);
        let cases = [
            (
                "in order",
                [(first, false, 7), (first, false, 0), (first, false, 0)],
                vec![],
            ),
            (
                "without an owner",
                [(None, false, 0); 3],
                vec![(1, Add), (1, BumpEpoch), (2, Assign(1)), (3, Assign(1))],
            ),
            (
                "half moved",
                [(Some(2), true, 1), (Some(2), true, 4), (Some(2), false, 0)],
                vec![
                    (1, Import(2)),
                    (2, Migrate(1)),
                    (2, MoveKeys(1)),
                    (1, Assign(1)),
                    (1, BumpEpoch),
                    (2, Assign(1)),
                    (3, Assign(1)),
                ],
            ),
            (
                "half moved, and unknown to its new owner",
                [(None, false, 0), (Some(2), true, 4), (Some(1), false, 0)],
                vec![
                    (1, Assign(2)),
                    (1, Import(2)),
                    (2, Migrate(1)),
                    (2, MoveKeys(1)),
                    (1, Assign(1)),
                    (1, BumpEpoch),
                    (2, Assign(1)),
                ],
            ),
            (
                "open after its move",
                [(first, true, 1), (first, false, 0), (first, false, 0)],
                vec![(1, BumpEpoch)],
            ),
            (
                "one master has older news",
                [(first, false, 1), (first, false, 0), (None, false, 0)],
                vec![(1, BumpEpoch), (3, Assign(1))],
            ),
            (
                "keys where no node looks for them",
                [(first, false, 1), (None, false, 2), (first, false, 0)],
                vec![
                    (2, Assign(1)),
                    (2, Import(1)),
                    (2, MoveKeys(1)),
                    (1, BumpEpoch),
                    (2, Assign(1)),
                ],
            ),
        ];
        for (name, views, expected) in cases {
            assert_eq!(repairs(views), expected, "{name}");
        }
    }

    #[test]
    fn owners_and_open_slots_are_read() {
        let nodes = "aa 127.0.0.1:7001@17001 myself,master - 0 0 3 connected 0-5 9 [9->-bb] [12-<-bb]\n\
                     bb 127.0.0.1:7002@17002 master - 0 1 2 connected 6-8 11\n\
                     cc 127.0.0.1:7003@17003 slave aa 0 1 3 connected\n";
        for (slot, owner, is_open) in [
            (5, Some(7001), false),
            (9, Some(7001), true),
            (10, None, false),
            (11, Some(7002), false),
            (12, None, true),
        ] {
            let view = read(nodes, slot);
            assert_eq!((view.owner, view.is_open), (owner, is_open), "{slot}");
        }
    }
}
