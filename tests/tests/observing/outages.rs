//! A server that stops and returns, and its connections.

use distlock::observer::{Connection, Event};
use distlock_tests::eventually_async;

use crate::support::{LONG, Store, ms};

fn up(connection: Connection) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::ConnectionUp { connection: this, downtime: Some(_), .. } if *this == connection)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_and_its_end_are_reported() {
    let store = Store::redis();
    let (manager, notes) = store.observed().await;
    let server = store.server();
    let address = format!("127.0.0.1:{}", server.port());
    for connection in [Connection::Commands, Connection::Renewals] {
        let first = notes.until_any(
            move |event| matches!(event, Event::ConnectionUp { connection: this, downtime: None, .. } if *this == connection),
        );
        first.await;
    }
    server.kill();
    let lost = notes.until_any(|event| matches!(event, Event::StoreUnavailable { .. }));
    let Event::StoreUnavailable {
        address: lost,
        detail,
        ..
    } = lost.await
    else {
        unreachable!()
    };
    assert!(lost.contains(&address), "{lost}");
    assert!(!detail.is_empty());
    let error = manager.lock("k").wait(ms(300)).acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    notes
        .until("k", &["acquiring", "not acquired unavailable"])
        .await;
    server.restart();
    let back = notes.until_any(|event| matches!(event, Event::StoreAvailable { .. }));
    back.await;
    for connection in [Connection::Commands, Connection::Renewals] {
        notes.until_any(up(connection)).await;
    }
    let down = |event: &Event| matches!(event, Event::ConnectionDown { .. });
    let ups = |event: &Event| matches!(event, Event::ConnectionUp { .. });
    manager.shutdown().await;
    // Every connection that came up also went down.
    eventually_async(LONG, async || {
        let all = notes.all();
        let count = |is_it: fn(&Event) -> bool| all.iter().filter(|event| is_it(event)).count();
        count(ups) == count(down)
    })
    .await;
    let lost = notes.all();
    let lost = lost
        .iter()
        .filter(|event| matches!(event, Event::StoreUnavailable { .. }));
    assert_eq!(lost.count(), 1, "an outage is reported once");
}
