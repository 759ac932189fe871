//! The functions in PostgreSQL without one of their rules, and for each rule a check on a real server
//! that notices.

use super::Edit;
use crate::store::postgres::schema::FUNCTIONS;

/// Returns the functions as this process installs them.
#[cfg(sabotage)]
pub(crate) fn functions_in_force() -> String {
    let saboteur = std::env::var("DISTLOCK_SABOTAGE").unwrap_or_default();
    functions(&saboteur)
}

/// Returns the functions with the edits of a saboteur, if it has any.
pub(crate) fn functions(saboteur: &str) -> String {
    let active = EDITS.iter().filter(|edit| edit.saboteur == saboteur);
    active.fold(FUNCTIONS.to_owned(), |source, edit| {
        edit.apply("functions", source)
    })
}

const IN_FUNCTIONS: &[&str] = &["functions"];

const EDITS: &[Edit] = &[
    Edit {
        saboteur: "one-statement",
        scripts: IN_FUNCTIONS,
        passage: "FOR NO KEY UPDATE; -- lock_row, without its call\n",
        replacement: "; -- not locked\n",
    },
    Edit {
        saboteur: "release-unlocked",
        scripts: IN_FUNCTIONS,
        passage: "  PERFORM FROM distlock.lock l WHERE l.key = p_key FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    IF p_cancel_until = 0",
        replacement: "  PERFORM FROM distlock.lock l WHERE l.key = p_key;
  IF NOT FOUND THEN
    IF p_cancel_until = 0",
    },
    Edit {
        saboteur: "time-before-wait",
        scripts: IN_FUNCTIONS,
        passage: "  IF NOT FOUND THEN PERFORM distlock.lock_row(p_key, true); END IF;
  t := clock_timestamp();",
        replacement: "  IF NOT FOUND THEN PERFORM distlock.lock_row(p_key, true); END IF;
  t := now();",
    },
    Edit {
        saboteur: "pinned-taken-over",
        scripts: IN_FUNCTIONS,
        passage: "      FROM distlock.hold h WHERE h.key = p_key AND h.weight > 0;
    IF v_kind <> q.kind",
        replacement:
            "      FROM distlock.hold h WHERE h.key = p_key AND h.weight > 0 AND h.expires > t;
    IF v_kind <> q.kind",
    },
    Edit {
        saboteur: "pinned-taken-over",
        scripts: IN_FUNCTIONS,
        passage: "    FROM distlock.hold h WHERE h.key = p_key AND h.weight > 0;
  IF mine.state IN",
        replacement:
            "    FROM distlock.hold h WHERE h.key = p_key AND h.weight > 0 AND h.expires > t;
  IF mine.state IN",
    },
    Edit {
        saboteur: "pinned-awaited",
        scripts: IN_FUNCTIONS,
        passage: "e.key = p_key AND e.expires <= t FOR UPDATE SKIP LOCKED))",
        replacement: "e.key = p_key AND e.expires <= t FOR UPDATE))",
    },
    Edit {
        saboteur: "check-in-unlocked",
        scripts: IN_FUNCTIONS,
        passage: "AND h.token = p_token FOR KEY SHARE;",
        replacement: "AND h.token = p_token;",
    },
    Edit {
        saboteur: "notify-lost",
        scripts: IN_FUNCTIONS,
        passage: "  PERFORM pg_notify(split_part(r, ' ', 1), substr(r, strpos(r, ' ') + 1)) FROM",
        replacement: "  PERFORM FROM",
    },
    Edit {
        saboteur: "no-tombstone",
        scripts: IN_FUNCTIONS,
        passage: "  IF p_cancel_until > distlock.us(clock_timestamp()) THEN",
        replacement: "    IF false THEN",
    },
];

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::time::Duration;

    use distlock_tests::{PostgresServer, within};
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio_postgres::{AsyncMessage, Client, NoTls, SimpleQueryMessage};

    use super::*;
    use crate::protocol::rules::Rules;
    use crate::store::postgres::schema::TABLES;

    const A: &str = "00000000-0000-0000-0000-00000000000a";
    const B: &str = "00000000-0000-0000-0000-00000000000b";

    /// Much later than now, in microseconds.
    const NEVER: &str = "9000000000000000";

    const SECONDS: Duration = Duration::from_secs(20);

    /// A session, and the messages that it gets.
    struct Session {
        client: Client,
        messages: UnboundedReceiver<String>,
    }

    impl Session {
        async fn open(server: &PostgresServer) -> Session {
            let settings: tokio_postgres::Config = server.url().parse().unwrap();
            let stream = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
            let (client, mut connection) = settings.connect_raw(stream, NoTls).await.unwrap();
            let (sender, messages) = unbounded_channel();
            tokio::spawn(async move {
                while let Some(Ok(message)) =
                    poll_fn(|context| connection.poll_message(context)).await
                {
                    if let AsyncMessage::Notification(message) = message {
                        let _ = sender.send(message.payload().to_owned());
                    }
                }
            });
            client
                .batch_execute("set lock_timeout = '1s'")
                .await
                .unwrap();
            Session { client, messages }
        }

        /// Runs a statement, and returns the first column of its row, or the code of its error.
        async fn query(&self, text: &str) -> String {
            match self.client.simple_query(text).await {
                Ok(messages) => {
                    let row = messages.iter().find_map(|message| match message {
                        SimpleQueryMessage::Row(row) if !row.is_empty() => {
                            row.get(0).map(str::to_owned)
                        }
                        _ => None,
                    });
                    row.unwrap_or_default()
                }
                Err(error) => error
                    .code()
                    .expect("an error of the server")
                    .code()
                    .to_owned(),
            }
        }

        /// Acquires the mutex, and returns the reply.
        async fn acquire(&self, client: &str, ttl: u32, wait: u32, apply_by: &str) -> String {
            let acquire = format!(
                "select reply from distlock.acquire('k', '{client}', null, 1, 'm', 1, 1, {ttl}, {ttl}, {wait}, {apply_by}, \
                 60000, 10, '', null, null, null)"
            );
            self.query(&acquire).await
        }

        async fn release(&self, client: &str, cancel_until: &str) -> String {
            let release = "select was_held from distlock.release_in";
            let rest = "0, 60000";
            self.query(&format!(
                "{release}('k', '{client}', 1, {rest}, {cancel_until}, null, null, null, null)"
            ))
            .await
        }

        /// Begins a transaction that checks in the hold of `A`.
        async fn check_in(&self) {
            let token = self.query("select token from distlock.hold").await;
            self.query("begin").await;
            let check_in = format!("select distlock.check_in('k', '{A}', 1, {token})");
            assert_eq!(self.query(&check_in).await, "t");
        }
    }

    /// Returns the reply to an acquire of `B` that runs while `one` has a transaction open. Commits
    /// that transaction once the acquire waits for it, or has its reply, and `pause` later.
    async fn beside(
        one: &Session,
        other: &Session,
        third: &Session,
        (wait, apply_by): (u32, &str),
        pause: Duration,
    ) -> String {
        let mut acquire = pin!(other.acquire(B, 1000, wait, apply_by));
        let waits = async {
            let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
            while third.query(waiting).await == "0" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let replied = tokio::select! {
            reply = &mut acquire => Some(reply),
            () = waits => None,
        };
        tokio::time::sleep(pause).await;
        one.query("commit").await;
        match replied {
            Some(reply) => reply,
            None => acquire.await,
        }
    }

    /// Runs the check of a rule. Returns the right reply, and the reply.
    async fn check(saboteur: &str, server: &PostgresServer) -> (&'static str, String) {
        let (one, other) = (Session::open(server).await, Session::open(server).await);
        let mut third = Session::open(server).await;
        one.query("truncate distlock.lock, distlock.hold, distlock.queue")
            .await;
        // Creates the lock's row.
        one.acquire(A, 1000, 0, NEVER).await;
        one.release(A, "0").await;
        let at_once = Duration::ZERO;
        match saboteur {
            // The other decides after the first has committed.
            "one-statement" => {
                one.query("begin").await;
                assert_eq!(one.acquire(A, 1000, 0, NEVER).await, "H");
                let reply = beside(&one, &other, &third, (0, NEVER), at_once).await;
                ("B", reply)
            }
            // The waiter is not left without a grant.
            "release-unlocked" => {
                assert_eq!(one.acquire(A, 5000, 0, NEVER).await, "H");
                one.query("begin").await;
                assert_eq!(one.release(A, "0").await, "t");
                let reply = beside(&one, &other, &third, (5000, NEVER), at_once).await;
                ("H", reply)
            }
            // An acquire that waits beyond its deadline takes nothing.
            "time-before-wait" => {
                one.query("begin; select from distlock.lock for no key update")
                    .await;
                let now = "select distlock.us(clock_timestamp()) + 200000";
                let apply_by = third.query(now).await;
                let pause = Duration::from_millis(250);
                let reply = beside(&one, &other, &third, (0, &apply_by), pause).await;
                ("L", reply)
            }
            // A hold that is checked in is held beyond its TTL, and no verb waits for it.
            "pinned-taken-over" | "pinned-awaited" | "check-in-unlocked" => {
                assert_eq!(one.acquire(A, 100, 0, NEVER).await, "H");
                one.check_in().await;
                tokio::time::sleep(Duration::from_millis(150)).await;
                let reply = other.acquire(B, 1000, 0, NEVER).await;
                assert_eq!(one.query("commit").await, "");
                ("B", reply)
            }
            "notify-lost" => {
                assert_eq!(one.acquire(A, 5000, 0, NEVER).await, "H");
                third.query(&format!("listen \"distlock:{B}\"")).await;
                assert_eq!(other.acquire(B, 1000, 5000, NEVER).await, "Q");
                let release = format!(
                    "call distlock.release('k', '{A}', 1, 0, 60000, 0, null, null, null, null, true, null, null)"
                );
                assert_eq!(one.query(&release).await, "t");
                let message = tokio::time::timeout(Duration::from_secs(2), third.messages.recv());
                let message = message.await.ok().flatten().unwrap_or_default();
                (
                    "granted",
                    message.split(' ').next().unwrap_or_default().to_owned(),
                )
            }
            // An acquire that arrives after its cancel takes nothing.
            "no-tombstone" => {
                assert_eq!(one.release(A, NEVER).await, "f");
                ("L", one.acquire(A, 1000, 0, NEVER).await)
            }
            _ => panic!("no check notices {saboteur}: write one"),
        }
    }

    /// A client warms each session before it uses it.
    #[tokio::test]
    async fn warming_a_session_waits_for_no_standby() {
        let server = PostgresServer::start();
        server.sql(TABLES);
        server.sql(FUNCTIONS);
        server
            .sql("alter system set synchronous_standby_names = 'absent'; select pg_reload_conf()");
        let session = Session::open(&server).await;
        assert_eq!(
            session.query("show synchronous_standby_names").await,
            "absent"
        );
        assert_eq!(
            within(SECONDS, session.query("select distlock.warm()")).await,
            ""
        );
    }

    #[tokio::test]
    async fn each_rule_of_the_functions_is_kept_and_checked() {
        let server = PostgresServer::start();
        server.sql(TABLES);
        let mut saboteurs: Vec<_> = EDITS.iter().map(|edit| edit.saboteur).collect();
        saboteurs.dedup();
        for saboteur in saboteurs {
            assert!(Rules::broken_by(saboteur).is_some(), "{saboteur}");
            for is_broken in [false, true] {
                server.sql(&functions(if is_broken { saboteur } else { "" }));
                let (right, reply) = within(SECONDS, check(saboteur, &server)).await;
                assert_eq!(reply != right, is_broken, "{saboteur}: {reply}");
            }
        }
    }
}
