//! Semaphores and readers-writer locks on the command line.

use distlock::LockKind;
use distlock_tests::RedisServer;

use crate::support::{code, distlock, manager, named, object, output, page, refused, shell, text};

/// Runs while the test holds a part of the lock, or is refused.
#[tokio::test]
async fn commands_run_next_to_other_holders_or_are_refused() {
    let server = RedisServer::start();
    let locks = manager(&server.url()).await;
    let _permit = locks
        .semaphore("permits", 2)
        .acquire()
        .await
        .expect("a free permit");
    let _read = locks.rw_lock("rw").read().await.expect("a free lock");
    let script = "echo token:$DISTLOCK_FENCING_TOKEN";
    for (line, token) in [
        ("run --wait 0 --permits 2 permits", false),
        ("run --wait 0 --permits 3 --weight 2 permits", false),
        ("run --wait 0 --read rw", true),
        ("run --wait 0 --write another", true),
        ("run --wait 0 --permits 3 --weight 3 third", false),
    ] {
        let mut command = shell(&server.url(), line, script);
        // Not that of an outer lock.
        command.env("DISTLOCK_FENCING_TOKEN", "7");
        let ended = output(&mut command);
        assert!(ended.status.success(), "{line}: {ended:?}");
        let printed = text(&ended.stdout);
        let printed = printed.trim().trim_start_matches("token:");
        assert_eq!(
            !printed.is_empty() && printed != "7",
            token,
            "{line}: {printed}"
        );
    }
    for (line, expected, part) in [
        (
            "run --wait 0 --permits 2 --weight 2 permits -- true",
            116,
            "is busy",
        ),
        ("run --wait 0 --write rw -- true", 116, "is busy"),
        (
            "run --wait 0 permits -- true",
            119,
            "cannot be used as a mutex",
        ),
        (
            "run --wait 0 --read permits -- true",
            119,
            "semaphore with 3 permits",
        ),
        ("run --permits 0 k -- true", 2, "1..=1000"),
        ("run --permits 3 --weight 4 k -- true", 2, "weight is 4"),
        ("run --weight 2 k -- true", 2, "--permits"),
        ("run --read --write k -- true", 2, "--write"),
        ("run --read --permits 2 k -- true", 2, "--permits"),
    ] {
        refused(&mut distlock(&server.url(), line), expected, &[part]);
    }
}

/// The revoked holder stops while the command waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_are_shown_with_their_mode_or_permits_and_revoked_by_name() {
    let server = RedisServer::start();
    let (first, second) = (
        named(&server.url(), "first").await,
        named(&server.url(), "second").await,
    );
    let lost = first
        .semaphore("permits", 3)
        .acquire_many(2)
        .await
        .expect("free permits");
    let kept = second
        .semaphore("permits", 3)
        .acquire()
        .await
        .expect("a free permit");
    let _read = first.rw_lock("rw").read().await.expect("a free lock");

    let listed = page(&mut distlock(&server.url(), "list"));
    assert!(
        listed.contains(", 1 more") && listed.contains("first (read)"),
        "{listed}"
    );
    let shown = page(&mut distlock(&server.url(), "inspect permits"));
    for part in [
        "semaphore with 3 permits",
        "first (2 of 3)",
        "second (1 of 3)",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let inspected = object(&mut distlock(&server.url(), "--json inspect permits"));
    assert_eq!(
        (&inspected["kind"], &inspected["permits"]),
        (&"semaphore".into(), &3.into())
    );
    assert!(
        inspected["holders"][0]["fencing_token"].is_null(),
        "{inspected}"
    );
    let inspected = object(&mut distlock(&server.url(), "--json inspect rw"));
    assert_eq!(inspected["holders"][0]["kind"], "read", "{inspected}");

    let revoking = tokio::spawn(async move { lost.lost().await });
    let unlocked = object(&mut distlock(
        &server.url(),
        "--json unlock --holder first permits",
    ));
    assert_eq!(unlocked["outcome"], "released", "{unlocked}");
    assert_eq!(unlocked["holders"][0]["client"], "first");
    assert!(unlocked["fencing_token"].is_null(), "{unlocked}");
    assert!(revoking.await.expect("no panic").is_lost());
    assert!(kept.is_held());
    let absent = text(
        &output(&mut distlock(
            &server.url(),
            "unlock --holder first permits",
        ))
        .stdout,
    );
    assert!(absent.contains("is not held by first"), "{absent}");
    let state = first.inspect("permits").await.expect("a reply");
    assert_eq!(state.kind, Some(LockKind::Semaphore { permits: 3 }));
    assert_eq!(
        code(&mut distlock(
            &server.url(),
            "run --permits 3 --weight 2 permits -- true"
        ))
        .0,
        0
    );
}
