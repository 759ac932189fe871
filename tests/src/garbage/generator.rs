//! Strategies that generate garbage.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{Frame, Impostor, Reaction, Then, Verb};

/// The owner id of another client.
const OTHER: &str = "0123456789abcdef0123456789abcdef:7";

/// Words in place of a number or the name of a lock.
const ODD_WORDS: &[&str] = &[
    "",
    "0",
    "07",
    "+7",
    "-1",
    "7.0",
    "1e3",
    "x",
    "7 7",
    "٧",
    "7\t7",
    "OK",
    "Held",
    "\r\n",
    "\x1b[2J",
    "18446744073709551615",
    "18446744073709551616",
    "distlock:lock:",
    "distlock:queue:{k}",
    "other:lock:{k}",
    "distlock:lock:k\n",
];

const ERRORS: &[&str] = &[
    "",
    "ERR no",
    "FOREIGN x",
    "OOM x",
    "BUSY x",
    "MOVED",
    "NOPERM x",
    "NOAUTH x",
    "LOADING x",
    "MOVED 1 127.0.0.1:1",
    "ASK 1 127.0.0.1:1",
    "NOSCRIPT No matching script",
];

/// Bytes that are not RESP, have a wrong length, or only look like a reply. The last entries would
/// be valid replies to another request: a hold, an empty list of failures, a release.
const LIES: &[&str] = &[
    "",
    "\r\n",
    "\0\0\0\0\0\0\0\0",
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "+OK\r\n",
    ":1\r\n",
    ":\r\n",
    ":1.5\r\n",
    ":18446744073709551616\r\n",
    "_\r\n",
    "#x\r\n",
    ",x\r\n",
    "$-1\r\n",
    "$-2\r\n",
    "$3\r\nabcde\r\n",
    "$5\r\nabc",
    "$4294967295\r\nabc\r\n",
    "$9223372036854775807\r\nabc\r\n",
    "=1\r\nx\r\n",
    "!-7\r\n",
    "!3\r\nERR\r\n",
    "*-1\r\n",
    "*-2\r\n",
    "*4294967296\r\n:1\r\n",
    "*9223372036854775807\r\n",
    "%4611686018427387904\r\n",
    "|9223372036854775807\r\n",
    "|1\r\n+key\r\n+value\r\n:1\r\n",
    "~-5\r\n",
    "-\r\n",
    "-MOVED 1 127.0.0.1:1\r\n",
    "-NOSCRIPT No matching script. Please use EVAL.\r\n",
    ">0\r\n",
    ">-1\r\n",
    ">1\r\n:1\r\n",
    ">2\r\n+message\r\n:1\r\n",
    ">1\r\n+disconnection\r\n",
    ">3\r\n+subscribe\r\n$1\r\nx\r\n:1\r\n",
    ">3\r\n+unsubscribe\r\n_\r\n:0\r\n",
    "*3\r\n$4\r\nheld\r\n:1\r\n:7\r\n",
    "$23\r\nheld 1700000000000000 7\r\n",
    "*0\r\n",
    "*1\r\n$1\r\n7\r\n",
    "$10\r\nreleased 7\r\n",
];

/// Endless replies: the first bytes, and the bytes that are repeated after them.
const ENDLESS: &[(&str, &[u8])] = &[
    ("+", b"x"),
    ("$7000000\r\n", b"x"),
    ("$2000000000\r\n", b"x"),
    ("*2000000000\r\n", b":1\r\n"),
    ("*500000\r\n", b"$5\r\nabcde\r\n"),
    ("*2\r\n$4\r\nheld\r\n+", b"x"),
    (">3\r\n$7\r\nmessage\r\n$8000000\r\n", b"x"),
];

/// All fixed garbage: replies that prove nothing, whatever the request was.
pub static NONSENSE: LazyLock<Vec<Reaction>> = LazyLock::new(|| {
    let mut all: Vec<Reaction> = LIES.iter().map(|text| Reaction::new(*text)).collect();
    all.push(Reaction::new(b"*1\r\n".repeat(5_000)));
    // A megabyte of terminal control sequences.
    let long = "\x1b]0;title\x07\x1b[31m\u{202e}\u{9b}2J".repeat(50_000);
    for code in ["ERR", "NOPERM", "OOM", "FOREIGN", "MOVED 1"] {
        all.push(Reaction::new(format!("-{code} {long}\r\n")));
    }
    all.extend(ENDLESS.iter().map(|(first, rest)| Reaction {
        then: Then::Repeat(rest),
        ..Reaction::new(*first)
    }));
    all
});

/// The client for which garbage is generated.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The name of the client.
    pub client: String,
    /// Its owner ids that sent an acquire, `client:number`, each with its lock.
    pub owners: Vec<(String, String)>,
}

impl Names {
    /// Returns texts that the client could mistake for data about itself.
    fn texts(&self) -> Vec<String> {
        let client = &self.client;
        let mut owners: Vec<String> = self.owners.iter().map(|(owner, _)| owner.clone()).collect();
        owners.extend(ODD_WORDS.iter().map(|word| format!("{client}:{word}")));
        owners.extend([
            OTHER.into(),
            format!("{}:7", client.to_uppercase()),
            format!("0{client}:7"),
        ]);
        let values = [
            "0 1700 30250 1700 1 1700 name",
            "0 1700 30250 01700 1 1700 name",
            "0 1 1 0 1 1 n",
            "1 -1 1 1 1 1 n",
            "0 1 1 1",
        ];
        let values_of = |owner: &String| values.map(|value| format!("{owner} {value}"));
        let values: Vec<String> = owners.iter().flat_map(values_of).collect();
        [values, owners, vec!["held 7 7".into()]].concat()
    }
}

/// Generates numbers at the limits of number types.
fn edge_number() -> BoxedStrategy<i64> {
    let edges = vec![1_001, 1 << 32, (1 << 53) + 1, i64::MAX, i64::MIN];
    prop_oneof![1 => select(edges), 1 => any::<i64>(), 3 => -10..10i64].boxed()
}

/// Generates a word that is invalid almost everywhere.
fn odd_word() -> BoxedStrategy<String> {
    let word = select(ODD_WORDS).prop_map(str::to_owned);
    prop_oneof![2 => word, 1 => edge_number().prop_map(|number| number.to_string())].boxed()
}

/// Generates any value, including values that the client could mistake for its own.
pub fn junk(names: &Names) -> BoxedStrategy<Frame> {
    let text = prop_oneof![4 => select(names.texts()), 1 => any::<String>(), 1 => odd_word()];
    let others = [
        ('_', ""),
        ('#', "t"),
        (',', "1.5"),
        (',', "nan"),
        ('(', "99999999999999999999"),
        ('*', "-1"),
    ];
    let others = others.map(|(kind, text)| Frame::Line(kind, text.into()));
    let leaf = prop_oneof![
        4 => edge_number().prop_map(Frame::int),
        4 => text.clone().prop_map(Frame::text),
        1 => text.prop_map(|text| Frame::Line('+', text)),
        2 => (select(vec!['-', '!']), select(ERRORS)).prop_map(|(kind, text)| match kind {
            '-' => Frame::error(text),
            _ => Frame::Blob(kind, text.into()),
        }),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Frame::Blob('$', bytes)),
        3 => select(others.to_vec()),
        1 => (1..60usize).prop_map(|depth| (0..depth).fold(Frame::int(1), |inner, _| Frame::array([inner]))),
        1 => (0..300usize).prop_map(|length| Frame::array(vec![Frame::int(0); length])),
    ];
    let nested = leaf.prop_recursive(3, 24, 5, |inner| {
        let several = prop::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            4 => several.clone().prop_map(Frame::array),
            1 => several.prop_map(|items| Frame::List('~', items)),
            1 => prop::collection::vec(inner.clone(), 4).prop_map(|items| Frame::List('%', items)),
            1 => prop::collection::vec(inner, 3).prop_map(|items| Frame::List('|', items)),
        ]
    });
    nested.boxed()
}

#[derive(Clone, Debug)]
enum Change {
    Replace(Frame),
    Word(Index, String),
    Remove,
    Double,
}

/// Changes up to three things in a `right` reply; often none.
fn nearly(right: BoxedStrategy<Frame>, names: &Names) -> BoxedStrategy<Frame> {
    let other = prop_oneof![
        2 => junk(names),
        3 => edge_number().prop_map(Frame::int),
        1 => odd_word().prop_map(Frame::text),
        1 => Just(Frame::array([])),
    ];
    let change = prop_oneof![
        4 => other.prop_map(Change::Replace),
        4 => (any::<Index>(), odd_word()).prop_map(|(at, word)| Change::Word(at, word)),
        1 => Just(Change::Remove),
        1 => Just(Change::Double),
    ];
    let changes = prop::collection::vec((any::<usize>(), change), 0..4);
    let changed = (right, changes).prop_map(|(mut frame, changes)| {
        for (at, change) in changes {
            apply(&mut frame, at, change);
        }
        frame
    });
    changed.boxed()
}

fn apply(frame: &mut Frame, at: usize, change: Change) {
    match (frame, change) {
        // A list that is not empty is changed inside, which is more interesting than replacing it.
        (Frame::List(_, items), change) if !items.is_empty() => {
            let (deeper, place) = (at / items.len(), at % items.len());
            match change {
                Change::Remove => drop(items.remove(place)),
                Change::Double => items.insert(place, items[place].clone()),
                change => apply(&mut items[place], deeper, change),
            }
        }
        (frame, Change::Replace(other)) => *frame = other,
        (Frame::Blob(_, bytes), Change::Word(place, word)) => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let mut words: Vec<&str> = text.split(' ').collect();
            let place = place.index(words.len());
            words[place] = &word;
            *bytes = words.join(" ").into();
        }
        _ => {}
    }
}

/// Returns the possible replies of a server to a script about `locks` locks, from the best for the
/// client to the worst.
pub fn right(verb: Verb, locks: usize, names: &Names) -> Vec<Frame> {
    let micros = Impostor::micros();
    let (int, text) = (Frame::int, |text: &str| Frame::text(text));
    let (now, nothing) = (int(micros), text(""));
    let of = |owner: &str| {
        let value = format!("2 {owner} 1700 30250 1700 name");
        [&value, owner, "h 1700 30250 1700 1 1700 name"].map(text)
    };
    let first = names.owners.first();
    let ours = first.map_or(vec![nothing.clone()], |(owner, _)| of(owner).to_vec());
    match verb {
        Verb::Acquire => vec![
            Frame::text(format!("held {micros}")),
            Frame::text(format!("held {micros} {micros}")),
            Frame::array([[text("queued"), now.clone()].as_slice(), &ours].concat()),
            Frame::array([text("full"), now.clone()]),
            Frame::array([text("late"), now.clone()]),
            Frame::array([[text("other_kind"), now.clone()].as_slice(), &of(OTHER)].concat()),
            Frame::array([text("busy"), now.clone(), nothing]),
            Frame::array([[text("queued"), now].as_slice(), &of(OTHER)].concat()),
        ],
        Verb::Confirm => vec![
            Frame::array([text("held"), now.clone(), now.clone()]),
            Frame::array([text("not_held"), now]),
        ],
        Verb::Renew => {
            let failed = |index: usize, error| Frame::array([int(index as i64), text(error)]);
            vec![
                Frame::array([]),
                Frame::array([failed(0, "")]),
                Frame::array([failed(0, "OOM x"), failed(locks - 1, "REVOKED")]),
                Frame::array([failed(locks - 1, ""), failed(0, "")]),
            ]
        }
        Verb::Release => ["released", "released more", "released recorded", "not_held"]
            .map(text)
            .to_vec(),
        Verb::CheckQueue => {
            let seen = |state: &[Frame], more, held: &[Frame], missing: &[Frame]| {
                let head = [int(more), Frame::array(held), Frame::array(missing)];
                let (state, records) = state.split_at(1);
                Frame::array([state, &head, records].concat())
            };
            let free = [nothing];
            let seen = [
                seen(&free, 0, &[], &[int(0)]),
                seen(&ours, 0, &[], &[]),
                text("OOM x"),
                text("FOREIGN x"),
                seen(&of(OTHER), 1, &[], &[int(1), int(0)]),
                seen(&of(OTHER), 0, &[], &[]),
            ];
            seen.map(|seen| Frame::array([vec![now.clone()], vec![seen; locks]].concat()))
                .to_vec()
        }
        Verb::Inspect => {
            let seen = |state: &[Frame], waiters, waiter: &[Frame]| {
                let (state, records) = state.split_at(1);
                let rest = [
                    Frame::array(records),
                    int(waiters),
                    text("5"),
                    text(""),
                    text(""),
                ];
                Frame::array([std::slice::from_ref(&now), state, &rest, waiter].concat())
            };
            let waiter = [text(OTHER), text("1700000000000000"), text("1 2 3 me")];
            vec![
                seen(&[nothing], 0, &[]),
                seen(&ours, 0, &[]),
                seen(&of(OTHER), 1, &waiter),
            ]
        }
    }
}

/// Generates a reply that is right, nearly right, or junk.
pub fn reply(verb: Verb, locks: usize, names: &Names) -> BoxedStrategy<Frame> {
    let right = select(right(verb, locks, names));
    prop_oneof![6 => nearly(right.boxed(), names), 1 => junk(names)].boxed()
}

/// Generates a message on the client's channel: a grant of a lock that it waits for, or nearly one.
pub fn push(names: &Names) -> BoxedStrategy<Frame> {
    let kinds = vec!["message", "message", "message", "smessage", "pmessage"];
    let channel = format!("distlock:client:{}", names.client);
    let age = select(vec![0, 0, 0, 500_000, -3_600_000_000]);
    let grant = (
        select(kinds),
        select(names.owners.clone()),
        1..i64::MAX,
        age,
    );
    let grant = grant.prop_map(move |(kind, (owner, lock), token, age)| {
        let at = Impostor::micros() - age;
        let payload = format!("mutex {owner} {token} {at} 300 {lock}");
        Frame::push([kind, &channel, &payload].map(Frame::text))
    });
    nearly(grant.boxed(), names)
}

/// Generates bytes that are not RESP, are cut short, or have a wrong length.
pub fn stream(names: &Names) -> BoxedStrategy<Vec<u8>> {
    let cut = (junk(names), any::<Index>()).prop_map(|(frame, at)| {
        let mut bytes = frame.encode();
        bytes.truncate(at.index(bytes.len()));
        bytes
    });
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..60),
        1 => "[*$:+\\-_#,(!=%~>|0-9\r\n a]{2,60}".prop_map(String::into_bytes),
        2 => select(LIES).prop_map(|text| text.as_bytes().to_vec()),
        2 => cut,
    ]
    .boxed()
}
