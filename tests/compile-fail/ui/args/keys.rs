// mistakes: 7
use distlock::{Error, distributed_lock};

#[distributed_lock(keys = "account:<from>")]
async fn no_list(from: u64) -> Result<u64, Error> {
    Ok(from)
}

#[distributed_lock(keys = [])]
async fn empty() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["account:<from>", to])]
async fn not_a_literal(from: u64, to: u64) -> Result<u64, Error> {
    Ok(from + to)
}

#[distributed_lock(key = "account:<from>", keys = ["account:<to>"])]
async fn key_and_keys(from: u64, to: u64) -> Result<u64, Error> {
    Ok(from + to)
}

#[distributed_lock(keys = ["account:<from>", "account:<too>"])]
async fn an_unknown_parameter(from: u64, to: u64) -> Result<u64, Error> {
    Ok(from + to)
}

#[distributed_lock(keys = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16",
    "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31", "32",
    "33", "34", "35", "36", "37", "38", "39", "40", "41", "42", "43", "44", "45", "46", "47", "48",
    "49", "50", "51", "52", "53", "54", "55", "56", "57", "58", "59", "60", "61", "62", "63", "64"
])]
async fn too_many() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = [&["account:1"], "account:2"])]
async fn nested() -> Result<(), Error> {
    Ok(())
}

fn main() {}
