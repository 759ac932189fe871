//! The key that a template and its values produce.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::num::NonZeroU8;

use distlock::Error;

use crate::seen::{held, returns};

struct Order {
    id: u64,
    tag: (u8, String),
    r#type: char,
    customer: Customer,
}

struct Customer {
    name: Cow<'static, str>,
}

impl Customer {
    fn initial(&self) -> &str {
        &self.name[..1]
    }
}

impl Order {
    fn sku(&self) -> String {
        format!("sku-{}", self.id)
    }

    fn customer(&self) -> &Customer {
        &self.customer
    }

    #[distlock::distributed_lock(
        key = "templates:<self.id>:<self.tag.0>:<self.sku()>:<self.customer().initial()>"
    )]
    async fn of_self(&self) -> Result<(), Error> {
        held().await;
        Ok(())
    }

    #[distlock::distributed_lock(key = "templates:whole:<self>")]
    async fn self_as_a_whole(&self) -> Result<(), Error> {
        held().await;
        Ok(())
    }
}

impl Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.id)
    }
}

fn order() -> Order {
    Order {
        id: 42,
        tag: (7, "blue".to_owned()),
        r#type: 'x',
        customer: Customer {
            name: Cow::Borrowed("Ada"),
        },
    }
}

#[distlock::distributed_lock(key = "templates:<order.id>:<order.customer.name>")]
async fn fields(order: &Order) -> Result<(), Error> {
    held().await;
    assert_eq!(order.id, 42);
    Ok(())
}

#[distlock::distributed_lock(key = "templates:<order.tag.1>:<pair.0.0>:<pair.1>")]
async fn tuple_fields(order: Order, pair: ((u8, u8), u8)) -> Result<u64, Error> {
    held().await;
    assert_eq!(pair.1, 3);
    let moved = order;
    Ok(moved.id)
}

#[distlock::distributed_lock(
    key = "templates:<order.sku()>:<text.len()>:<order.customer().initial()>"
)]
async fn methods(order: &Order, text: &str) -> Result<(), Error> {
    held().await;
    assert_eq!((order.id, text), (42, "four"));
    Ok(())
}

#[distlock::distributed_lock(key = "templates:<type>:<r#in>:<order.type>:<order.r#type>")]
async fn raw(r#type: u8, r#in: u8, order: Order) -> Result<(), Error> {
    held().await;
    assert_eq!((r#type, r#in, order.id), (1, 2, 42));
    Ok(())
}

#[distlock::distributed_lock(
    key = "templates:<signed>:<letter>:<flag>:<half>:<owned>:<cow>:<nine>"
)]
async fn displayed(
    signed: i64,
    letter: char,
    flag: bool,
    half: f64,
    owned: String,
    cow: Cow<'_, str>,
    nine: &&NonZeroU8,
) -> Result<(), Error> {
    held().await;
    assert_eq!((signed, letter, flag, nine.get()), (-7, 'c', true, 9));
    assert_eq!(
        (half.to_bits(), &*owned, &*cow),
        (0.5_f64.to_bits(), "s", "cow")
    );
    Ok(())
}

#[distlock::distributed_lock(key = "templates:<text>")]
async fn escaped(text: &str) -> Result<usize, Error> {
    held().await;
    Ok(text.len())
}

#[test]
fn values_cannot_change_the_shape_of_the_key() {
    for (value, key) in [
        ("a:b", "templates:a%3Ab"),
        ("100%", "templates:100%25"),
        ("{tag}", "templates:%7Btag%7D"),
        ("two words\n", "templates:two%20words%0A"),
        ("<x>", "templates:<x>"),
        ("käse", "templates:käse"),
    ] {
        returns(key, escaped(value), &value.len());
    }
}

#[distlock::distributed_lock(key = "templates <<<n>>> a<<b>>c {literal}")]
async fn angle_brackets(n: u8) -> Result<u8, Error> {
    held().await;
    Ok(n)
}

#[distlock::distributed_lock(key = r#"{templates:<tenant>}:"stock":<sku>"#)]
async fn hash_tag(tenant: u8, sku: &str) -> Result<&str, Error> {
    held().await;
    assert_eq!(tenant, 1);
    Ok(sku)
}

#[distlock::distributed_lock(key = "{stock}:<item_id>")]
async fn tag_beside_a_placeholder(item_id: u64) -> Result<u64, Error> {
    held().await;
    Ok(item_id)
}

#[distlock::distributed_lock(key = "{stock:}nightly")]
async fn tag_without_placeholders(stock: u64) -> Result<u64, Error> {
    held().await;
    Ok(stock)
}

#[distlock::distributed_lock(key = "{eu-west-1}:order#<item_id>:5$")]
async fn signs(item_id: u64) -> Result<u64, Error> {
    held().await;
    Ok(item_id)
}

#[distlock::distributed_lock(key = "leader:outbox")]
async fn text_with_a_parameters_name(outbox: u64) -> Result<u64, Error> {
    held().await;
    Ok(outbox)
}

struct Counted(std::cell::Cell<u32>);

impl Counted {
    fn name(&self) -> &'static str {
        self.0.set(self.0.get() + 1);
        "counted"
    }
}

#[distlock::distributed_lock(key = "templates:<counted.name()>")]
async fn evaluated(counted: &Counted) -> Result<u32, Error> {
    held().await;
    Ok(counted.0.get())
}

#[test]
fn every_placeholder() {
    returns("templates:42:Ada", fields(&order()), &());
    let moved = tuple_fields(order(), ((1, 2), 3));
    returns("templates:blue:1:3", moved, &42);
    returns("templates:sku-42:4:A", methods(&order(), "four"), &());
    returns("templates:42:7:sku-42:A", order().of_self(), &());
    returns("templates:whole:order%2042", order().self_as_a_whole(), &());
    returns("templates:1:2:x:x", raw(1, 2, order()), &());
    let nine = &&NonZeroU8::new(9).expect("nine");
    let call = displayed(-7, 'c', true, 0.5, "s".to_owned(), "cow".into(), nine);
    returns("templates:-7:c:true:0.5:s:cow:9", call, &());
    // Evaluated once, before the body.
    let counted = Counted(std::cell::Cell::new(0));
    returns("templates:counted", evaluated(&counted), &1);
}

#[test]
fn literal_text_is_kept() {
    returns("templates <7> a<b>c {literal}", angle_brackets(7), &7);
    returns("{templates:1}:\"stock\":s", hash_tag(1, "s"), &"s");
    returns("{stock}:1", tag_beside_a_placeholder(1), &1);
    returns("{stock:}nightly", tag_without_placeholders(2), &2);
    returns("{eu-west-1}:order#3:5$", signs(3), &3);
    returns("leader:outbox", text_with_a_parameters_name(4), &4);
}
