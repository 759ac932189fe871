//! As many servers are away as may be: nothing costs a deadline, and who comes back has a vote again.

use crate::kit::{LONG, acquire_later, give_back, ms};
use crate::quorum::{connect, three, until_clean, until_queued_at};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_may_be_dead_or_frozen() {
    for is_frozen in [false, true] {
        let quorum = three();
        let managers = [connect(&quorum).await, connect(&quorum).await];
        // Held before, and renewed at the other two.
        let held = managers[0]
            .lock("held")
            .lease(ms(900))
            .acquire()
            .await
            .unwrap();
        if is_frozen {
            quorum.server(1).stop_process();
        } else {
            quorum.server(1).kill();
        }
        let mut last = None;
        for number in 0..20 {
            let lock = managers[number % 2].lock("k").wait(LONG);
            let guard = lock.acquire().await.unwrap();
            assert!(Some(guard.fencing_token()) > last);
            last = Some(guard.fencing_token());
            guard.release().await.unwrap();
        }
        let guard = managers[0].lock("k").acquire().await.unwrap();
        let waiting = acquire_later(&managers[1], "k", ms(5_000), LONG);
        until_queued_at(&quorum, 0, "k", 1).await;
        guard.release().await.unwrap();
        give_back(waiting).await;
        tokio::time::sleep(ms(1_800)).await;
        held.release().await.unwrap();
        if is_frozen {
            quorum.server(1).cont_process();
        }
        until_clean(&quorum).await;
    }
}
