//! The tables of PostgreSQL, as the comparison reads and changes them.

use std::fmt::Write as _;
use std::time::Duration;

use distlock_tests::PostgresServer;
use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::KEYS;
use super::op::{Op, WAIT};
use super::side::{ENTRY, NAMESPACE};
use super::step::Step;
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::OwnerId;
use crate::protocol::once::Record;
use crate::store::client_id::ClientId;
use crate::store::memory::hooks::{
    EntrySnapshot, HoldSnapshot, RecordSnapshot, ShareSnapshot, Snapshot, owner_text,
};
use crate::util::clock::ServerTime;

/// The advisory lock of the client that is never connected.
const NO_LIVENESS_LOCK: i64 = 1;

/// Everything of a lock named `$1`: rows that begin with the table's name.
const READ: &str = "
    SELECT 'lock', token, distlock.us(expires) FROM distlock.lock WHERE key = $1;
    SELECT 'hold', client, owner, kind, weight, capacity, ttl, token, state, distlock.us(since), distlock.us(expires),
      name FROM distlock.hold WHERE key = $1 AND weight > 0 AND expires > clock_timestamp();
    SELECT 'queue', client, owner, kind, weight, capacity, ttl, distlock.us(deadline), name
      FROM distlock.queue WHERE key = $1 ORDER BY place;
    SELECT 'record', selector, distlock.us(since), gap, token, distlock.us(finished), distlock.us(expires), name
      FROM distlock.record WHERE key = $1 AND expires > clock_timestamp() ORDER BY selector";

pub(super) async fn connect(server: &PostgresServer) -> Client {
    let socket = TcpStream::connect(server.addr()).await.unwrap();
    let config: Config = server.url().parse().unwrap();
    let (client, connection) = config.connect_raw(socket, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(super) fn name(key: &LockKey) -> String {
    let key = key.as_str();
    let inner = key.strip_prefix('{').and_then(|key| key.strip_suffix('}'));
    format!("{NAMESPACE}:lock:{}", inner.unwrap_or(key))
}

/// Returns the condition of the rows of an owner.
pub(super) fn is_of(owner: &str) -> String {
    let (client, number) = owner.split_once(':').unwrap();
    let number: u64 = number.parse().unwrap();
    format!("client = '{client}' AND owner = {}", number.cast_signed())
}

fn letter(kind: Kind) -> char {
    match kind.lock_kind() {
        LockKind::Mutex => 'm',
        LockKind::ReadWrite => 'r',
        LockKind::Semaphore { .. } => 'p',
    }
}

pub(super) struct Tables {
    client: Client,
}

impl Tables {
    pub(super) async fn connect(server: &PostgresServer) -> Self {
        let client = connect(server).await;
        Tables { client }
    }

    pub(super) async fn run(&self, text: &str) {
        let done = self.client.batch_execute(text).await;
        done.unwrap_or_else(|error| panic!("{error:?} in {text}"));
    }

    /// Returns the columns of all rows.
    pub(super) async fn rows(&self, text: &str) -> Vec<Vec<String>> {
        let messages = self.client.simple_query(text).await;
        let messages = messages.unwrap_or_else(|error| panic!("{error:?} in {text}"));
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|i| row.get(i).unwrap().to_owned())
                    .collect(),
            ),
            _ => None,
        };
        messages.into_iter().filter_map(row).collect()
    }

    pub(super) async fn delete_entry(&self, key: &LockKey, owner: &str) {
        let (name, owner) = (name(key), is_of(owner));
        self.run(&format!(
            "DELETE FROM distlock.queue WHERE key = '{name}' AND {owner}"
        ))
        .await;
    }

    /// Returns everything of a lock. `now` is the server's time in µs.
    pub(super) async fn read(&self, key: &LockKey, now: u64) -> Snapshot {
        let mut snapshot = Snapshot {
            hold: None,
            shares: Vec::new(),
            kind: None,
            phase: None,
            queue: Vec::new(),
            queue_left: Duration::ZERO,
            fence: None,
            fence_left: Duration::ZERO,
            records: Vec::new(),
        };
        let read = READ.replace("$1", &format!("'{}'", name(key)));
        for row in self.rows(&read).await {
            let number = |i: usize| row[i].parse::<i64>().unwrap();
            let positive = |i: usize| u64::try_from(number(i)).unwrap();
            let small = |i: usize| row[i].parse::<u32>().unwrap();
            let millis = |i: usize| Duration::from_millis(positive(i));
            let left = |i: usize| Duration::from_micros(positive(i).saturating_sub(now));
            let token = |i: usize| FencingToken::new(positive(i));
            let owner = || {
                let client = row[1].replace('-', "");
                owner_text(
                    &ClientId::from_str(&client),
                    OwnerId(number(2).cast_unsigned()),
                )
            };
            let kind = || match &*row[3] {
                "m" => LockKind::Mutex,
                "r" => LockKind::ReadWrite,
                _ => LockKind::Semaphore { permits: small(5) },
            };
            match &*row[0] {
                "lock" => {
                    snapshot.fence = Some(positive(1))
                        .filter(|token| *token > 0)
                        .map(FencingToken::new);
                    snapshot.fence_left = snapshot.fence.map_or(Duration::ZERO, |_| left(2));
                }
                "hold" if kind() == LockKind::Mutex => {
                    snapshot.hold = Some(HoldSnapshot {
                        owner: owner(),
                        token: token(7),
                        limit: millis(6),
                        since: positive(9),
                        name: row[11].clone(),
                        left: left(10),
                    });
                }
                "hold" => {
                    let is_reader = kind() == LockKind::ReadWrite && row[4] < row[5];
                    if is_reader && row[8] != "r" && snapshot.fence == Some(token(7)) {
                        snapshot.phase = snapshot.fence;
                    }
                    snapshot.kind = Some(kind());
                    snapshot.shares.push(ShareSnapshot {
                        owner: owner(),
                        weight: small(4),
                        flag: row[8].replace('g', "h").parse().unwrap(),
                        token: token(7),
                        since: positive(9),
                        name: row[11].clone(),
                        left: left(10),
                    });
                }
                "queue" => snapshot.queue.push(EntrySnapshot {
                    owner: owner(),
                    kind: kind(),
                    weight: small(4),
                    ttl: millis(6),
                    name: row[8].clone(),
                    left: left(7),
                }),
                _ => snapshot.records.push(RecordSnapshot {
                    selector: row[1].clone(),
                    record: Record {
                        since: ServerTime(positive(2)),
                        gap: millis(3),
                        token: token(4),
                        finished: ServerTime(positive(5)),
                        holder_name: row[7].clone(),
                    },
                    left: left(6),
                }),
            }
        }
        snapshot.shares.sort_by(|a, b| a.owner.cmp(&b.owner));
        snapshot
    }
}

/// Returns the statements that change what no client changes.
pub(super) fn changes(keys: &[LockKey; KEYS], step: &Step) -> String {
    let of = |key: &usize| format!("key = '{}'", name(&keys[*key]));
    let live = |key: &usize| format!("{} AND weight > 0 AND expires > clock_timestamp()", of(key));
    let expire = |rows: &str| {
        // A grant that is gone is not one that expires unconfirmed.
        format!(
            "DELETE FROM distlock.hold WHERE {rows} AND state = 'g';
             UPDATE distlock.hold SET expires = clock_timestamp() WHERE {rows}"
        )
    };
    let row = |key: &usize| {
        format!(
            "INSERT INTO distlock.lock AS l VALUES ('{}', 0, clock_timestamp() + interval '2 min') ON CONFLICT DO NOTHING",
            name(&keys[*key])
        )
    };
    match step {
        Step::Op(Op::DeleteHolds { key }) => expire(&live(key)),
        Step::Expire { key, owner, .. } => expire(&format!("{} AND {}", live(key), is_of(owner))),
        Step::Silent { key, owner, .. } => format!(
            "UPDATE distlock.hold SET expires = clock_timestamp() WHERE {} AND {}",
            of(key),
            is_of(owner)
        ),
        Step::Op(Op::DeleteAll { key }) => {
            let tables = ["lock", "hold", "queue", "record"];
            let delete = |table| format!("DELETE FROM distlock.{table} WHERE {};", of(key));
            tables.map(delete).concat()
        }
        Step::Op(Op::Ahead { key }) => format!(
            "{}; UPDATE distlock.lock SET token = distlock.us(clock_timestamp()) + 3600000000,
               expires = greatest(expires, clock_timestamp() + interval '3 h') WHERE {}",
            row(key),
            of(key)
        ),
        Step::Op(Op::ShiftHold { key, hours }) => format!(
            "UPDATE distlock.hold SET since = since + {hours} * interval '1 h' WHERE {} AND kind = 'm'",
            live(key)
        ),
        Step::Op(Op::ShiftRecords { key, hours }) => format!(
            "UPDATE distlock.record SET since = since + {hours} * interval '1 h' WHERE {}",
            of(key)
        ),
        Step::Op(Op::StepBack { key }) => format!(
            "UPDATE distlock.hold SET expires = expires + interval '1 h' WHERE {}",
            live(key)
        ),
        // Rows of holders that are gone, and of cancelled owners, count as holders.
        Step::Op(Op::AcquireAll { keys: several, .. }) => {
            let mut text = String::new();
            for key in *several {
                let gone = "(weight = 0 OR expires <= clock_timestamp())";
                write!(
                    text,
                    "DELETE FROM distlock.hold WHERE {} AND {gone};",
                    of(key)
                )
                .unwrap();
            }
            text
        }
        Step::Enter {
            key,
            client,
            kind,
            owners,
        } => {
            let first = owners.start.cast_signed();
            let last = owners.end.cast_signed() - 1;
            format!(
                "{}; INSERT INTO distlock.queue SELECT '{}',
                   coalesce((SELECT max(place) FROM distlock.queue WHERE {}), 0) + 1 + o - {first}, '{}', o, '{}', {}, {},
                   {}, {}, coalesce((SELECT liveness FROM hand.liveness_locks d WHERE d.client = '{3}'), {NO_LIVENESS_LOCK}),
                   clock_timestamp() + interval '{} s', clock_timestamp(), 'entered' FROM generate_series({first}, {last}) o",
                row(key),
                name(&keys[*key]),
                of(key),
                client.as_str(),
                letter(*kind),
                kind.capacity(),
                kind.weight(),
                ENTRY.lease.as_millis(),
                ENTRY.ttl().as_millis(),
                WAIT.as_secs()
            )
        }
        Step::Lapse { key, owner } => format!(
            "UPDATE distlock.queue SET deadline = clock_timestamp() - interval '1 s' WHERE {} AND {}",
            of(key),
            is_of(owner)
        ),
        _ => String::new(),
    }
}
