//! Tests of faults against a real server. The tests of distlock would not detect a missing fault.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use super::*;
use crate::resp::value_len;
use crate::{RedisServer, Reply, Resp, eventually};

const LONG: Duration = Duration::from_secs(20);
/// Long enough for a reply in flight; used only to wait for replies that must *not* arrive.
const SHORT: Duration = Duration::from_millis(60);

fn setup() -> (RedisServer, Proxy, Resp) {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let client = connect(&proxy);
    (server, proxy, client)
}

/// Connects a client, and waits for a reply so that the proxy knows the connection.
fn connect(proxy: &Proxy) -> Resp {
    let mut client = Resp::connect(proxy.addr()).expect("the proxy listens");
    client.set_timeout(LONG);
    assert_eq!(client.cmd(&["PING"]), pong());
    client
}

fn pong() -> Reply {
    Reply::Status("PONG".into())
}

fn silence(client: &mut Resp) {
    let error = client.read_reply(SHORT).expect_err("nothing can come");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// A RESP3 connection that shows the bytes of each value.
struct Raw {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Raw {
    fn connect(proxy: &Proxy) -> Raw {
        let stream = TcpStream::connect(proxy.addr()).expect("the proxy listens");
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut raw = Raw {
            stream,
            buffer: Vec::new(),
        };
        assert!(raw.call("HELLO 3").starts_with('%'));
        raw
    }

    fn call(&mut self, inline: &str) -> String {
        self.send(inline);
        self.value()
    }

    fn send(&mut self, inline: &str) {
        self.stream
            .write_all(format!("{inline}\r\n").as_bytes())
            .unwrap();
    }

    fn value(&mut self) -> String {
        loop {
            if let Some(len) = value_len(&self.buffer).unwrap() {
                let value = self.buffer.drain(..len).collect();
                return String::from_utf8(value).unwrap();
            }
            let mut chunk = [0; 4096];
            let read = self.stream.read(&mut chunk).expect("a value");
            assert_ne!(read, 0, "the connection ended");
            self.buffer.extend_from_slice(&chunk[..read]);
        }
    }
}

#[test]
fn delays_apply_per_direction() {
    let (_server, proxy, mut client) = setup();
    let delay = Duration::from_millis(80);
    for (directions, min) in [
        (Directions::ToServer, delay),
        (Directions::ToClient, delay),
        (Directions::Both, 2 * delay),
    ] {
        proxy.delay(directions, delay);
        let start = Instant::now();
        // Both requests are delayed at the same time, not one after the other.
        client.send(&["PING"]).unwrap();
        client.send(&["PING"]).unwrap();
        client.read_reply(LONG).unwrap();
        client.read_reply(LONG).unwrap();
        assert!(
            start.elapsed() >= min,
            "{directions:?}: {:?}",
            start.elapsed()
        );
        proxy.delay(Directions::Both, Duration::ZERO);
        assert_eq!(client.cmd(&["PING"]), pong());
    }
}

#[test]
fn a_connection_that_never_subscribed_can_be_slower_than_its_neighbour() {
    let (_server, proxy, mut plain) = setup();
    let mut subscribed = Raw::connect(&proxy);
    assert!(subscribed.call("SUBSCRIBE c").starts_with('>'));
    let delay = Duration::from_secs(1);
    proxy.delay_unsubscribed(delay);
    let begin = Instant::now();
    plain.send(&["PING"]).unwrap();
    // Sent later, and answered while the other request is still in flight.
    assert_eq!(subscribed.call("PING"), "+PONG\r\n");
    assert!(begin.elapsed() < delay);
    assert_eq!(plain.read_reply(LONG).unwrap(), pong());
    assert!(begin.elapsed() >= delay);
    proxy.delay_unsubscribed(Duration::ZERO);
    assert_eq!(plain.cmd(&["PING"]), pong());
}

#[test]
fn the_reply_to_a_certain_request_is_swallowed() {
    let (_server, proxy, _client) = setup();
    let mut raw = Raw::connect(&proxy);
    // Neither a subscription's confirmation nor another push counts as a reply.
    assert!(raw.call("SUBSCRIBE ch").starts_with('>'));
    proxy.swallow_reply_to("wanted", After::GoOn);
    raw.send("ECHO a");
    raw.send("ECHO wanted-1");
    raw.send("ECHO wanted-2");
    assert_eq!(raw.value(), "$1\r\na\r\n");
    assert_eq!(raw.value(), "$8\r\nwanted-2\r\n");
    proxy.swallow_reply_to("PUBLISH", After::GoOn);
    raw.send("PUBLISH ch x");
    raw.send("ECHO b");
    assert!(raw.value().starts_with(">3\r\n$7\r\nmessage"));
    assert_eq!(raw.value(), "$1\r\nb\r\n");
    assert_eq!(proxy.stats().replies_swallowed, 2);
}

#[test]
fn held_requests_arrive_after_their_client_has_gone() {
    for reset in [false, true] {
        let (server, proxy, mut client) = setup();
        let mut witness = server.client();
        assert_eq!(proxy.hold_requests(), 1);
        client.send(&["SET", "late", "1"]).unwrap();
        eventually(LONG, || proxy.stats().requests_held == 1);
        if reset {
            assert_eq!(proxy.reset_clients(), 1);
            let error = client.read_reply(LONG).expect_err("reset");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        drop(client);
        // A later connection is served, and overtakes the held request.
        let mut second = connect(&proxy);
        assert_eq!(
            second.cmd(&["SET", "early", "1"]),
            Reply::Status("OK".into())
        );
        assert_eq!(witness.keys("*"), ["early"]);
        assert_eq!(witness.info_field("connected_clients"), "3");
        proxy.release_held();
        eventually(LONG, || witness.exists("late"));
        eventually(LONG, || witness.info_field("connected_clients") == "2");
        assert_eq!(second.cmd(&["PING"]), pong());
    }
}

#[test]
fn faults_can_be_limited_to_one_connection() {
    let (_server, proxy, mut first) = setup();
    let mut second = connect(&proxy);
    assert_eq!(first.cmd(&["PING"]), pong());
    assert_eq!(second.cmd(&["PING"]), pong());
    let connections = proxy.connections();
    assert_eq!(connections.len(), 2);
    proxy.limit_to(&connections[..1]);
    proxy.stop_reading(Directions::Both, true);
    silence(&mut first);
    assert_eq!(second.cmd(&["PING"]), pong());
    // Later connections are not affected either.
    assert_eq!(connect(&proxy).cmd(&["PING"]), pong());
    proxy.stop_reading(Directions::Both, false);
    proxy.swallow_reply_to("PING", After::Silence);
    assert_eq!(second.cmd(&["PING"]), pong());
    assert_eq!(proxy.stats().replies_swallowed, 0);
    proxy.limit_to(&connections[1..]);
    assert_eq!(proxy.reset_connections(), 1);
    let error = second.try_cmd(&["PING"]).expect_err("it was reset");
    assert_ne!(error.kind(), ErrorKind::TimedOut, "{error}");
    proxy.heal();
    eventually(LONG, || proxy.connections() == connections[..1]);
    assert_eq!(proxy.reset_connections(), 1);
}
