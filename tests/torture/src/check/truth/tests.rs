use super::*;
use crate::check::testing::Server;

const MS: Nanos = 1_000_000;

#[test]
fn a_lock_ends_by_release_by_expiry_and_by_amnesia() {
    let mut server = Server::default();
    server.take(10, "k", "a:1", 100, 50);
    server.release(30, "k", "a:1");
    server.take(40, "k", "a:2", 101, 50);
    server.look(200, "a"); // 90: expired
    server.take(210, "k", "b:1", 102, 500);
    server.amnesia(300);
    let (truth, _) = server.replay();
    let ends: Vec<_> = truth
        .locks
        .iter()
        .map(|l| (l.span.from / MS, l.span.until / MS, l.end))
        .collect();
    assert_eq!(
        ends,
        [
            (10, 30, End::Deleted),
            (40, 90, End::Expired),
            (210, 300, End::Forgotten)
        ]
    );
    assert!(truth.breaches.is_empty());
    assert!(truth.passed.is_empty());
}

#[test]
fn a_hand_over_is_pushed_and_its_confirmation_is_seen() {
    let mut server = Server::default();
    server.take(10, "k", "a:1", 100, 500);
    server.queue(20, "k", "b:1");
    server.hand_over(30, "k", "a:1", "b:1", 101, 400);
    server.confirm(35, "k", "b:1", 1000);
    server.release(50, "k", "b:1");
    let (truth, _) = server.replay();
    assert!(!truth.locks[0].pushed && !truth.locks[0].confirmed);
    assert!(truth.locks[1].pushed && truth.locks[1].confirmed);
    assert_eq!(truth.grants, 1);
    let entry = &truth.entries[0];
    assert_eq!(entry.span, Span::new(20 * MS, 35 * MS));
    assert!(truth.breaches.is_empty() && truth.passed.is_empty());
}

#[test]
fn what_happened_in_a_gap_is_not_known() {
    let mut server = Server::default();
    server.take(10, "k", "a:1", 100, 1000);
    server.queue(20, "k", "b:1");
    server.gap(30, 60);
    server.take(70, "k", "c:1", 101, 1000);
    let (truth, _) = server.replay();
    assert_eq!(truth.locks[0].end, End::Unknown);
    assert!(truth.entries[0].open);
    assert!(truth.breaches.is_empty() && truth.passed.is_empty());
    assert!(truth.gaps_at(0).touches(Span::new(40 * MS, 40 * MS)));
}

#[test]
fn a_gap_of_some_keys_is_nothing_to_others() {
    let mut server = Server::default();
    server.take(10, "here", "a:1", 100, 1000);
    server.take(11, "there", "a:2", 101, 1000);
    server.gap_at(30, 60, "there");
    server.release(70, "here", "b:1");
    server.release(71, "there", "b:2");
    let (truth, keys) = server.replay();
    let at = |name| keys.known(name).unwrap();
    let then = Span::new(40 * MS, 40 * MS);
    assert!(truth.gaps_at(at("there")).touches(then));
    assert!(!truth.gaps_at(at("here")).touches(then));
    assert_eq!(truth.gap_count, 1);
    let ends: Vec<_> = truth.locks.iter().map(|lock| lock.end).collect();
    assert_eq!(ends, [End::Deleted, End::Unknown]);
    // Another's release of the one that is known to be held.
    assert_eq!(truth.breaches.len(), 1);
    assert_eq!(truth.breaches[0].key, at("here"));
}

/// A lock goes with its slot from server 0 to server 1, whose scripts run at the same time.
#[test]
fn what_is_at_a_key_is_one_thing_wherever_it_is() {
    let mut from = Server::default();
    from.take(10, "k", "a:1", 100, 1000);
    from.queue(20, "k", "b:1");
    // It goes on while the other server has it.
    from.script(60, "ask", "c:9");
    let mut to = Server::default();
    to.extend(40, "k", "renew", "a:1 100", 2000);
    to.script(60, "release", "a:1");
    for (releases, breaches) in [("a:1", 0), ("b:7", 1)] {
        let mut to = to.clone();
        to.hand_over(50, "k", releases, "b:1", 101, 400);
        let mut keys = Names::default();
        let mut replay = Replay::new(&mut keys, 60_000 * MS);
        let each = [&from, &to].into_iter().enumerate();
        let mut all: Vec<_> = each
            .flat_map(|(number, server)| server.events.iter().map(move |event| (number, event)))
            .collect();
        all.sort_by_key(|(_, event)| event.at());
        for (number, event) in all {
            replay.push_from(number, event.clone());
        }
        let truth = replay.finish();
        assert_eq!(truth.breaches.len(), breaches, "{:?}", truth.breaches);
        assert_eq!(truth.locks[0].promised / MS, 2040);
        assert!(truth.locks[1].pushed);
        assert_eq!(truth.entries[0].span.from, 20 * MS);
        let taken: Vec<_> = truth.taken.into_iter().collect();
        assert_eq!(taken, [(0, 1), (1, 1)]);
    }
}

#[test]
fn a_lock_that_nobody_touched_survives_a_clock_that_steps_forward_and_back() {
    for (ahead_ms, ends, promised) in [(0, End::Deleted, 2040), (5_000, End::Expired, 1010)] {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 1000);
        server.ahead_ms = 5_000;
        server.look(20, "a");
        server.ahead_ms = ahead_ms;
        server.extend(40, "k", "renew", "a:1 100", 2000);
        server.release(50, "k", "a:1");
        let (truth, _) = server.replay();
        assert_eq!(truth.locks[0].end, ends, "{ahead_ms}");
        assert_eq!(truth.locks[0].promised / MS, promised, "{ahead_ms}");
        assert_eq!(truth.breaches.len(), 0);
    }
}

#[test]
fn a_clock_that_steps_forward_ends_locks() {
    let mut server = Server::default();
    server.take(10, "k", "a:1", 100, 1000);
    server.ahead_ms = 5_000;
    server.look(20, "a");
    let (truth, _) = server.replay();
    assert_eq!(truth.locks[0].end, End::Expired);
    assert_eq!(truth.locks[0].span.until / MS, 10);
}

#[test]
fn a_node_serves_the_lowest_ticket_and_not_the_first() {
    for (served, passed) in [("c:1", 0), ("b:1", 1)] {
        let mut server = Server::default();
        server.vote(10, "k", "a:1", 100, 500);
        server.queue_with(20, "k", "b:1", 8);
        server.queue_with(30, "k", "c:1", 7);
        server.release(40, "k", "a:1");
        server.vote(40, "k", served, 101, 500);
        assert_eq!(server.replay().0.passed.len(), passed, "{served}");
    }
}

#[test]
fn who_confirms_is_not_served_again() {
    let mut server = Server::default();
    server.vote(10, "k", "a:1", 100, 500);
    server.queue_with(20, "k", "b:1", 1);
    server.set_by(30, "k", "confirm_vote", "a:1", "a:1", 105, 900);
    let (truth, _) = server.replay();
    assert!(truth.passed.is_empty());
    assert!(truth.locks[0].vote && !truth.locks[1].vote);
}
