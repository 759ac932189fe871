//! A holder that is frozen past its lease between its read and its write.

use distlock::{Error, LockGuard};
use distlock_tests::{PostgresServer, Worker, child_args, is_child, this_test_binary, within};
use sqlx::Connection as _;
use tokio::runtime::Handle;

use crate::postgres::support::{Raw, client, installed};
use crate::support::{LONG, connect, hold, ms, tried};

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// What the caller does about the lock in its transaction: nothing, `check_in` before it reads or
/// after it has written, or `commit`.
const WAYS: [&str; 4] = ["nothing", "first", "last", "commit"];

#[test]
fn entry() {
    if !is_child() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let args = child_args();
        let [library, way, level, url, key] = args.as_slice() else {
            panic!("wrong arguments: {args:?}");
        };
        let guard = hold(&connect(url).await, key, ms(1_000)).await;
        let done = match library.as_str() {
            "sqlx" => by_sqlx(guard, way, level, url, key).await,
            _ => by_tokio_postgres(guard, way, level, url, key).await,
        };
        println!(
            "end {}",
            done.map_or_else(|error| error, |()| "committed".to_owned())
        );
    });
}

/// Prints what was read, and waits for a line of the test, which freezes the process meanwhile.
fn pause(read: i64) {
    println!("read {read}");
    std::io::stdin()
        .read_line(&mut String::new())
        .expect("a line");
}

fn read_text(key: &str) -> String {
    format!("select value from counter where key = '{key}'")
}

fn write_text(key: &str, value: i64) -> String {
    format!("update counter set value = {value} where key = '{key}'")
}

/// Returns how a failed transaction ends.
fn failed(error: &Error) -> String {
    match error {
        Error::Lost { .. } => "lost".into(),
        other => other.to_string(),
    }
}

/// Increments a number in a row.
async fn by_tokio_postgres(
    guard: LockGuard,
    way: &str,
    level: &str,
    url: &str,
    key: &str,
) -> Result<(), String> {
    let mut client = client(url).await;
    let begin = format!("set session characteristics as transaction isolation level {level}");
    client.batch_execute(&begin).await.unwrap();
    let read = async |client: &tokio_postgres::Client| {
        let row = client.query_one(&read_text(key), &[]).await.unwrap();
        row.get::<_, i64>(0)
    };
    // In the other ways, a transaction of its own.
    let before = (way != "first").then_some(read(&client).await);
    if let Some(before) = before {
        pause(before);
    }
    let mut transaction = client.transaction().await.unwrap();
    let value = match before {
        Some(before) => before,
        None => {
            guard
                .check_in(&mut transaction)
                .await
                .map_err(|error| failed(&error))?;
            let row = transaction.query_one(&read_text(key), &[]).await.unwrap();
            pause(row.get(0));
            row.get(0)
        }
    };
    let written = transaction.execute(&write_text(key, value + 1), &[]).await;
    written.map_err(|error| format!("{error:?}"))?;
    match way {
        "last" => guard
            .check_in(&mut transaction)
            .await
            .map_err(|error| failed(&error))?,
        "commit" => {
            return guard
                .commit(transaction)
                .await
                .map_err(|error| failed(&error));
        }
        _ => {}
    }
    transaction
        .commit()
        .await
        .map_err(|error| error.to_string())
}

/// The same with the other library.
async fn by_sqlx(
    guard: LockGuard,
    way: &str,
    level: &str,
    url: &str,
    key: &str,
) -> Result<(), String> {
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    let begin = format!("set session characteristics as transaction isolation level {level}");
    sqlx::raw_sql(&begin)
        .execute(&mut connection)
        .await
        .unwrap();
    let text = read_text(key);
    let mut value = 0;
    if way != "first" {
        value = sqlx::query_scalar(&text)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        pause(value);
    }
    let mut transaction = connection.begin().await.unwrap();
    if way == "first" {
        guard
            .check_in(&mut transaction)
            .await
            .map_err(|error| failed(&error))?;
        value = sqlx::query_scalar(&text)
            .fetch_one(&mut *transaction)
            .await
            .unwrap();
        pause(value);
    }
    let text = write_text(key, value + 1);
    sqlx::raw_sql(&text)
        .execute(&mut *transaction)
        .await
        .map_err(|error| error.to_string())?;
    match way {
        "last" => guard
            .check_in(&mut transaction)
            .await
            .map_err(|error| failed(&error))?,
        "commit" => {
            return guard
                .commit(transaction)
                .await
                .map_err(|error| failed(&error));
        }
        _ => {}
    }
    transaction
        .commit()
        .await
        .map_err(|error| error.to_string())
}

/// Two increments under the lock, the first of them frozen. Returns how the first one ended, and
/// the number.
async fn race(library: &str, way: &str, level: &str, url: &str, raw: &Raw) -> (String, i64) {
    let key = format!("{library}-{way}-{}", level.replace(' ', "-"));
    raw.sql(&format!("insert into counter values ('{key}', 0)"))
        .await;
    let arguments = [library, way, level, url, &key];
    let mut frozen = Worker::spawn(&mut this_test_binary(
        "postgres::lost_update::entry",
        &arguments,
    ));
    assert_eq!(frozen.expect_line("read", LONG), "0");
    frozen.stop_process();
    let other = connect(url).await;
    let increment = async {
        let guard = hold(&other, &key, LONG).await;
        let text = format!("update counter set value = value + 1 where key = '{key}'");
        raw.sql(&text).await;
        guard.release().await.unwrap();
    };
    if way == "first" {
        let name = format!("distlock:lock:{key}");
        let live = format!(
            "select count(*) from distlock.hold where key = '{name}' and expires > clock_timestamp()"
        );
        distlock_tests::eventually_async(LONG, async || raw.number(&live).await == 0).await;
        assert!(tried(&other.lock(&key)).await.is_none(), "it is checked in");
    } else {
        within(LONG, increment).await;
        frozen.cont_process();
        frozen.send("go");
        let end = frozen.expect_line("end", LONG);
        return (end, value(raw, &key).await);
    }
    frozen.cont_process();
    frozen.send("go");
    let end = frozen.expect_line("end", LONG);
    within(LONG, increment).await;
    (end, value(raw, &key).await)
}

async fn value(raw: &Raw, key: &str) -> i64 {
    raw.number(&read_text(key)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_a_check_or_a_commit_prevents_it() {
    // Every race has two clients and three sessions of its own.
    let builder = PostgresServer::builder().setting("max_connections", "400");
    let server = installed(builder).await;
    let raw = Raw::connect(&server).await;
    raw.sql("create table counter (key text primary key, value bigint not null)")
        .await;
    let mut races = Vec::new();
    for library in ["tokio-postgres", "sqlx"] {
        for way in WAYS {
            for level in LEVELS {
                let (url, raw, handle) =
                    (server.url(), Raw::connect(&server).await, Handle::current());
                let race = tokio::task::spawn_blocking(move || {
                    handle.block_on(race(library, way, level, &url, &raw))
                });
                races.push((library, way, level, race));
            }
        }
    }
    for (library, way, level, race) in races {
        let (end, value) = race.await.unwrap();
        println!("{library}, {way}, {level}: {end}, {value}");
        match way {
            // Both believe that they have succeeded.
            "nothing" => assert_eq!((&*end, value), ("committed", 1)),
            "first" => assert_eq!((&*end, value), ("committed", 2)),
            // The other one has succeeded.
            _ => assert_eq!((&*end, value), ("lost", 1)),
        }
    }
}
