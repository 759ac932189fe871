//! The map from slots to nodes.

use std::sync::Arc;

use redis::Value;

use crate::store::StoreResult;
use crate::store::redis::cluster::slots::{SLOT_COUNT, Slot};
use crate::store::redis::wire::decode::{self, ReplyReader, malformed};

/// The address of a node, as the cluster announces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Address {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Address {
            host: host.into(),
            port,
        }
    }

    /// Reads `host:port`. An empty host is that of `queried`, because that node does not know its
    /// own host. Returns `None` for `?`: the node has no host name, and only the map has its
    /// address.
    pub(crate) fn parse(text: &str, queried: &Address) -> Option<Self> {
        let (host, port) = text.rsplit_once(':').filter(|(host, _)| *host != "?")?;
        let port = port.parse().ok()?;
        Some(Self::announced(host, port, queried))
    }

    fn announced(host: &str, port: u16, queried: &Address) -> Self {
        match host {
            "" => Address {
                host: queried.host.clone(),
                port,
            },
            host => Address::new(host, port),
        }
    }
}

/// The primary of each slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotMap {
    primaries: Vec<Address>,
    /// The index in `primaries` for each slot.
    primary_by_slot: Vec<Option<u16>>,
    replicas: Vec<Address>,
}

impl SlotMap {
    pub(crate) fn empty() -> Self {
        SlotMap {
            primaries: Vec::new(),
            primary_by_slot: vec![None; usize::from(SLOT_COUNT)],
            replicas: Vec::new(),
        }
    }

    /// Reads a reply to `CLUSTER SLOTS`: ranges, the primary of each, and its replicas.
    pub(crate) fn parse(reply: Value, queried: &Address) -> StoreResult<Self> {
        let mut map = SlotMap::empty();
        // The first of the nodes, because it is known to reply.
        map.primaries.push(queried.clone());
        let mut ranges = ReplyReader::from_list(reply)?;
        while let Some(range) = ranges.next() {
            let mut range = ReplyReader::from_list(range)?;
            let (first, last) = (range.int()?, range.int()?);
            if first > last || last >= u64::from(SLOT_COUNT) {
                return Err(malformed("slots that do not exist"));
            }
            let primary = range
                .next()
                .ok_or_else(|| malformed("slots without a node"))?;
            let index = map.index_or_insert(node(primary, queried)?);
            let slots = usize::try_from(first).unwrap_or(0)..=usize::try_from(last).unwrap_or(0);
            map.primary_by_slot[slots].fill(index);
            while let Some(replica) = range.next() {
                let replica = node(replica, queried)?;
                if !map.replicas.contains(&replica) {
                    map.replicas.push(replica);
                }
            }
        }
        Ok(map)
    }

    fn index_or_insert(&mut self, primary: Address) -> Option<u16> {
        let known = self.primaries.iter().position(|known| *known == primary);
        let index = known.unwrap_or_else(|| {
            self.primaries.push(primary);
            self.primaries.len() - 1
        });
        u16::try_from(index).ok()
    }

    pub(crate) fn primary_of(&self, slot: Slot) -> Option<&Address> {
        let index = self.primary_by_slot[slot.index()]?;
        self.primaries.get(usize::from(index))
    }

    /// Assigns a slot to a node. Returns true if that changes the map.
    pub(crate) fn assign(&mut self, slot: Slot, node: &Address) -> bool {
        let is_changed = self.primary_of(slot) != Some(node);
        if is_changed {
            self.primary_by_slot[slot.index()] = self.index_or_insert(node.clone());
        }
        is_changed
    }

    /// Returns the slots whose primary here differs from their primary in `later`. A slot without a
    /// primary here is not one of them.
    pub(crate) fn moved_slots(&self, later: &SlotMap) -> Vec<Slot> {
        let slots = (0..SLOT_COUNT).filter_map(Slot::new);
        let has_moved = |slot: &Slot| {
            let before = self.primary_of(*slot);
            before.is_some() && before != later.primary_of(*slot)
        };
        slots.filter(has_moved).collect()
    }

    pub(crate) fn any_slot_of(&self, node: &Address) -> Option<Slot> {
        let mut slots = (0..SLOT_COUNT).filter_map(Slot::new);
        slots.find(|slot| self.primary_of(*slot) == Some(node))
    }

    /// Returns the primaries that have slots.
    pub(crate) fn primaries(&self) -> Vec<Address> {
        let primaries = self.primaries.iter();
        let with_slots = primaries.filter(|node| self.any_slot_of(node).is_some());
        with_slots.cloned().collect()
    }

    /// Returns all nodes that can be asked for the slots.
    pub(crate) fn all_nodes(&self) -> impl Iterator<Item = &Address> {
        self.primaries.iter().chain(&self.replicas)
    }
}

/// Reads `[host, port, id, [name, value, ...]]`. A missing host is that of the node that was asked.
fn node(value: Value, queried: &Address) -> StoreResult<Address> {
    let mut fields = ReplyReader::from_list(value)?;
    let host = match fields.next() {
        Some(Value::Nil) => String::new(),
        Some(host) => decode::text(host)?,
        None => return Err(malformed("a node without an address")),
    };
    let port = u16::try_from(fields.int()?).map_err(|_| malformed("an invalid port"))?;
    let (_id, metadata) = (fields.next(), fields.next());
    let host = match &*host {
        // The cluster announces host names, and this node has none.
        "?" => ip(metadata).ok_or_else(|| malformed("a node without a name"))?,
        _ => host,
    };
    Ok(Address::announced(&host, port, queried))
}

/// Returns the IP address among the additional fields of a node, which are a map or a list.
fn ip(metadata: Option<Value>) -> Option<String> {
    let pairs = match metadata? {
        Value::Map(pairs) => pairs,
        metadata => {
            let mut metadata = ReplyReader::from_list(metadata).ok()?;
            std::iter::from_fn(|| Some((metadata.next()?, metadata.next()?))).collect()
        }
    };
    pairs.into_iter().find_map(|(name, value)| {
        let is_ip = decode::text(name).ok()? == "ip";
        is_ip.then(|| decode::text(value).ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn at(host: Value, port: i64) -> Value {
        Value::Array(vec![
            host,
            Value::Int(port),
            text("id"),
            Value::Array(vec![]),
        ])
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        let mut range = vec![Value::Int(first), Value::Int(last)];
        range.extend(nodes);
        Value::Array(range)
    }

    #[test]
    fn slots_map_to_their_primaries() {
        let queried = Address::new("asked", 1);
        let reply = Value::Array(vec![
            range(0, 99, vec![at(text("a"), 7), at(text("r"), 8)]),
            range(100, 16_383, vec![at(Value::Nil, 9)]),
        ]);
        let mut map = SlotMap::parse(reply, &queried).unwrap();
        let slot = |number| Slot::new(number).unwrap();
        assert_eq!(map.primary_of(slot(99)), Some(&Address::new("a", 7)));
        assert_eq!(map.primary_of(slot(100)), Some(&Address::new("asked", 9)));
        let before = map.clone();
        assert!(map.assign(slot(99), &Address::new("b", 7)));
        assert!(!map.assign(slot(99), &Address::new("b", 7)));
        assert_eq!(map.any_slot_of(&Address::new("b", 7)), Some(slot(99)));
        assert_eq!(before.moved_slots(&map), [slot(99)]);
        assert_eq!(
            SlotMap::empty().moved_slots(&map),
            [],
            "found, and not moved"
        );
        let nodes = [("asked", 1), ("a", 7), ("asked", 9), ("b", 7), ("r", 8)];
        let [asked, a, asked_9, b, r] = nodes.map(|(host, port)| Address::new(host, port));
        let all_nodes: Vec<_> = map.all_nodes().collect();
        assert_eq!(all_nodes, [&asked, &a, &asked_9, &b, &r]);
        assert!(map.assign(slot(99), &a));
        assert_eq!(map.primaries(), [a, asked_9], "b has no slot any more");
    }

    #[test]
    fn a_node_without_a_host_name_uses_its_ip() {
        let queried = Address::new("asked", 1);
        let owner = |metadata: Value| {
            let node = Value::Array(vec![text("?"), Value::Int(7), text("id"), metadata]);
            let map = SlotMap::parse(Value::Array(vec![range(0, 9, vec![node])]), &queried);
            map.map(|map| map.primary_of(Slot::new(9).unwrap()).cloned())
        };
        let ip = || (text("ip"), text("10.0.0.1"));
        let found = Ok(Some(Address::new("10.0.0.1", 7)));
        assert_eq!(owner(Value::Map(vec![ip()])), found);
        assert_eq!(owner(Value::Array(vec![ip().0, ip().1])), found);
        assert!(owner(Value::Array(vec![])).is_err());
    }

    #[test]
    fn malformed_maps_are_rejected() {
        let queried = Address::new("asked", 1);
        for reply in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(5, 4, vec![at(text("a"), 7)])]),
            Value::Array(vec![range(0, 16_384, vec![at(text("a"), 7)])]),
            Value::Array(vec![range(0, 1, vec![])]),
            Value::Array(vec![range(0, 1, vec![at(text("a"), 70_000)])]),
            Value::Array(vec![range(0, 1, vec![Value::Array(vec![])])]),
        ] {
            assert!(SlotMap::parse(reply, &queried).is_err());
        }
    }

    #[test]
    fn addresses_are_parsed() {
        let queried = Address::new("asked", 1);
        for (read, host) in [("h:7", "h"), (":7", "asked"), ("::1:7", "::1")] {
            assert_eq!(Address::parse(read, &queried), Some(Address::new(host, 7)));
        }
        assert_eq!(Address::parse("h", &queried), None);
        assert_eq!(Address::parse("?:7", &queried), None);
    }
}
