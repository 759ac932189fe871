//! Orders and items, and the two CSV files that they come from.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

pub(crate) const ORDERS_HEADER: &str = "order_id,item_id,quantity";
pub(crate) const STOCK_HEADER: &str = "item_id,quantity";

/// Somebody wants some of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) item_id: u32,
    pub(crate) quantity: u32,
}

impl Order {
    /// How long the service thinks about it: 1 to 3 ms, the same in every run.
    pub(crate) fn thinking_time(&self) -> Duration {
        Duration::from_micros(1_000 + self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 2_000)
    }
}

/// A line of the order file; also how a worker process is told.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.id, self.item_id, self.quantity)
    }
}

impl FromStr for Order {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let [id, item_id, quantity] = fields(line, ORDERS_HEADER)?;
        let order = Order {
            id: number("order_id", id)?,
            item_id: number("item_id", item_id)?,
            quantity: number("quantity", quantity)?,
        };
        if order.quantity == 0 {
            bail!("the quantity is 0; an order takes at least 1");
        }
        Ok(order)
    }
}

/// An item of the shop, and how many there are in the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) id: u32,
    pub(crate) quantity: u32,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.id, self.quantity)
    }
}

impl FromStr for Item {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let [id, quantity] = fields(line, STOCK_HEADER)?;
        Ok(Item {
            id: number("item_id", id)?,
            quantity: number("quantity", quantity)?,
        })
    }
}

/// What is sold in a run.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    pub(crate) orders: Vec<Order>,
    pub(crate) items: Vec<Item>,
}

impl Shop {
    /// Reads `orders.csv` and `stock.csv`, and checks that they fit together.
    pub(crate) fn read(folder: &Path) -> Result<Shop> {
        let stock = folder.join("stock.csv");
        let items: Vec<Item> = parse(&read(&stock)?, STOCK_HEADER, |item: &Item| item.id.into())
            .with_context(|| stock.display().to_string())?;
        let known: BTreeSet<u32> = items.iter().map(|item| item.id).collect();

        let file = folder.join("orders.csv");
        let orders: Vec<Order> = parse(&read(&file)?, ORDERS_HEADER, |order: &Order| order.id)
            .with_context(|| file.display().to_string())?;
        if let Some(order) = orders.iter().find(|order| !known.contains(&order.item_id)) {
            bail!(
                "{}: order {} wants item {}, which is not in {}",
                file.display(),
                order.id,
                order.item_id,
                stock.display()
            );
        }
        Ok(Shop { orders, items })
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| {
        format!(
            "cannot read {} (make one with `inventory generate`)",
            path.display()
        )
    })
}

/// Reads lines below a header; each has an id of its own.
fn parse<T>(text: &str, header: &str, id: impl Fn(&T) -> u64) -> Result<Vec<T>>
where
    T: FromStr<Err = anyhow::Error>,
{
    let mut lines = text.lines();
    if lines.next() != Some(header) {
        bail!("line 1: the header must be `{header}`");
    }
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    for (line, number) in lines.zip(2..) {
        let row: T = line.parse().with_context(|| format!("line {number}"))?;
        if !seen.insert(id(&row)) {
            bail!("line {number}: {} is there twice", id(&row));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        bail!("there is nothing below the header");
    }
    Ok(rows)
}

fn fields<'a, const N: usize>(line: &'a str, header: &str) -> Result<[&'a str; N]> {
    let fields: Vec<&str> = line.split(',').collect();
    let count = fields.len();
    fields
        .try_into()
        .map_err(|_| anyhow!("{count} fields instead of {N} ({header})"))
}

fn number<T: FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse()
        .map_err(|_| anyhow!("{name} `{text}` is not a whole number in range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(text: &str) -> Result<Vec<Order>, String> {
        parse(text, ORDERS_HEADER, |order: &Order| order.id).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn an_order_reads_back_as_it_was_written() {
        let order = Order {
            id: 7,
            item_id: 3,
            quantity: 2,
        };
        assert_eq!(order.to_string(), "7,3,2");
        assert_eq!("7,3,2".parse::<Order>().unwrap(), order);
        assert_eq!(
            orders("order_id,item_id,quantity\r\n7,3,2\r\n").unwrap(),
            [order]
        );
    }

    #[test]
    fn a_mistake_names_its_line() {
        let cases = [
            ("", "line 1: the header must be `order_id,item_id,quantity`"),
            ("1,2,3\n", "line 1: the header"),
            (
                "order_id,item_id,quantity\n1,2,3\n2,x,1\n",
                "line 3: item_id `x` is not",
            ),
            (
                "order_id,item_id,quantity\n1,2,3\n2,2\n",
                "line 3: 2 fields instead of 3",
            ),
            (
                "order_id,item_id,quantity\n1,2,3,4\n",
                "line 2: 4 fields instead of 3",
            ),
            (
                "order_id,item_id,quantity\n1,2,-1\n",
                "line 2: quantity `-1` is not",
            ),
            (
                "order_id,item_id,quantity\n1,2,0\n",
                "line 2: the quantity is 0",
            ),
            (
                "order_id,item_id,quantity\n1,2,3\n\n2,2,1\n",
                "line 3: 1 fields",
            ),
            (
                "order_id,item_id,quantity\n1,2,3\n1,2,3\n",
                "line 3: 1 is there twice",
            ),
            ("order_id,item_id,quantity\n", "nothing below the header"),
        ];
        for (text, expected) in cases {
            let error = orders(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn an_order_of_an_unknown_item_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("stock.csv"), "item_id,quantity\n1,5\n").unwrap();
        let missing = format!("{:#}", Shop::read(folder.path()).unwrap_err());
        assert!(
            missing.contains("orders.csv") && missing.contains("inventory generate"),
            "{missing}"
        );

        std::fs::write(
            folder.path().join("orders.csv"),
            "order_id,item_id,quantity\n1,1,1\n2,9,1\n",
        )
        .unwrap();
        let unknown = format!("{:#}", Shop::read(folder.path()).unwrap_err());
        assert!(unknown.contains("order 2 wants item 9"), "{unknown}");
    }

    #[test]
    fn thinking_takes_one_to_three_milliseconds() {
        for id in 0..10_000 {
            let order = Order {
                id,
                item_id: 1,
                quantity: 1,
            };
            let micros = order.thinking_time().as_micros();
            assert!((1_000..3_000).contains(&micros), "{micros}");
        }
    }
}
