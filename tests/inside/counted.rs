//! Counted locks on each kind of server: the commands of two clients, from the first acquire to the
//! last release.

use std::sync::Arc;
use std::time::Duration;

use distlock_tests::{Middleman, RedisCluster, RedisServer, eventually_async, within};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::config::options::Durability;
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::builder::Parts;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, Confirmation, Grant, OwnerNumber, Proof, Renewal,
    RenewalFailure, RevokeReply,
};
use crate::protocol::timing::Timing;
use crate::store::client_id::ClientId;
use crate::store::command::{Confirm, Downgrade, Inspect, List, Release, Revoke, StoreCommand};
use crate::store::redis::conn::client::Client as RedisClient;
use crate::store::redis::conn::group::Group;
use crate::store::redis::open;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::{LockStore, Settings, StoreEvent, run};
use crate::util::random::SystemRandom;

const LIMIT: Duration = Duration::from_secs(10);
const TIMING: Timing = Timing { lease: LIMIT };
const WRITER: OwnerNumber = 1;
const READER: OwnerNumber = 2;

/// One client of a server.
struct Client {
    store: Box<dyn LockStore>,
    grants: UnboundedReceiver<Grant>,
    key: LockKey,
    durability: Durability,
}

impl Client {
    async fn connect(url: &str, replicas: u32) -> Self {
        let (sender, grants) = unbounded_channel();
        let parts = Parts::default();
        let client = RedisClient {
            id: ClientId::new(&SystemRandom),
            settings: Settings::named("tester"),
            clock: parts.clock,
            random: parts.random,
            events: Arc::new(move |event| {
                if let StoreEvent::Granted(grant) = event {
                    // The receiver is dropped when the test has ended.
                    let _ = sender.send(grant);
                }
            }),
            is_idle: Arc::new(|| false),
            scripts: parts.scripts,
            runtime_connection_after: 1,
            rules: parts.rules,
            group: Group::Single,
            transport_factory: parts.transport_factory,
        };
        let config = RedisConfig::parse(url, "counted", LIMIT).unwrap();
        Client {
            store: open::connect(config, client).await.unwrap().store,
            grants,
            key: LockKey::new("k").unwrap(),
            durability: Durability {
                replicas,
                fsync: false,
            },
        }
    }

    async fn run<C: StoreCommand>(&self, command: C) -> C::Reply {
        run(&*self.store, command, LIMIT).await.unwrap()
    }

    async fn acquire(&self, owner: OwnerNumber, kind: Kind, wait: Duration) -> AcquireReply {
        let acquire = Acquire {
            key: &self.key,
            kind,
            owner,
            timing: TIMING,
            durability: self.durability,
            wait,
            metadata: None,
            once: None,
        };
        self.run(acquire).await
    }

    async fn confirm(&self, owner: OwnerNumber) -> Option<Proof> {
        let confirm = Confirm {
            key: &self.key,
            kind: Kind::Read,
            owner,
            timing: TIMING,
            durability: self.durability,
            once: None,
        };
        match self.run(confirm).await {
            Confirmation::Held(proof) => Some(proof),
            _ => None,
        }
    }

    async fn renew(&self, owner: OwnerNumber, token: FencingToken) -> Option<RenewalFailure> {
        let renewal = Renewal {
            key: self.key.clone(),
            kind: Kind::Read,
            owner,
            token,
            timing: TIMING,
            durability: self.durability,
        };
        let mut failures = self.run(&[renewal][..]).await.failures;
        failures.pop().map(|(_, failure)| failure)
    }

    async fn release(&self, owner: OwnerNumber, kind: Kind) -> bool {
        let release = Release {
            key: &self.key,
            kind,
            owner,
            keep_for: Duration::ZERO,
            success: None,
        };
        self.run(release).await.was_held
    }

    async fn check_queue(&self) {
        let check = CheckQueue {
            key: self.key.clone(),
            is_counted: true,
            owners: vec![READER],
        };
        self.run(&[check][..]).await;
    }
}

/// Runs every command once. `pushes` is false behind a proxy, which lists no keys either.
async fn run_all(url: &str, replicas: u32, pushes: bool) {
    let a = Client::connect(url, replicas).await;
    let mut b = Client::connect(url, replicas).await;
    let AcquireReply::Held(write) = a.acquire(WRITER, Kind::Write, LIMIT).await else {
        panic!("{url}: it is free");
    };
    let queued = b.acquire(READER, Kind::Read, LIMIT).await;
    let is_queued = matches!(&queued, AcquireReply::Queued(holders)
        if holders[0].weight == Kind::Write.weight() && holders[0].token == write.token);
    assert!(is_queued, "{url}: {queued:?}");
    let other = b.acquire(3, Kind::Mutex, Duration::ZERO).await;
    let is_rejected = matches!(&other, AcquireReply::WrongKind { existing: LockKind::ReadWrite, holders }
        if holders.len() == 1);
    assert!(is_rejected, "{url}: {other:?}");
    let inspect = Inspect {
        key: &a.key,
        max_listed: 5,
    };
    let seen = a.run(inspect).await;
    assert_eq!(
        (seen.kind, seen.holders.len()),
        (Some(LockKind::ReadWrite), 1),
        "{url}"
    );
    assert_eq!(
        (seen.queue_length, &*seen.waiters[0].name),
        (1, "tester"),
        "{url}"
    );
    if pushes {
        assert_eq!(
            a.run(List { prefix: "" }).await,
            std::slice::from_ref(&a.key),
            "{url}"
        );
    }

    let downgrade = Downgrade {
        key: &a.key,
        owner: WRITER,
        token: write.token,
        timing: TIMING,
        durability: a.durability,
    };
    let read = a.run(downgrade).await.expect("it holds the lock");
    assert!(read.token > write.token, "{url}");
    assert_eq!(
        a.run(downgrade).await.map(|again| again.token),
        Some(read.token),
        "{url}"
    );
    if !pushes {
        b.check_queue().await;
    }
    let grant = within(LIMIT, b.grants.recv()).await.unwrap();
    assert!(
        grant.is_counted && grant.owner == READER,
        "{url}: {grant:?}"
    );
    let proof = b.confirm(READER).await.expect("it was granted");
    assert_eq!(proof.token, read.token, "{url}: readers share a token");
    assert_eq!(b.renew(READER, proof.token).await, None, "{url}");

    let revoke = Revoke {
        key: &a.key,
        is_counted: true,
        tokens: &[read.token],
        delete: false,
    };
    let revoked = a.run(revoke).await;
    assert!(
        matches!(revoked, RevokeReply::Revoked(token) if token > read.token),
        "{url}"
    );
    assert_eq!(
        b.renew(READER, proof.token).await,
        Some(RenewalFailure::Revoked),
        "{url}"
    );
    assert!(
        a.release(WRITER, Kind::Read).await && b.release(READER, Kind::Read).await,
        "{url}"
    );
    let mutex = b.acquire(4, Kind::Mutex, Duration::ZERO).await;
    assert!(matches!(mutex, AcquireReply::Held(_)), "{url}: {mutex:?}");
    let permits = Kind::Permits {
        permits: 2,
        weight: 1,
    };
    let other = a.acquire(5, permits, Duration::ZERO).await;
    let is_rejected = matches!(
        other,
        AcquireReply::WrongKind {
            existing: LockKind::Mutex,
            ..
        }
    );
    assert!(is_rejected, "{url}: {other:?}");
    assert!(b.release(4, Kind::Mutex).await, "{url}");
}

#[tokio::test]
async fn each_command_works_on_each_kind_of_server() {
    let primary = RedisServer::builder()
        .arg("--repl-diskless-sync-delay", "0")
        .start();
    run_all(&primary.url(), 0, true).await;
    let port = primary.port().to_string();
    let _replica = RedisServer::builder()
        .args(["--replicaof", "127.0.0.1", &port])
        .start();
    let mut raw = primary.client();
    eventually_async(LIMIT * 6, async || {
        raw.cmd(&["SET", "is-it-there", "1"]);
        raw.cmd(&["WAIT", "1", "100"]).int() > 0
    })
    .await;
    // The writes of the ack connections use scripts that the server may have forgotten.
    raw.cmd(&["SCRIPT", "FLUSH"]);
    run_all(&primary.url(), 1, true).await;
    if RedisCluster::is_possible() {
        run_all(&RedisCluster::start(3).url(), 0, true).await;
    }
    let server = RedisServer::start();
    run_all(&Middleman::before(&[&server]).url(), 0, false).await;
}
