//! Each fault against a real server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use super::*;
use crate::resp::value_len;
use crate::{RedisServer, Reply, Resp, eventually};

const LONG: Duration = Duration::from_secs(20);
/// Long enough for a reply that is on its way; only what must *not* come is waited for this long.
const SHORT: Duration = Duration::from_millis(60);

fn setup() -> (RedisServer, Proxy, Resp) {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let client = connect(&proxy);
    (server, proxy, client)
}

/// A client whose connection the proxy knows: something has come back on it.
fn connect(proxy: &Proxy) -> Resp {
    let mut client = Resp::connect(proxy.addr()).expect("the proxy listens");
    client.set_timeout(LONG);
    assert_eq!(client.cmd(&["PING"]), pong());
    client
}

fn pong() -> Reply {
    Reply::Status("PONG".into())
}

/// A call that gets no reply, because its connection is reset.
#[track_caller]
fn is_reset(client: &mut Resp, words: &[&str]) {
    let error = client.try_cmd(words).expect_err("no reply can come");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{words:?}");
}

/// A call that gets no reply while its connection is open.
#[track_caller]
fn is_unanswered(client: &mut Resp, words: &[&str]) {
    client.send(words).expect("it is open");
    silence(client);
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
fn forwards_everything_and_counts() {
    let (server, proxy, mut client) = setup();
    let big = "x".repeat(1 << 20);
    client.cmd(&["SET", "big", &big]);
    assert_eq!(client.get("big"), Some(big));
    for i in 0..200 {
        client.send(&["RPUSH", "list", &i.to_string()]).unwrap();
    }
    for i in 0..200 {
        assert_eq!(client.read_reply(LONG).unwrap(), Reply::Int(i + 1));
    }
    let list = client.cmd(&["LRANGE", "list", "0", "-1"]);
    assert_eq!(list.array().len(), 200);
    let stats = proxy.stats();
    assert_eq!((stats.accepted, stats.open, stats.requests), (1, 1, 204));
    assert!(stats.bytes_to_server > 1 << 20 && stats.bytes_to_client > 1 << 20);
    assert_eq!((stats.bytes_dropped, stats.not_resp), (0, 0));
    drop(client);
    eventually(LONG, || proxy.stats().open == 0);
    eventually(LONG, || {
        server.client().info_field("connected_clients") == "1"
    });
}

#[test]
fn delays_each_way() {
    let (_server, proxy, mut client) = setup();
    let delay = Duration::from_millis(80);
    for (way, least) in [
        (Way::ToServer, delay),
        (Way::ToClient, delay),
        (Way::Both, 2 * delay),
    ] {
        proxy.delay(way, delay);
        let start = Instant::now();
        // Both requests are delayed at the same time, not one after the other.
        client.send(&["PING"]).unwrap();
        client.send(&["PING"]).unwrap();
        client.read_reply(LONG).unwrap();
        client.read_reply(LONG).unwrap();
        assert!(start.elapsed() >= least, "{way:?}: {:?}", start.elapsed());
        proxy.delay(Way::Both, Duration::ZERO);
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
    // Sent later, and answered while the other is still under way.
    assert_eq!(subscribed.call("PING"), "+PONG\r\n");
    assert!(begin.elapsed() < delay);
    assert_eq!(plain.read_reply(LONG).unwrap(), pong());
    assert!(begin.elapsed() >= delay);
    proxy.delay_unsubscribed(Duration::ZERO);
    assert_eq!(plain.cmd(&["PING"]), pong());
}

#[test]
fn a_dropped_reply_leaves_the_command_applied_and_the_connection_open() {
    let (server, proxy, mut client) = setup();
    proxy.drop_data(Way::ToClient, true);
    is_unanswered(&mut client, &["SET", "a", "1"]);
    eventually(LONG, || server.client().exists("a"));
    assert_eq!(proxy.stats().open, 1);
    // Healed, a stream with a hole cannot go on.
    proxy.drop_data(Way::ToClient, false);
    is_reset(&mut client, &["PING"]);
    assert_eq!(connect(&proxy).cmd(&["PING"]), pong());
}

#[test]
fn a_dropped_request_is_never_applied() {
    let (server, proxy, mut client) = setup();
    proxy.drop_data(Way::ToServer, true);
    is_unanswered(&mut client, &["SET", "a", "1"]);
    proxy.heal();
    is_reset(&mut client, &["SET", "b", "1"]);
    assert_eq!(server.client().keys("*"), Vec::<String>::new());
}

#[test]
fn in_a_black_hole_nobody_hears_of_a_close() {
    let (server, proxy, mut client) = setup();
    let mut witness = server.client();
    assert_eq!(witness.info_field("connected_clients"), "2");
    proxy.black_hole(true);
    is_unanswered(&mut client, &["SET", "a", "1"]);
    let mut newcomer = Resp::connect(proxy.addr()).expect("the handshake is the kernel's");
    is_unanswered(&mut newcomer, &["PING"]);
    drop((client, newcomer));
    std::thread::sleep(SHORT);
    assert_eq!(witness.info_field("connected_clients"), "3");
    proxy.black_hole(false);
    eventually(LONG, || witness.info_field("connected_clients") == "1");
    assert_eq!(witness.keys("*"), Vec::<String>::new());
}

#[test]
fn half_open_connections_lose_nothing() {
    let (server, proxy, mut client) = setup();
    proxy.stop_reading(Way::Both, true);
    for _ in 0..50 {
        client.send(&["INCR", "n"]).unwrap();
    }
    silence(&mut client);
    assert!(!server.client().exists("n"));
    // Nobody reads, so the buffers fill up and a large write does not come to its end.
    let mut stuck = TcpStream::connect(proxy.addr()).expect("the kernel accepts");
    stuck
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    assert!(stuck.write_all(&vec![b'x'; 64 << 20]).is_err());
    drop(stuck);
    proxy.stop_reading(Way::Both, false);
    for i in 1..=50 {
        assert_eq!(client.read_reply(LONG).unwrap(), Reply::Int(i));
    }
}

#[test]
fn reset_is_seen_as_such_on_both_sides() {
    let (server, proxy, mut client) = setup();
    let mut second = connect(&proxy);
    assert_eq!(proxy.reset_connections(), 2);
    for client in [&mut client, &mut second] {
        let error = client.read_reply(LONG).expect_err("it was reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    eventually(LONG, || proxy.stats().open == 0);
    eventually(LONG, || {
        server.client().info_field("connected_clients") == "1"
    });
    assert_eq!(connect(&proxy).cmd(&["PING"]), pong());
}

#[test]
fn a_swallowed_reply_can_reset_or_silence_its_connection() {
    let (server, proxy, mut client) = setup();
    let mut other = connect(&proxy);
    proxy.swallow_reply(After::Reset);
    is_reset(&mut client, &["INCR", "n"]);
    let mut client = connect(&proxy);
    proxy.swallow_reply(After::Silence);
    is_unanswered(&mut client, &["INCR", "n"]);
    is_unanswered(&mut client, &["INCR", "n"]);
    eventually(LONG, || server.client().get("n").as_deref() == Some("3"));
    assert_eq!(proxy.stats().replies_swallowed, 2);
    assert_eq!(other.cmd(&["PING"]), pong());
}

#[test]
fn the_reply_to_a_certain_request_is_swallowed() {
    let (_server, proxy, _client) = setup();
    let mut raw = Raw::connect(&proxy);
    // A subscription is confirmed by a push, and pushes come in between: neither is a reply.
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
fn only_published_messages_are_dropped() {
    let (server, proxy, _client) = setup();
    let mut publisher = server.client();
    let mut raw = Raw::connect(&proxy);
    assert!(raw.call("SUBSCRIBE ch").contains("subscribe"));
    let mut publish =
        |text: &str| assert_eq!(publisher.cmd(&["PUBLISH", "ch", text]), Reply::Int(1));
    publish("seen");
    assert!(raw.value().contains("seen"));
    proxy.drop_pushes(true);
    publish("lost");
    publish("lost");
    // Replies and pushes of other kinds pass, in order. `resp` shows where values of every type end.
    assert_eq!(raw.call("PING"), "+PONG\r\n");
    assert!(
        raw.call("PSUBSCRIBE p*")
            .starts_with(">3\r\n$10\r\npsubscribe")
    );
    server.client().cmd(&["PUBLISH", "pattern", "x"]);
    assert!(raw.value().starts_with(">4\r\n$8\r\npmessage"));
    eventually(LONG, || proxy.stats().pushes_dropped == 2);
    proxy.drop_pushes(false);
    publish("seen again");
    assert!(raw.value().contains("seen again"));
    assert_eq!(proxy.stats().pushes_passed, 2);
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
        // A later connection is served, and overtakes.
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
    proxy.stop_reading(Way::Both, true);
    silence(&mut first);
    assert_eq!(second.cmd(&["PING"]), pong());
    // Those that come later are not concerned either.
    assert_eq!(connect(&proxy).cmd(&["PING"]), pong());
    proxy.stop_reading(Way::Both, false);
    proxy.swallow_reply(After::Silence);
    assert_eq!(second.cmd(&["PING"]), pong());
    assert_eq!(proxy.stats().replies_swallowed, 0);
    proxy.limit_to(&connections[1..]);
    assert_eq!(proxy.reset_connections(), 1);
    let error = second.try_cmd(&["PING"]).expect_err("it was reset");
    assert_ne!(error.kind(), ErrorKind::TimedOut, "{error}");
    proxy.limit_to_none();
    eventually(LONG, || proxy.connections() == connections[..1]);
    assert_eq!(proxy.reset_connections(), 1);
}

/// Sends back what it receives.
fn echo() -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut other = stream.try_clone().unwrap();
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut other));
        }
    });
    addr
}

#[test]
fn a_sealed_proxy_forwards_what_means_nothing_to_it() {
    let proxy = Proxy::start_sealed(echo());
    let mut stream = TcpStream::connect(proxy.addr()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut says = |bytes: &[u8]| -> std::io::Result<Vec<u8>> {
        stream.write_all(bytes)?;
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back)?;
        Ok(back)
    };
    // No value of RESP, the half of one, and a push.
    for bytes in [
        &b"\x16\x03\x01 \r\n"[..],
        b"*1\r\n$4\r\nPI",
        b">3\r\n$7\r\nmessage\r\n",
    ] {
        proxy.drop_pushes(true);
        proxy.swallow_reply(After::GoOn);
        assert_eq!(says(bytes).unwrap(), bytes);
    }
    assert_eq!(proxy.stats().not_resp, 0);
    proxy.delay(Way::ToClient, SHORT);
    let start = Instant::now();
    assert_eq!(says(b"late").unwrap(), b"late");
    assert!(start.elapsed() >= SHORT);
    proxy.heal();
    proxy.drop_data(Way::ToServer, true);
    stream.write_all(b"lost").unwrap();
    eventually(LONG, || proxy.stats().bytes_dropped == 4);
    proxy.heal();
    // A stream has no hole.
    let _ = stream.write_all(b"after it");
    let end = stream.read(&mut [0; 8]);
    assert!(end.is_err(), "{end:?}");
}
