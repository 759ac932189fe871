//! Leases, tokens, and the removal of old state.

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
    assert_eq!(b.inspect("k").queue_length, 1, "it is no longer queued");
    world.clock.advance(Timing::new(LEASE).ttl() - ms(1));
    assert_eq!(b.confirm("k", 1), Some(token));
    world.clock.advance(Timing::new(LEASE).ttl());
    assert_eq!(b.confirm("k", 1), None);
}

#[test]
fn every_key_expires() {
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
    // A quiet server needs some calls to notice; a server with only new keys does not grow forever.
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
