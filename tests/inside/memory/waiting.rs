//! The queue, and the choice of the next waiter.

use super::*;
use crate::util::random::SystemRandom;

#[test]
fn the_grant_lease_is_not_longer_than_the_lease() {
    let world = World::new();
    let a = world.client();
    a.take("k", 1);
    a.acquire_with("k", 2, ms(300), ms(10_000));
    a.release("k", 1);
    let grant = a.grants.lock().unwrap().pop().unwrap();
    assert_eq!(grant.lease, ms(300));
    world.clock.advance(ms(549));
    assert_eq!(a.check_queue("k", &[2]), (Some(2), vec![]));
    world.clock.advance(ms(1));
    assert_eq!(a.check_queue("k", &[2]), (None, vec![2]));
}

#[test]
fn a_stopped_client_loses_its_grant_and_its_whole_queue() {
    let world = World::new();
    let (holder, stopped, live) = (world.client(), world.client(), world.client());
    holder.take("k", 1);
    for owner in 1..=20 {
        stopped.queue("k", owner);
    }
    live.queue("k", 1);
    holder.release("k", 1);
    assert_eq!(stopped.granted(), [1]);

    world.clock.advance(GRANT - ms(1));
    assert_eq!(live.check_queue("k", &[1]), (None, vec![]));
    assert_eq!(live.granted(), [], "the grant is still good");
    world.clock.advance(ms(1));
    live.check_queue("k", &[1]);
    assert_eq!(
        live.granted(),
        [1],
        "one grant lease for all entries of the stopped client"
    );
    assert_eq!(stopped.granted(), []);
    assert_eq!(live.inspect("k").queue_length, 0);
}

#[test]
fn a_release_reaches_a_live_waiter_behind_any_number_of_dead_ones() {
    let world = World::new();
    let (a, dead, live) = (world.client(), world.client(), world.client());
    a.take("k", 1);
    for owner in 1..=250 {
        dead.queue("k", owner);
    }
    live.queue("k", 1);
    dead.store.close();
    a.release("k", 1);
    assert_eq!((dead.granted(), live.granted()), (vec![], vec![1]));
    let key = &key("k");
    let closed = at_once(run(&dead.store, Inspect { key, max_listed: 0 }, WITHIN));
    assert!(closed.is_err(), "it is closed");
}

#[test]
fn dead_and_overdue_waiters_make_room() {
    let world = World::new();
    let (a, dead) = (world.client(), world.client());
    let narrow = world.client_with(3);
    let full = |owner| {
        assert!(
            matches!(narrow.acquire("k", owner), AcquireReply::Full(_)),
            "{owner}"
        )
    };
    a.acquire_with("k", 1, Duration::from_secs(600), LEASE);
    dead.queue("k", 1);
    a.acquire_with("k", 2, LEASE, ms(500));
    narrow.queue("k", 1);
    full(2);
    dead.store.close();
    narrow.queue("k", 3);
    full(4);
    world.clock.advance(ms(1_501));
    narrow.queue("k", 5);
    full(6);
    assert_eq!(narrow.inspect("k").queue_length, 3);
    a.release("k", 1);
    assert_eq!(narrow.granted(), [1]);
    // The entry is marked, so its owner may still confirm.
    narrow.store.close();
    let other = world.client_with(1);
    assert!(matches!(other.acquire("k", 1), AcquireReply::Full(_)));
    assert_eq!(other.inspect("k").holders.len(), 1);
}

#[test]
fn all_owners_find_room_among_dead_waiters() {
    for owner in 200..400 {
        let world = World::new();
        let (a, dead, live) = (world.client(), world.client(), world.client_with(251));
        a.take("k", 1);
        live.queue("k", 1);
        for waiter in 1..=250 {
            dead.queue("k", waiter);
        }
        dead.store.close();
        live.queue("k", owner);
    }
}

#[test]
fn entries_beyond_their_deadline_are_not_granted() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    a.take("k", 1);
    b.acquire_with("k", 1, LEASE, ms(500));
    b.acquire_with("k", 2, LEASE, ms(501));
    world.clock.advance(ms(1_501));
    a.release("k", 1);
    assert_eq!(b.granted(), [2], "one millisecond is the difference");
}

#[test]
fn a_forgotten_queue_ends() {
    let world = World::new();
    let a = world.client();
    a.acquire_with("k", 1, Duration::from_secs(60), ms(0));
    a.acquire_with("k", 2, LEASE, ms(1));
    a.acquire_with("k", 3, LEASE, ms(0));
    world.clock.advance(ms(12_000));
    assert_eq!(a.inspect("k").queue_length, 1);
    world.clock.advance(ms(1));
    assert_eq!(a.inspect("k").queue_length, 0);
}

#[test]
fn a_grant_may_be_used_while_it_is_delivered() {
    let world = World::new();
    let holder = world.client();
    let confirmed = Arc::new(Mutex::new(false));
    let eager: Arc<std::sync::OnceLock<MemoryStore>> = Arc::default();
    let (store, result) = (eager.clone(), confirmed.clone());
    let events = Arc::new(move |event| {
        if let (StoreEvent::Granted(grant), Some(store)) = (event, store.get()) {
            let confirm = Confirm {
                kind: Kind::Mutex,
                key: &grant.key,
                owner: grant.owner,
                timing: Timing::new(LEASE),
                durability: Durability::NONE,
                once: None,
            };
            *result.lock().unwrap() = matches!(
                at_once(run(store, confirm, WITHIN)),
                Ok(Confirmation::Held(_))
            );
        }
    });
    let store = MemoryStore::new(
        world.server.clone(),
        ClientId::new(&SystemRandom),
        Settings::named("eager"),
        events,
    );
    let eager = eager.get_or_init(|| store);
    holder.take("k", 1);
    let key = key("k");
    let request = Acquire {
        kind: Kind::Mutex,
        key: &key,
        owner: 1,
        timing: Timing::new(LEASE),
        durability: Durability::NONE,
        wait: LEASE,
        metadata: None,
        once: None,
    };
    at_once(run(eager, request, WITHIN)).unwrap();
    holder.release("k", 1);
    assert!(*confirmed.lock().unwrap());
    eager.close(); // the sink owns the store that owns the server
}
