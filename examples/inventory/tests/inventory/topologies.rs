//! The same orders over all that a store may be.

use distlock_tests::{Middleman, RedisCluster, RedisQuorum, RedisServer, sentinel::Sentinels};

use crate::chart::Chart;
use crate::running::{Running, assert_nothing_was_lost, assert_tidy, inventory, output};

const FEW: &str = "--processes 2 --orders 60";

/// Runs some orders without and with the lock.
#[track_caller]
fn assert_works(store: &str, arguments: &str) {
    let dir = tempfile::tempdir().unwrap();
    let chart = dir.path().join("chart.svg");
    let arguments = format!("{FEW} {arguments} --chart {}", chart.display());
    let (code, text, errors) = output(store, &arguments);
    assert_eq!(code, Some(0), "{errors}");
    assert_nothing_was_lost(&text, 60);
    Chart::read(&chart).assert_agrees(&text);
}

#[test]
fn sentinels_are_asked_as_who_the_environment_says() {
    let server = RedisServer::builder().requirepass("hunter2");
    let server = server.arg("--masterauth", "hunter2");
    let sentinel = RedisServer::builder().sentinel().requirepass("hunter3");
    let all = Sentinels::of(&server, &sentinel);
    let url = all.url_of("redis+sentinel://:hunter2@", Sentinels::SERVICE);
    let run = |password| {
        let mut command = inventory(&url, FEW);
        Running::of(command.env("DISTLOCK_SENTINEL_PASSWORD", password)).end()
    };
    let (code, text, errors) = run("hunter3");
    assert_eq!(code, Some(0), "{errors}");
    assert_nothing_was_lost(&text, 60);
    assert_tidy(all.master().unwrap());

    let (code, _, errors) = run("hunter4");
    assert_eq!(code, Some(2));
    assert!(!errors.contains("hunter"), "{errors}");
}

#[test]
fn two_of_three_servers_are_enough() {
    let quorum = RedisQuorum::start(3);
    quorum.server(2).kill();
    assert_works(&quorum.url(), "");
    for place in 0..2 {
        let fences = quorum.server(place).client().keys("inventory-demo:fence:*");
        assert!(!fences.is_empty(), "nothing was locked on {place}");
    }
}

mod cluster {
    use super::*;

    #[test]
    fn orders_are_locked_where_their_slots_are() {
        let cluster = RedisCluster::start(3);
        for master in &cluster.masters {
            // Whichever node is asked first, the stock is mostly at another.
            assert_works(&master.url().replace("redis:", "redis+cluster:"), "");
        }
        for master in &cluster.masters {
            assert_tidy(master);
            let fences = master.client().keys("inventory-demo:fence:*");
            assert!(
                !fences.is_empty(),
                "nothing was locked on {}",
                master.addr()
            );
        }
    }
}

#[test]
fn a_proxy_may_stand_before_several_servers() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let proxy = Middleman::before(&[&servers[0], &servers[1]]);
    assert_works(&proxy.url(), "");
    for server in &servers {
        assert_tidy(server);
    }
}

#[test]
fn a_unix_socket_will_do() {
    let server = RedisServer::builder().unix_socket().start();
    assert_works(&server.unix_url(), "");
    assert_tidy(&server);
}

#[test]
fn as_many_replicas_acknowledge_as_are_asked_for() {
    let all = Sentinels::start();
    let url = all.master().unwrap().url();
    assert_works(&url, "--min-replicas 1");
    let (code, _, errors) = output(&url, "--only locked --orders 1 --min-replicas 2");
    assert_eq!(code, Some(2));
    assert!(errors.contains("replica"), "{errors}");
}
