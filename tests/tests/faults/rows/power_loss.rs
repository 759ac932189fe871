//! A server with `appendfsync everysec` loses power, so the end of its log is never written.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use distlock_tests::{RedisServer, eventually_async, within};

use crate::support::{LONG, SLACK, connect, expiry_after_renewal, lock_key, ms, until_clean};

/// Returns the end of the log, which is all of it before Redis 7.0.
fn log_of(server: &RedisServer) -> PathBuf {
    let names = ["appendonlydir/appendonly.aof.1.incr.aof", "appendonly.aof"];
    let logs = names.map(|name| server.dir().join(name));
    let log = logs.into_iter().find(|log| log.exists());
    log.expect("the server writes a log")
}

fn length(log: &PathBuf) -> u64 {
    fs::metadata(log).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_second_of_the_log_is_detected_and_tokens_rise() {
    let server = RedisServer::builder()
        .args(["--appendonly", "yes", "--appendfsync", "everysec"])
        .start();
    let log = log_of(&server);
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = ms(9_000);
    // The server remembers this acquisition: its token is the one known afterwards.
    let lock = first.lock("k").lease(lease).wait(LONG);
    let remembered = {
        let guard = lock.acquire().await.unwrap();
        let token = guard.fencing_token();
        guard.release().await.unwrap();
        token
    };
    let mut raw = server.client();
    // While the disk is busy, the server holds back its writes for a while.
    eventually_async(LONG, async || raw.info_field("aof_buffer_length") == "0").await;
    let written = length(&log);
    let guard = lock.acquire().await.unwrap();
    expiry_after_renewal(&mut raw, "k").await;
    eventually_async(LONG, async || length(&log) > written).await;
    server.kill();
    // Cuts the log in the middle of the first write without a flush, the acquisition.
    let cut = fs::File::options().write(true).open(&log).unwrap();
    cut.set_len(written + 3).unwrap();
    server.restart();
    let back = Instant::now();
    let mut raw = server.client();
    let fence = raw.get("distlock:fence:{k}").expect("the earlier token");
    assert_eq!(fence, remembered.to_string());
    // Documented: the acknowledged lock is forgotten, and may be granted again.
    let rival = second.lock("k").lease(lease).wait(LONG);
    let rival = rival.acquire().await.unwrap();
    assert!(rival.fencing_token() > guard.fencing_token());
    within(LONG, guard.lost()).await;
    assert!(
        back.elapsed() < lease / 3 + ms(500) + SLACK,
        "notified after {:?}",
        back.elapsed()
    );
    assert!(guard.release().await.unwrap_err().is_lost());
    let value = raw.get(&lock_key("k")).expect("the rival's");
    assert!(value.contains(&rival.fencing_token().to_string()));
    rival.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}
