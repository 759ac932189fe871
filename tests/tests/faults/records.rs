//! Success records while clocks step, servers reject writes, and connections end.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use distlock::observer::{self, Event, RecordOutcome};
use distlock::{Error, Lock, LockManager, RunOutcome, SkipReason};
use distlock_tests::{After, RedisServer, Resp, eventually, within};

use crate::replicas::{primary, replica_of};
use crate::support::{
    LONG, connect, hold, leftovers, lock_key, ms, ok, queue_key, until_queued, warm,
};

const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
const RECORD: &str = "distlock:done::{k}";

fn hourly(manager: &LockManager) -> Lock {
    manager.lock("k").once_per(HOUR).wait(LONG)
}

/// Returns when the work last succeeded, or `None` if it ran now.
async fn last_success(lock: &Lock) -> Option<SystemTime> {
    match lock.try_run(async |_| Ok::<_, Error>(())).await.unwrap() {
        RunOutcome::Completed(()) => None,
        RunOutcome::Skipped(SkipReason::AlreadyRan { last_success, .. }) => Some(last_success),
        other => panic!("{other:?}"),
    }
}

/// P5: a record from the future would stop the job until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_backward_step_the_job_is_stopped_for_one_period_only() {
    let server = RedisServer::builder().own_clock().start();
    let lock = hourly(&connect(&server.url()).await);
    assert_eq!(last_success(&lock).await, None);
    server.step_clock(false, YEAR);
    let lowered = last_success(&lock).await.expect("the period is not over");
    assert!(lowered < SystemTime::now() - YEAR + HOUR / 2, "{lowered:?}");
    server.step_clock(false, YEAR - HOUR / 2);
    assert_eq!(last_success(&lock).await, Some(lowered));
    server.step_clock(false, YEAR - HOUR);
    assert_eq!(last_success(&lock).await, None);
}

/// Documented: the period is that of the server's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forward_step_opens_the_period() {
    let server = RedisServer::builder().own_clock().start();
    let lock = hourly(&connect(&server.url()).await);
    assert_eq!(last_success(&lock).await, None);
    // The period is shorter by a slack of a minute (P7).
    server.step_clock(true, HOUR - ms(120_000));
    assert!(last_success(&lock).await.is_some());
    server.step_clock(true, HOUR - ms(59_000));
    assert_eq!(last_success(&lock).await, None);
    // Counted from that run, not from the first.
    server.step_clock(true, HOUR + ms(120_000));
    assert!(last_success(&lock).await.is_some());
}

/// Returns a manager, and the outcomes of its successes.
async fn observed(url: &str) -> (LockManager, Arc<std::sync::Mutex<Vec<RecordOutcome>>>) {
    let outcomes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = outcomes.clone();
    let observer = observer::from_fn(move |event: &Event| {
        if let Event::SuccessRecorded { outcome, .. } = event {
            seen.lock().unwrap().push(*outcome);
        }
    });
    let builder = LockManager::builder().add_observer(observer);
    (within(LONG, builder.connect(url)).await.unwrap(), outcomes)
}

/// Runs the work while something happens to the server, and returns the outcome of its record.
async fn recorded_under(during: impl FnOnce(&RedisServer, &mut Resp)) -> RecordOutcome {
    let server = RedisServer::start();
    let (manager, outcomes) = observed(&server.url()).await;
    let lock = hourly(&manager).lease(ms(1_000));
    let result = lock.run(async |held| {
        during(&server, &mut server.client());
        held.check()
    });
    result.await.unwrap();
    eventually(LONG, || !outcomes.lock().unwrap().is_empty());
    let outcomes = outcomes.lock().unwrap();
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_success_is_reported_as_recorded_or_not() {
    let outcome = recorded_under(|_, _| {}).await;
    assert_eq!(outcome, RecordOutcome::Recorded);
    let out_of_memory = |_: &RedisServer, raw: &mut Resp| {
        ok(raw, &["CONFIG", "SET", "maxmemory", "1"]);
    };
    let outcome = recorded_under(out_of_memory).await;
    assert_eq!(
        outcome,
        RecordOutcome::Recorded,
        "a release works then, too"
    );
    for value in foreign_records() {
        let foreign = |_: &RedisServer, raw: &mut Resp| ok(raw, &["SET", RECORD, &value]);
        let outcome = recorded_under(foreign).await;
        assert_eq!(outcome, RecordOutcome::Refused, "{value}");
    }
    let outcome = recorded_under(|server, _| server.kill()).await;
    assert_eq!(outcome, RecordOutcome::Unknown);
}

/// Returns a record of a run that acquired the lock at this time.
fn record_of(since: SystemTime) -> String {
    let micros = since.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let micros = micros.as_micros();
    format!("1 {micros} 3600000 {micros} {micros} web-1:4711")
}

/// Returns values that distlock did not write, the last ones with the year 3,000,000.
fn foreign_records() -> Vec<String> {
    let texts = [
        "foreign",
        "",
        "1 5 hello",
        "1 05 1 5 5 web",
        "1 5 1 5 05 web",
    ];
    let mut values: Vec<_> = texts.into_iter().map(str::to_owned).collect();
    values.push(record_of(SystemTime::now() + 11 * YEAR));
    let far = "94670856000000000000";
    for [since, gap, finished] in [[far, "1", "5"], ["5", far, "5"], ["5", "1", far]] {
        values.push(format!("1 {since} {gap} 5 {finished} web"));
    }
    values
}

/// A value that distlock did not write is neither overwritten nor deleted, stops the job with its
/// name, and does not hide the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_value_at_the_record_is_a_conflict() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let lock = hourly(&manager);
    let strings = foreign_records().into_iter().map(|value| ("SET", value));
    for (command, value) in strings.chain([("SADD", "foreign".to_owned())]) {
        raw.cmd(&["DEL", RECORD]);
        raw.cmd(&[command, RECORD, &value]);
        let before = raw.cmd(&["DUMP", RECORD]);
        let result = lock.run(async |_| -> Result<(), Error> { panic!("it ran") });
        let error = result.await.unwrap_err();
        let deleted = manager.delete_record("k", None).await.unwrap_err();
        for error in [error, deleted] {
            assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
            assert!(error.to_string().contains(RECORD), "{error}");
        }
        let _held = manager.lock("k").acquire().await.unwrap();
        let seen = manager.inspect("k").await.unwrap();
        assert_eq!(
            (seen.holders.len(), seen.last_success),
            (1, None),
            "{value}"
        );
        let conflict = seen.record_conflict.expect(&value);
        assert!(conflict.contains(RECORD), "{conflict}");
        assert_eq!(raw.cmd(&["DUMP", RECORD]), before, "{value}");
    }
    // The clock was ahead.
    ok(
        &mut raw,
        &["SET", RECORD, &record_of(SystemTime::now() + 9 * YEAR)],
    );
    assert!(last_success(&lock).await.is_some());
    assert_eq!(manager.inspect("k").await.unwrap().record_conflict, None);
    assert!(manager.delete_record("k", None).await.unwrap());
    assert_eq!(last_success(&lock).await, None);
}

/// The reply to the release is lost, and its repeat finds the record. The record lasts for two
/// periods, and longer than a grant (P8).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_release_does_not_record_again() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let (manager, outcomes) = observed(&url).await;
    let mut raw = server.client();
    // The server knows the scripts from the first run.
    let other = manager.lock("other").once_per(HOUR);
    other.run(async |_| Ok::<_, Error>(())).await.unwrap();
    let lock = hourly(&manager).lease(ms(9_000));
    let result = lock.run(async |_| {
        proxy.swallow_reply_to(RECORD, After::Reset);
        Ok::<_, Error>(())
    });
    result.await.unwrap();
    let written = raw.get(RECORD);
    assert!(written.is_some());
    eventually(LONG, || outcomes.lock().unwrap().len() == 2);
    assert_eq!(*outcomes.lock().unwrap(), [RecordOutcome::Recorded; 2]);
    assert_eq!(raw.get(RECORD), written);
    let ttl = raw.cmd(&["PTTL", RECORD]).int();
    assert!(ttl > 7_140_000 && ttl <= 7_202_000, "{ttl}");
}

/// P1 and P10: a hold that ended before its work records nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_hold_records_nothing() {
    let server = RedisServer::start();
    let (manager, outcomes) = observed(&server.url()).await;
    let mut raw = server.client();
    let lock = hourly(&manager).lease(ms(9_000));
    let result = lock.run(async |_| {
        raw.cmd(&["DEL", "distlock:lock:{k}"]);
        Ok::<_, Error>(())
    });
    assert!(result.await.unwrap_err().is_lost());
    let lost = hourly(&manager).max_hold(ms(20));
    let result = lost.run(async |_| pending::<Result<(), Error>>().await);
    assert!(result.await.unwrap_err().is_lost());
    assert_eq!(raw.cmd(&["EXISTS", RECORD]).int(), 0);
    manager.shutdown().await;
    assert_eq!(*outcomes.lock().unwrap(), [RecordOutcome::Refused]);
}

/// The work succeeds elsewhere after a first acquire that queued the call, and whose reply was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_work_has_run_leaves_the_queue() {
    let server = RedisServer::start();
    warm(&server).await;
    let mut raw = server.client();
    let plain = connect(&server.url()).await;
    assert_eq!(last_success(&hourly(&plain)).await, None);
    let record = raw.get(RECORD).unwrap();
    raw.cmd(&["DEL", RECORD]);
    let guard = hold(&plain, "k", ms(30_000)).await;
    let proxy = server.proxy();
    let manager = connect(&server.url_via(&proxy)).await;
    proxy.swallow_reply_to(&lock_key("k"), After::Silence);
    // Otherwise the call could acquire again before there is a record.
    proxy.refuse_connections(true);
    // An entry that is left stays longer than the test waits.
    let lock = hourly(&manager).wait(ms(600_000));
    let call = tokio::spawn(async move { last_success(&lock).await });
    until_queued(&mut raw, "k", 1).await;
    ok(&mut raw, &["SET", RECORD, &record, "EX", "7200"]);
    proxy.refuse_connections(false);
    assert!(within(LONG, call).await.unwrap().is_some());
    assert_eq!(proxy.stats().replies_swallowed, 1);
    eventually(LONG, || !raw.exists(&queue_key("k")));
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// Replicas acknowledge a lock. A call that finds a record takes none, and waits for no replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_found_without_replicas() {
    let primary = primary();
    let replica = replica_of(&primary).await;
    let mut raw = primary.client();
    let builder = LockManager::builder().min_replicas(1);
    let lock = hourly(&builder.connect(&primary.url()).await.unwrap());
    assert_eq!(last_success(&lock).await, None);
    replica.stop_process();
    assert!(last_success(&lock.wait(ms(0))).await.is_some());
    assert_eq!(leftovers(&mut raw), [RECORD]);
}
