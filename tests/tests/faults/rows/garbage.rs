//! A server that talks nonsense: whatever it says is an error, never a panic and never a lock.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_tests::garbage::numbered;
use distlock_tests::resp::{command_name, request_len};
use distlock_tests::{RedisServer, eventually_async, within};

use crate::kit::{LONG, SLACK, acquire_later, connect, give_back, ms, until_queued};
use crate::rows::Dice;

/// Things that no script of ours answers. Some are not RESP at all, some only look like an answer.
const NONSENSE: &[&[u8]] = &[
    b"",
    b"\r\n",
    b"\0\0\0\0\0\0\0\0",
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    b"+OK\r\n",
    b"+1\r\n",
    b":1\r\n",
    b":-1\r\n",
    b":99999999999999999999\r\n",
    b":\r\n",
    b"_\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*-2\r\n",
    b"$-5\r\n",
    b"$3\r\nabcde\r\n",
    b"$5\r\nabc",
    b"$4294967295\r\nabc\r\n",
    b"$9223372036854775807\r\nabc\r\n",
    b"*4294967295\r\n:1\r\n",
    b"*9223372036854775807\r\n",
    b"%9223372036854775807\r\n",
    b"*1\r\n:1\r\n",
    b"*2\r\n:1\r\n:1\r\n",
    // "Held", but with a token of zero, none, a negative one, one that is too large, more than there is to say.
    b"$6\r\nheld 0\r\n",
    b"$4\r\nheld\r\n",
    b"$5\r\nheld \r\n",
    b"$7\r\nheld -7\r\n",
    b"$7\r\nheld 07\r\n",
    b"$25\r\nheld 18446744073709551617\r\n",
    b"$8\r\nheld 7 x\r\n",
    b"$10\r\nheld 7 8 9\r\n",
    b"$6\r\nHeld 7\r\n",
    b":7\r\n",
    b"*1\r\n$6\r\nheld 7\r\n",
    // As an older layout said it, and nearly.
    b"*3\r\n:1\r\n:1\r\n:7\r\n",
    b"*3\r\n:1\r\n:1\r\n:0\r\n",
    b"*3\r\n:1\r\n:1\r\n:-7\r\n",
    b"*3\r\n:1\r\n:1\r\n$1\r\n7\r\n",
    b"*3\r\n:1\r\n:1\r\n,7.5\r\n",
    b"*3\r\n:1\r\n:1\r\n#t\r\n",
    b"*3\r\n:1\r\n:1\r\n_\r\n",
    b"*3\r\n:1\r\n:1\r\n:18446744073709551617\r\n",
    b"*3\r\n:1\r\n:-1\r\n:7\r\n",
    b"*3\r\n$1\r\n1\r\n:1\r\n:7\r\n",
    b"*3\r\n,1\r\n:1\r\n:7\r\n",
    b"*3\r\n:11\r\n:1\r\n:7\r\n",
    b"*3\r\n:-1\r\n:1\r\n:7\r\n",
    b"*1\r\n*3\r\n:1\r\n:1\r\n:7\r\n",
    b"~3\r\n:1\r\n:1\r\n:7\r\n",
    b"%1\r\n:1\r\n:7\r\n",
    // "Queued" or "busy", behind nobody who could be.
    b"*2\r\n:2\r\n:1\r\n",
    b"*3\r\n:3\r\n:1\r\n:5\r\n",
    b"*3\r\n:3\r\n:1\r\n*0\r\n",
    // Errors of every kind.
    b"-\r\n",
    b"-ERR\r\n",
    b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
    b"-MOVED 1 127.0.0.1:1\r\n",
    b"-ASK 1 127.0.0.1:1\r\n",
    b"-MOVED\r\n",
    b"-LOADING\xff\xfe\r\n",
    b"!3\r\nERR\r\n",
    b"!-1\r\n",
    // Messages instead of an answer.
    b">0\r\n",
    b">1\r\n$7\r\nmessage\r\n",
    b">3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n",
    b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$7\r\na b c d\r\n",
    b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
    b"|1\r\n+key\r\n+value\r\n:1\r\n",
    b"(123456789012345678901234567890\r\n",
    b",nan\r\n",
    b",inf\r\n",
    b"=15\r\ntxt:Some string\r\n",
    b"=1\r\nx\r\n",
];

/// What would be right, but is the reply to another request, or to none: a hold, an empty list of failures, a release.
const SHIFTED: &[&[u8]] = &[
    b"$21\r\nheld 1700000000000000\r\n",
    b"$23\r\nheld 1700000000000000 7\r\n",
    b"*0\r\n",
    b"*1\r\n$1\r\n7\r\n",
    b"$1\r\n1\r\n",
    b"$3\r\n1 7\r\n",
];

/// Nonsense that is made: nested deeply, and random.
fn all_nonsense() -> Vec<Vec<u8>> {
    let all = NONSENSE.iter().chain(SHIFTED);
    let mut all: Vec<Vec<u8>> = all.map(|bytes| bytes.to_vec()).collect();
    all.push(b"*1\r\n".repeat(5_000));
    all.push([b"*1\r\n".repeat(50), b":1\r\n".to_vec()].concat());
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for _ in 0..20 {
        const LETTERS: &[u8] = b"*$:+-_#,(!=%~>|0123456789\r\n\r\n\r\n a\xff";
        let length = dice.below(60) + 2;
        let mut bytes: Vec<u8> = (0..length)
            .map(|_| LETTERS[dice.below(LETTERS.len() as u64) as usize])
            .collect();
        bytes.extend(b"\r\n");
        all.push(bytes);
    }
    all
}

/// What is answered to scripts, or to everything.
#[derive(Clone, Debug)]
enum Mood {
    Honest,
    /// To scripts that have keys; who connects is served.
    Scripts(Vec<u8>),
    Everything(Vec<u8>),
    /// To scripts that have keys: the first bytes, and then the others for ever.
    Endless(&'static [u8], &'static [u8]),
}

/// A server that can be honest, as far as one lock that nobody else wants goes.
struct Impostor {
    addr: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    answered: Arc<AtomicUsize>,
    closing: Arc<AtomicBool>,
}

impl Impostor {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let impostor = Impostor {
            addr: listener.local_addr().unwrap(),
            mood: Arc::new(Mutex::new(Mood::Honest)),
            answered: Arc::default(),
            closing: Arc::default(),
        };
        let (mood, answered) = (impostor.mood.clone(), impostor.answered.clone());
        let closing = impostor.closing.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if closing.load(Ordering::SeqCst) {
                    return;
                }
                let (mood, answered) = (mood.clone(), answered.clone());
                std::thread::spawn(move || serve(stream, &mood, &answered));
            }
        });
        impostor
    }

    fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    fn mood(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
        self.answered.store(0, Ordering::SeqCst);
    }

    fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.addr);
    }
}

/// Answers until the client is gone. `answered` counts the nonsense.
fn serve(mut stream: TcpStream, mood: &Mutex<Mood>, answered: &AtomicUsize) {
    let mut buffer = Vec::new();
    let mut chunk = [0; 4_096];
    loop {
        while let Ok(Some(length)) = request_len(&buffer) {
            let request: Vec<u8> = buffer.drain(..length).collect();
            let words = words_of(&request);
            let name = command_name(&request)
                .unwrap_or_default()
                .to_ascii_uppercase();
            let is_script = name.starts_with(b"EVAL") && words.get(2).is_some_and(|n| n != b"0");
            let number = words
                .last()
                .map_or("", |word| std::str::from_utf8(word).unwrap());
            // Not locked while it is answered.
            let mood = mood.lock().unwrap().clone();
            let reply = match &mood {
                Mood::Everything(bytes) => Err(bytes.clone()),
                Mood::Scripts(bytes) if is_script && !SHIFTED.contains(&&**bytes) => {
                    Err(numbered(bytes, number))
                }
                Mood::Scripts(bytes) if is_script => Err(bytes.clone()),
                Mood::Endless(first, rest) if is_script => {
                    return flood(stream, first, rest, answered);
                }
                _ if is_script => Ok(numbered(&honestly(&name, &words), number)),
                _ => Ok(honestly(&name, &words)),
            };
            if reply.is_err() {
                answered.fetch_add(1, Ordering::SeqCst);
            }
            let (Ok(bytes) | Err(bytes)) = reply;
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(read) => buffer.extend(&chunk[..read]),
        }
    }
}

/// Sends until the client hangs up, or has accepted too much. `accepted` is the most of any connection, in bytes.
fn flood(mut stream: TcpStream, first: &[u8], rest: &[u8], accepted: &AtomicUsize) {
    let rest = rest.repeat(64 * 1024 / rest.len());
    let mut next = first;
    let mut sent = 0;
    while sent < 4 * MOST_ACCEPTED && stream.write_all(next).is_ok() {
        sent += next.len();
        accepted.fetch_max(sent, Ordering::SeqCst);
        next = &rest;
    }
}

/// The words of a request: an array of bulk strings.
fn words_of(request: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = request;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let (line, tail) = (&rest[..end], &rest[end + 2..]);
        rest = tail;
        if let Some(length) = line.strip_prefix(b"$") {
            let length: usize = std::str::from_utf8(length).unwrap().parse().unwrap();
            words.push(rest[..length].to_vec());
            rest = &rest[length + 2..];
        }
    }
    words
}

fn honestly(name: &[u8], words: &[Vec<u8>]) -> Vec<u8> {
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_micros();
    match (name, words.len()) {
        (b"HELLO", _) => b"%1\r\n$5\r\nproto\r\n:3\r\n".to_vec(),
        (b"CLIENT", _) => b"$22\r\nid=1 addr=127.0.0.1:1 \r\n".to_vec(),
        (b"SUBSCRIBE", _) => {
            let channel = String::from_utf8_lossy(&words[1]);
            format!(
                ">3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n",
                channel.len()
            )
            .into()
        }
        (b"INFO", _) => b"$0\r\n\r\n".to_vec(),
        // What is loaded only, the probe, an ask, a release, a renewal.
        (b"EVAL", 3) => b":0\r\n".to_vec(),
        (b"EVAL" | b"EVALSHA", 5) => format!("*2\r\n:{now}\r\n$0\r\n\r\n").into(),
        (b"EVAL" | b"EVALSHA", 14) => format!("$21\r\nheld {now}\r\n").into(),
        (b"EVAL" | b"EVALSHA", 11) => b"$1\r\n1\r\n".to_vec(),
        (b"EVAL" | b"EVALSHA", 7) => b"*0\r\n".to_vec(),
        (b"PING", 2) => {
            let number = String::from_utf8_lossy(&words[1]);
            format!("${}\r\n{number}\r\n", number.len()).into()
        }
        (b"PING", _) => b"+PONG\r\n".to_vec(),
        _ => b"-ERR not that honest\r\n".to_vec(),
    }
}

/// Counts panics on the threads of managers: elsewhere a test panics when it fails.
fn panics_on_io_threads() -> &'static AtomicUsize {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some("distlock-io") {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(info);
        }));
    });
    &PANICS
}

fn assert_refused<T: std::fmt::Debug>(result: Result<T, distlock::Error>, nonsense: &[u8]) {
    match result {
        Ok(guard) => panic!(
            "{:?} granted {guard:?}",
            nonsense.escape_ascii().to_string()
        ),
        Err(error) => {
            assert!(!error.is_busy() && !error.is_lost(), "{error:?}");
            let shown = error.to_string();
            assert!(shown.len() < 2_000, "{} bytes", shown.len());
        }
    }
}

/// Answers to asks, tries, releases and looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_grants_nothing_and_breaks_nothing() {
    let panics = panics_on_io_threads();
    let impostor = Impostor::start();
    let manager = connect(&impostor.url()).await;
    let lock = manager.lock("k").lease(ms(2_000));
    lock.acquire().await.unwrap().release().await.unwrap();
    for nonsense in all_nonsense() {
        impostor.mood(Mood::Scripts(nonsense.clone()));
        let wait = ms(80);
        let asked = Instant::now();
        assert_refused(lock.clone().wait(wait).acquire().await, &nonsense);
        assert!(
            asked.elapsed() < wait + ms(500) + SLACK,
            "{:?}",
            asked.elapsed()
        );
        assert_refused(lock.try_acquire().await, &nonsense);
        assert!(manager.inspect("k").await.is_err());
        assert!(impostor.answered() > 0, "nothing was asked");
        // Honest again, it serves again.
        impostor.mood(Mood::Honest);
        let guard = lock.clone().wait(LONG).acquire().await.unwrap();
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
    assert_eq!(panics.load(Ordering::SeqCst), 0, "see above");
    manager.shutdown().await;
}

/// Answers to those who connect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_at_connect_is_an_error() {
    let panics = panics_on_io_threads();
    let impostor = Impostor::start();
    let limit = ms(150);
    for nonsense in all_nonsense() {
        impostor.mood(Mood::Everything(nonsense.clone()));
        let builder = LockManager::builder()
            .url(impostor.url())
            .connect_timeout(limit);
        let asked = Instant::now();
        if let Ok(manager) = builder.connect().await {
            // Nonsense that is as good as an answer to HELLO is not one to an ask.
            let lock = manager.lock("k").lease(ms(500)).wait(ms(50));
            assert_refused(lock.acquire().await, &nonsense);
        }
        assert!(
            asked.elapsed() < limit + ms(1_000) + SLACK,
            "{:?}",
            asked.elapsed()
        );
    }
    assert_eq!(panics.load(Ordering::SeqCst), 0, "see above");
}

/// Answers to renewals: none of them is a proof.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_renews_nothing() {
    let panics = panics_on_io_threads();
    let mut checks = tokio::task::JoinSet::new();
    let lease = ms(600);
    // An impostor each, so that all can wait at once.
    for nonsense in all_nonsense() {
        checks.spawn(async move {
            for _ in 0..20 {
                if is_lost_over(&nonsense, lease).await {
                    return;
                }
            }
            panic!(
                "{:?}: nothing was asked",
                nonsense.escape_ascii().to_string()
            );
        });
    }
    while let Some(check) = checks.join_next().await {
        check.unwrap();
    }
    assert_eq!(panics.load(Ordering::SeqCst), 0, "see above");
}

/// Whether anything was asked before the lease was over: a busy machine may be too slow for that.
async fn is_lost_over(nonsense: &[u8], lease: Duration) -> bool {
    let impostor = Impostor::start();
    let builder = LockManager::builder()
        .url(impostor.url())
        .connect_timeout(LONG);
    let manager = builder.connect().await.unwrap();
    let lock = manager.lock("k").lease(lease).wait(LONG);
    let guard = lock.acquire().await.unwrap();
    impostor.mood(Mood::Scripts(nonsense.to_vec()));
    let promised = Instant::now() + guard.remaining();
    let latest = promised + ms(150) + SLACK;
    let lost = tokio::time::timeout_at(latest.into(), guard.lost()).await;
    let shown = nonsense.escape_ascii();
    assert!(lost.is_ok(), "renewed by \"{shown}\"");
    impostor.answered() > 0
}

/// The limit of a reply, and what the sockets of both sides hold.
const MOST_ACCEPTED: usize = 32 << 20;

/// Replies that never end, or announce that they will be larger than memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_has_a_limit() {
    let x: &[u8] = b"x";
    for (first, rest) in [
        (&b"+"[..], x),
        (b"$7000000\r\n", x),
        (b"$2000000000\r\n", x),
        (b"*2000000000\r\n", b":1\r\n"),
        (b"*500000\r\n", b"$5\r\nabcde\r\n"),
        (b"*2\r\n$4\r\nheld\r\n+", x),
        (b">3\r\n$7\r\nmessage\r\n$8000000\r\n", x),
    ] {
        let impostor = Impostor::start();
        let manager = connect(&impostor.url()).await;
        impostor.mood(Mood::Endless(first, rest));
        let lock = manager.lock("k").lease(ms(500)).wait(ms(2_000));
        assert_refused(lock.acquire().await, first);
        let accepted = impostor.answered();
        assert!(accepted > 0, "nothing was asked");
        assert!(
            accepted < MOST_ACCEPTED,
            "{accepted} bytes behind {:?}",
            first.escape_ascii().to_string()
        );
        impostor.mood(Mood::Honest);
        let guard = lock.wait(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
        manager.shutdown().await;
    }
}

/// Messages that anybody may publish on a client's channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_in_a_message_grants_nothing() {
    let panics = panics_on_io_threads();
    let server = RedisServer::start();
    let mut raw = server.client();
    let waiter = connect(&server.url()).await;
    let channels = raw.cmd(&["PUBSUB", "CHANNELS", "distlock:client:*"]);
    let channel = channels.array()[0].text().unwrap().to_owned();
    let holder = connect(&server.url()).await;
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = acquire_later(&waiter, "k", ms(5_000), LONG);
    until_queued(&mut raw, "k", 1).await;
    let queue = raw.cmd(&["ZRANGE", "distlock:queue:{k}", "0", "-1"]);
    let owner = queue.array()[0].text().unwrap().to_owned();
    let lock = "distlock:lock:{k}";
    let forged = [
        String::new(),
        " ".repeat(10),
        owner.clone(),
        format!("{owner} "),
        format!("{owner} -1 1 1000 {lock}"),
        format!("{owner} x 1 1000 {lock}"),
        format!("{owner} 99999999999999999999999 1 1000 {lock}"),
        format!("{owner} 7 -1 1000 {lock}"),
        format!("{owner} 7 1 -1000 {lock}"),
        format!("{owner} 7 1 1000"),
        format!("{owner} 7 1 1000 somebody:else"),
        format!("{owner}0 7 1 1000 {lock}"),
        format!("0{owner} 7 1 1000 {lock}"),
        format!("x:1 7 1 1000 {lock}"),
        // Well formed, but granted in 1970, or by a clock far ahead.
        format!("{owner} 7 1 1000 {lock}"),
        format!("{owner} 7 99999999999999999 1000 {lock}"),
        "\u{fffd}\0\r\n".to_owned(),
        "x".repeat(1 << 20),
    ];
    for message in forged {
        let told = raw.cmd(&["PUBLISH", &channel, &message]);
        assert_eq!(told.int(), 1, "nobody listens");
        tokio::time::sleep(ms(20)).await;
        assert!(!waiting.is_finished(), "{message:?} was believed");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished() && guard.is_held());
    guard.release().await.unwrap();
    let next = within(LONG, waiting).await.unwrap().0.unwrap();
    assert!(next.is_held());
    next.release().await.unwrap();
    eventually_async(LONG, async || !raw.exists(lock)).await;
    assert_eq!(panics.load(Ordering::SeqCst), 0, "see above");
}

/// A user that has no key of ours, and may only publish, ask for channels and for the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_only_publish_starts_no_body() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let rights = [
        "reset", "on", ">forger", "&*", "+publish", "+pubsub", "+time",
    ];
    let set_user: Vec<_> = ["ACL", "SETUSER", "forger"]
        .into_iter()
        .chain(rights)
        .collect();
    raw.cmd(&set_user);
    let mut forger = server.client();
    forger.cmd(&["AUTH", "forger", "forger"]);
    let waiter = connect(&server.url()).await;
    let channels = forger.cmd(&["PUBSUB", "CHANNELS", "distlock:client:*"]);
    let channel = channels.array()[0].text().unwrap().to_owned();
    let client = channel.strip_prefix("distlock:client:").unwrap();
    let holder = connect(&server.url()).await;
    // What a grant looks like, from a real one.
    let mut monitor = server.monitor();
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = acquire_later(&waiter, "k", ms(5_000), LONG);
    until_queued(&mut raw, "k", 1).await;
    guard.release().await.unwrap();
    within(LONG, give_back(waiting)).await;
    let mut seen = None;
    eventually_async(LONG, async || {
        let publishes = |line: &String| line.to_ascii_lowercase().contains("\"publish\"");
        seen = seen
            .take()
            .or_else(|| monitor.lines().into_iter().find(publishes));
        seen.is_some()
    })
    .await;
    let line = seen.unwrap();
    let message = line.rsplit('"').nth(1).expect("a message");
    let fields: Vec<_> = message.splitn(5, ' ').collect();
    let [owner, token, _, lease, lock] = fields[..] else {
        panic!("{message:?}");
    };
    assert!(owner.starts_with(client), "{owner} is not of {client}");
    let token: u64 = token.parse().unwrap();

    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = acquire_later(&waiter, "k", ms(5_000), LONG);
    until_queued(&mut raw, "k", 1).await;
    // A number cannot be guessed, whatever the ones before were.
    let (_, known) = owner.split_once(':').unwrap();
    let known: u64 = known.parse().unwrap();
    let guesses = (0..500).chain((1..500).map(|n| known.wrapping_add(n)));
    for guess in guesses {
        let time = forger.cmd(&["TIME"]);
        let part = |i: usize| time.array()[i].text().unwrap().to_owned();
        let now = format!("{}{:0>6}", part(0), part(1));
        let message = format!("{client}:{guess} {} {now} {lease} {lock}", token + 1);
        assert_eq!(forger.cmd(&["PUBLISH", &channel, &message]).int(), 1);
        assert!(!waiting.is_finished(), "{message:?} was believed");
    }
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished() && guard.is_held());
    guard.release().await.unwrap();
    let next = within(LONG, waiting).await.unwrap().0.unwrap();
    next.release().await.unwrap();
}

/// Everything that a program may show of an error: the error and its sources, each with `{}` and `{:?}`.
fn shown(error: &distlock::Error) -> Vec<String> {
    let mut shown = vec![error.to_string(), format!("{error:?}")];
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        shown.extend([error.to_string(), format!("{error:?}")]);
        source = error.source();
    }
    shown
}

/// The text of a server reaches no log uncut, and no terminal with what controls it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_error_with_control_characters_is_cut_and_cleaned() {
    let impostor = Impostor::start();
    let manager = connect(&impostor.url()).await;
    for code in ["ERR", "NOPERM", "OOM", "FOREIGN", "MOVED 1"] {
        let text = "\x1b]0;title\x07\x1b[31m\u{202e}\u{9b}2J".repeat(50_000);
        assert!(text.len() > 1 << 20);
        let reply = format!("-{code} {text}\r\n").into_bytes();
        impostor.mood(Mood::Scripts(reply.clone()));
        let refused = manager.lock("k").wait(ms(100)).acquire().await;
        let mut errors = vec![
            refused.unwrap_err(),
            manager.inspect("k").await.unwrap_err(),
        ];
        impostor.mood(Mood::Everything(reply));
        let connecting = LockManager::builder().url(impostor.url());
        let connecting = connecting.connect_timeout(ms(300));
        errors.push(connecting.connect().await.unwrap_err());
        impostor.mood(Mood::Honest);
        for text in errors.iter().flat_map(shown) {
            assert!(text.len() < 2_500, "{code}: {} bytes", text.len());
            let raw = |c: char| c.is_control() || c == '\u{202e}';
            assert!(!text.contains(raw), "{code}: {text:?}");
        }
        eventually_async(LONG, async || manager.lock("k").acquire().await.is_ok()).await;
    }
}
