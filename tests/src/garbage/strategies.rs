//! How garbage is drawn.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::Frame;

/// Numbers at which something may break.
pub fn edge_number() -> BoxedStrategy<i64> {
    let edges = vec![
        0,
        1,
        -1,
        2,
        6,
        7,
        100,
        1_000,
        1_001,
        (1 << 53) - 1,
        (1 << 53) + 1,
        i64::from(u32::MAX),
        i64::MAX - 1,
        i64::MAX,
        i64::MIN,
    ];
    prop_oneof![3 => select(edges), 1 => any::<i64>(), 1 => -10..10i64].boxed()
}

/// Any value. `texts` are mixed in: owners, lock values and whatever else could be mistaken for right.
pub fn junk(texts: Vec<String>) -> BoxedStrategy<Frame> {
    let text = prop_oneof![
        4 => select(texts),
        1 => any::<String>(),
        1 => select(vec!["", " ", "OK", "0", "-1", "18446744073709551616", "nil", "FOREIGN x", "WRONGTYPE x", "\r\n"])
            .prop_map(str::to_owned),
    ];
    let errors = select(vec![
        "ERR no",
        "",
        " ",
        "NOSCRIPT No matching script",
        "WRONGTYPE x",
        "FOREIGN x",
        "OOM x",
        "BUSY x",
        "MOVED 1 127.0.0.1:1",
        "ASK 1 127.0.0.1:1",
        "NOPERM x",
        "LOADING x",
        "READONLY x",
        "EXECABORT x",
        "TRYAGAIN x",
        "-",
        "NOAUTH x",
    ]);
    let leaf = prop_oneof![
        4 => edge_number().prop_map(Frame::Int),
        4 => text.clone().prop_map(Frame::text),
        1 => text.clone().prop_map(Frame::Simple),
        1 => text.clone().prop_map(Frame::Verbatim),
        1 => errors.clone().prop_map(|text| Frame::Error(text.into())),
        1 => errors.prop_map(|text| Frame::BlobError(text.into())),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Frame::Bulk),
        1 => Just(Frame::Nil),
        1 => Just(Frame::NilArray),
        1 => any::<bool>().prop_map(Frame::Bool),
        1 => any::<f64>().prop_map(Frame::Double),
        1 => select(vec!["1", "-1", "99999999999999999999999", "x", ""]).prop_map(|text| Frame::BigNumber(text.into())),
        1 => (1..60usize).prop_map(|depth| (0..depth).fold(Frame::Int(1), |inner, _| Frame::Array(vec![inner]))),
        1 => (0..300usize).prop_map(|length| Frame::Array(vec![Frame::Int(0); length])),
    ];
    let nested = leaf.prop_recursive(3, 24, 5, |inner| {
        let several = prop::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            4 => several.clone().prop_map(Frame::Array),
            1 => several.prop_map(Frame::Set),
            1 => prop::collection::vec((inner.clone(), inner.clone()), 0..3).prop_map(Frame::Map),
            1 => inner.prop_map(|value| Frame::Attribute(Box::new(value))),
        ]
    });
    nested.boxed()
}

#[derive(Clone, Debug)]
enum Change {
    Replace(Frame),
    Number(i64),
    Remove,
    Double,
    Append(Frame),
    Wrap,
    Empty,
}

/// `right` with up to three things wrong; often with none.
pub fn nearly(right: BoxedStrategy<Frame>, texts: Vec<String>) -> BoxedStrategy<Frame> {
    let change = prop_oneof![
        3 => junk(texts.clone()).prop_map(Change::Replace),
        3 => edge_number().prop_map(Change::Number),
        1 => Just(Change::Remove),
        1 => Just(Change::Double),
        1 => junk(texts).prop_map(Change::Append),
        1 => Just(Change::Wrap),
        1 => Just(Change::Empty),
    ];
    let changes = prop::collection::vec((any::<Index>(), change), 0..4);
    (right, changes)
        .prop_map(|(mut frame, changes)| {
            for (index, change) in changes {
                // The value itself is changed rarely: what is in it is more interesting.
                let count = frame.count();
                let at = if count > 1 {
                    1 + index.index(count - 1)
                } else {
                    0
                };
                apply(&mut frame, at, &change);
            }
            frame
        })
        .boxed()
}

fn apply(frame: &mut Frame, at: usize, change: &Change) {
    let parent = |frame: &mut Frame, edit: &dyn Fn(&mut Vec<Frame>)| {
        if let Frame::Array(items) | Frame::Push(items) = frame {
            edit(items);
        }
    };
    match change {
        Change::Replace(other) => frame.change(at, &mut |value| *value = other.clone()),
        Change::Number(number) => frame.change(at, &mut |value| match value {
            // Where there was a text of a number, there is one again.
            Frame::Bulk(_) => *value = Frame::text(number.to_string()),
            _ => *value = Frame::Int(*number),
        }),
        Change::Remove => parent(frame, &|items| {
            if !items.is_empty() {
                items.remove(at % items.len());
            }
        }),
        Change::Double => parent(frame, &|items| {
            if !items.is_empty() {
                items.insert(at % items.len(), items[at % items.len()].clone());
            }
        }),
        Change::Append(other) => parent(frame, &|items| items.push(other.clone())),
        Change::Wrap => frame.change(at, &mut |value| *value = Frame::Array(vec![value.clone()])),
        Change::Empty => frame.change(at, &mut |value| {
            *value = match value {
                Frame::Array(_) => Frame::Array(Vec::new()),
                Frame::Int(_) => Frame::Int(0),
                _ => Frame::text(""),
            }
        }),
    }
}

/// Bytes that need not be RESP at all, or are cut short, or lie about their length.
pub fn stream(texts: Vec<String>) -> BoxedStrategy<Vec<u8>> {
    let lies = select(vec![
        "$-2\r\n",
        "$9223372036854775807\r\n",
        "*9223372036854775807\r\n",
        "*4294967296\r\n",
        "*-2\r\n",
        "%-1\r\n",
        "%4611686018427387904\r\n",
        "|-1\r\n",
        "|9223372036854775807\r\n",
        "~-5\r\n",
        ">0\r\n",
        ">-1\r\n",
        ">1\r\n:1\r\n",
        "=-1\r\n",
        "=2\r\nab\r\n",
        "!-7\r\n",
        ":\r\n",
        ":1.5\r\n",
        ":+1\r\n",
        ":18446744073709551616\r\n",
        "#x\r\n",
        ",nan\r\n",
        ",x\r\n",
        "\r\n",
        "\n",
        "\0",
        "HTTP/1.1 200 OK\r\n\r\n",
        "$3\r\nabcd\r\n",
        ">1\r\n+disconnection\r\n",
        ">3\r\n+subscribe\r\n$1\r\nx\r\n:1\r\n",
        ">3\r\n+unsubscribe\r\n_\r\n:0\r\n",
        ">2\r\n+message\r\n:1\r\n",
    ]);
    prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..60),
        3 => lies.prop_map(|text| text.as_bytes().to_vec()),
        1 => (1..300usize).prop_map(|depth| b"*1\r\n".repeat(depth)),
        2 => (junk(texts), any::<Index>()).prop_map(|(frame, at)| {
            let mut bytes = frame.encode();
            bytes.truncate(at.index(bytes.len()));
            bytes
        }),
    ]
    .boxed()
}
