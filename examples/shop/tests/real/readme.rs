//! The commands of the README, as a reader pastes them, with this build in place of `cargo run`.

use std::process::Output;

use tokio::process::Command;

use crate::replica::Replica;
use crate::until;

const README: &str = include_str!("../../README.md");
const SHOP: &str = env!("CARGO_BIN_EXE_shop");

/// The block ```` ```sh name ````.
fn commands(name: &str) -> &'static str {
    let block = README.split_once(&format!("```sh {name}\n"));
    let (_, block) = block.expect(name);
    block.split_once("```").expect(name).0
}

fn shell(commands: &str) -> Command {
    let mut shell = Command::new("bash");
    shell
        .args(["-euo", "pipefail", "-c", commands])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    shell
}

/// Sends the requests, until what they did is in the metrics: an order that is sent twice is one order.
async fn requests(replica: &Replica) -> Output {
    let requests = commands("requests").replace("localhost:8080", &replica.address().to_string());
    let mut answers = None;
    until("the metrics have an order", async || {
        let sent = shell(&requests).output().await.unwrap();
        let is_there = sent.status.success();
        answers = Some(sent);
        is_there
    })
    .await;
    answers.unwrap()
}

#[tokio::test]
async fn the_commands_of_the_readme_work() {
    for line in commands("start").lines() {
        let start = line
            .replace("examples/shop/servers.sh", "./servers.sh")
            .replace("cargo run -p shop", SHOP)
            .replace("cargo run", SHOP);
        let replica = Replica::of(shell(&format!("exec {start}"))).await;
        let answers = requests(&replica).await;
        replica.terminate();
        assert!(replica.ended().await.success(), "{line}");

        let answers = String::from_utf8_lossy(&answers.stdout);
        assert!(answers.contains("HTTP/1.1 20"), "{answers}");
        assert!(answers.contains(r#"{"left":98}"#), "{answers}");
        assert!(
            answers.contains("distlock_acquire_duration_seconds"),
            "{answers}"
        );
    }
}
