//! Leases, min_hold, tokens, and what is forgotten.

use super::*;

#[test]
fn a_confirmed_grant_lasts_for_the_full_lease() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    a.take("k", 1);
    b.queue("k", 1);
    b.queue("k", 2);
    a.release("k", 1);
    let token = b.grants.lock().unwrap().pop().unwrap().token.get();
    assert_eq!(a.confirm("k", 1), None, "it is not this client's");
    world.clock.advance(GRANT - ms(1));
    assert_eq!(b.confirm("k", 1), Some(token));
    assert_eq!(b.inspect("k").waiters, 1, "it stands in the queue no more");
    world.clock.advance(Timing::new(LEASE).ttl() - ms(1));
    assert_eq!(b.confirm("k", 1), Some(token));
    world.clock.advance(Timing::new(LEASE).ttl());
    assert_eq!(b.confirm("k", 1), None);
}

#[test]
fn asking_again_takes_the_grant() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    a.take("k", 1);
    b.queue("k", 1);
    a.release("k", 1);
    let token = b.grants.lock().unwrap().pop().unwrap().token.get();
    world.clock.advance(ms(1_000));
    assert_eq!(b.take("k", 1), token);
    assert_eq!(b.inspect("k").waiters, 0);
    world.clock.advance(Timing::new(LEASE).ttl() - ms(1));
    assert_eq!(b.take("k", 1), token);
}

#[test]
fn a_hold_is_cut_to_what_its_holder_first_said() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    a.ask_with("k", 1, ms(1_000), Duration::ZERO);
    a.ask_with("k", 1, LEASE, Duration::ZERO);
    b.try_once("k", 1);
    let left = world.server.snapshot(&key("k")).hold.unwrap().left;
    assert_eq!(left, Timing::new(ms(1_000)).ttl());
}

#[test]
fn tokens_rise_whatever_happens() {
    let world = World::new();
    let a = world.client();
    let mut last = 0;
    let mut next = |owner: Owner| {
        let token = a.take("k", owner);
        assert!(token > last, "{token} follows {last}");
        last = token;
    };
    next(1);
    a.release("k", 1);
    next(2); // in the same microsecond
    world.clock.advance(Timing::new(LEASE).ttl());
    next(3); // after an expiry
    a.release("k", 3);
    world.clock.step_wall_back(Duration::from_secs(3_600));
    next(4);
    a.release("k", 4);
    // Kept until the wall clock is two hours beyond it, so that going back one is no harm either.
    world.clock.advance(Duration::from_secs(3 * 3_600 - 1));
    assert!(a.inspect("k").last_token.is_some());
    world.clock.step_wall_back(Duration::from_secs(3_600));
    next(5);
}

#[test]
fn nothing_is_kept_for_ever() {
    let world = World::new();
    let a = world.client();
    for n in 0..1_000 {
        let name = format!("used once {n}");
        a.take(&name, n);
        a.release(&name, n);
    }
    assert_eq!(
        world.server.remembered(),
        1_000,
        "tokens are kept for two hours"
    );
    world.clock.advance(Duration::from_secs(2 * 3_600));
    // A quiet server needs some calls to notice; one that only sees new keys does not grow for ever.
    for n in 0..600 {
        a.inspect("another");
        assert!(world.server.remembered() <= 1_000 - n.min(500) * 2);
    }
    assert_eq!(world.server.remembered(), 0);
    for n in 0..20_000 {
        let name = format!("one of many {n}");
        a.take(&name, n);
        a.release(&name, n);
        world.clock.advance(Duration::from_secs(72)); // 100 tokens in two hours
        assert!(
            world.server.remembered() <= 300,
            "{n}: {}",
            world.server.remembered()
        );
    }
}
