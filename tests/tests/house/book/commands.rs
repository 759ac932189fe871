//! Commands in documents.

use std::collections::BTreeSet;

use distlock_tests::documents::Block;

use super::links::prose;
use super::{Document, blocks};

use Starter::{Named, Typed};

/// Which tests run the commands of which document: a test names a block as a text, `"name"`.
pub(super) const RUN_BY: &[(&str, &[&str])] = &[
    (
        "README.md",
        &["examples/inventory/tests/inventory/documented.rs"],
    ),
    (
        "distlock-cli/README.md",
        &["distlock-cli/tests/cli/documented.rs"],
    ),
    (
        "docs/first-lock.md",
        &["distlock-cli/tests/cli/first_lock.rs"],
    ),
    (
        "docs/operations/command-line.md",
        &["distlock-cli/tests/cli/documented.rs"],
    ),
    (
        "docs/topologies.md",
        &[
            "distlock-cli/tests/cli/documented.rs",
            "examples/inventory/tests/inventory/documented.rs",
        ],
    ),
    ("examples/shop/README.md", &["tests/book/shop.sh"]),
];

/// Blocks that no test can run in a folder of its own: what runs them, as a text in a file.
pub(super) const ELSEWHERE: &[(&str, &str, &str, &str)] = &[
    // It runs the tests.
    (
        "README.md",
        "check",
        ".github/workflows/ci.yml",
        "run: ./test.sh",
    ),
];

/// What starts a command of a line of prose or a cell of a table.
pub(super) enum Starter {
    /// A test in this file has the command itself as a text, `"cargo run"`, and gives the program its arguments: `documents::typed`.
    Typed(&'static str),
    /// This file has this text, the name of a test or a part of a script. That it does what the command does is only said
    /// here, for the command needs servers, the program of another package, or minutes.
    Named(&'static str, &'static str),
}

/// What is told to be started in a line of prose or a cell of a table, and what does that.
pub(super) const STARTED_BY: &[(&str, Starter)] = &[
    (
        "cargo run",
        Typed("examples/inventory/tests/inventory/main.rs"),
    ),
    (
        "cargo run -p examples --bin operated",
        Typed("examples/tests/operated/service.rs"),
    ),
    (
        "cargo run -p examples --bin nightly -- --replicas 3 --period 2s --kill",
        Typed("examples/tests/nightly/main.rs"),
    ),
    (
        "cargo run -p examples --bin nightly -- --period 24h",
        Typed("examples/tests/nightly/main.rs"),
    ),
    (
        "cargo run -p examples --bin leader -- --candidates 3",
        Typed("examples/tests/leader/main.rs"),
    ),
    (
        "examples/shop/servers.sh cargo run -p shop",
        Named(
            "examples/shop/tests/real/replicas.rs",
            "orders_over_two_replicas_leave_the_right_stock",
        ),
    ),
    (
        "cargo run -p traced",
        Named(
            "examples/traced/tests/spans.rs",
            "a_trace_shows_who_waited_and_for_what",
        ),
    ),
    (
        "examples/cli.sh jobs:report echo done",
        Named("distlock-cli/tests/cli/cron.rs", "examples/cli.sh"),
    ),
    (
        "cargo run --release -p torture -- --topology tls",
        Named("test.sh", "torture: $topology"),
    ),
    (
        "cargo run --release -p torture -- --topology sentinel",
        Named("test.sh", "torture: $topology"),
    ),
    (
        "cargo run --release -p torture -- --topology replicas",
        Named("test.sh", "torture: $topology"),
    ),
    (
        "cargo run --release -p torture -- --topology cluster",
        Named("test.sh", "torture: $topology"),
    ),
];

/// How what readers type begins.
const PROGRAMS: &[&str] = &[
    "$ ",
    "./",
    "cargo ",
    "distlock ",
    "docker ",
    "examples/",
    "export ",
    "kill ",
    "redis-cli ",
    "redis-server ",
];

/// The text of a file of tests, without the lines that are comments.
fn code(path: &str, text: &str) -> String {
    let comment = if path.ends_with(".rs") { "//" } else { "#" };
    let lines = text.lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with(comment));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_commands(block: &Block) -> bool {
    ["sh", "console", "bash", "shell"].contains(&&*block.language)
}

fn at(path: &str, block: &Block) -> String {
    let words = format!("{} {}", block.language, block.name);
    format!("{path}:{}: ```{}", block.line, words.trim())
}

/// Blocks of commands without a name of their own, or in another language than `sh` or `console`.
pub(super) fn unnamed(documents: &[Document]) -> Vec<String> {
    let mut unnamed = Vec::new();
    for (path, text) in documents {
        let mut names = BTreeSet::new();
        for block in blocks(text).iter().filter(|block| is_commands(block)) {
            let is_known = ["sh", "console"].contains(&&*block.language);
            if block.name.is_empty() || !is_known || !names.insert(block.name.clone()) {
                unnamed.push(at(path, block));
            }
        }
    }
    unnamed
}

/// Blocks of commands that no test names which runs those of their document, and nothing else runs. `read` reads the file of
/// a test.
pub(super) fn not_run(
    documents: &[Document],
    run_by: &[(&str, &[&str])],
    elsewhere: &[(&str, &str, &str, &str)],
    read: &dyn Fn(&str) -> String,
) -> Vec<String> {
    let read = |path: &str| code(path, &read(path));
    let mut not_run = Vec::new();
    for (path, text) in documents {
        let tests = run_by.iter().filter(|(document, _)| document == path);
        let tests: Vec<_> = tests.flat_map(|(_, tests)| *tests).copied().collect();
        for block in blocks(text).iter().filter(|block| is_commands(block)) {
            let name = format!("\"{}\"", block.name);
            let is_named = tests.iter().any(|test| read(test).contains(&name));
            let is_elsewhere = elsewhere.iter().any(|(document, block_name, file, text)| {
                (document, block_name) == (&&**path, &&*block.name) && read(file).contains(text)
            });
            if !is_named && !is_elsewhere {
                not_run.push(at(path, block));
            }
        }
    }
    not_run
}

/// Blocks of text, or of nothing, with a line that readers would type.
pub(super) fn unmarked(documents: &[Document]) -> Vec<String> {
    let is_typed = |line: &str| {
        let is_synopsis = line.contains('[') || line.contains("...");
        PROGRAMS.iter().any(|program| line.starts_with(program)) && !is_synopsis
    };
    let mut unmarked = Vec::new();
    for (path, text) in documents {
        for block in blocks(text) {
            let is_text = ["", "text"].contains(&&*block.language);
            if is_text && block.text.lines().any(is_typed) {
                unmarked.push(at(path, &block));
            }
        }
    }
    unmarked
}

/// Commands in prose that no test starts. `read` reads the file of a test.
pub(super) fn not_started(
    documents: &[Document],
    started_by: &[(&str, Starter)],
    read: &dyn Fn(&str) -> String,
) -> Vec<String> {
    let read = |path: &str| code(path, &read(path));
    let is_started = |command: &&str| {
        let is_script = command
            .split(' ')
            .next()
            .is_some_and(|word| word.ends_with(".sh"));
        // Of a synopsis readers make a command.
        let is_synopsis = command
            .split([' ', '='])
            .any(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()));
        let is_here = command.starts_with("cargo run") || (is_script && command.contains(' '));
        is_here && !is_synopsis && !command.starts_with("./test.sh")
    };
    let mut not_started = Vec::new();
    for (path, text) in documents {
        for line in prose(text) {
            for command in line.split('`').skip(1).step_by(2).filter(is_started) {
                let by = started_by.iter().find(|(started, _)| *started == command);
                let is_known = match by {
                    Some((_, Typed(file))) => read(file).contains(&format!("\"{command}\"")),
                    Some((_, Named(file, text))) => read(file).contains(text),
                    None => false,
                };
                if !is_known {
                    not_started.push(format!("{path}: `{command}`"));
                }
            }
        }
    }
    not_started
}

#[cfg(test)]
mod tests {
    use super::{Named, Typed, not_run, not_started, unmarked, unnamed};

    fn document(path: &str, text: &str) -> (String, String) {
        (path.to_owned(), text.to_owned())
    }

    #[test]
    fn a_block_without_a_name_of_its_own_is_found() {
        let text =
            "```sh a\nls\n```\n```sh\nls\n```\n```console a\n$ ls\n```\n```bash b\nls\n```\n";
        let found = unnamed(&[document("d.md", text)]);
        assert_eq!(
            found,
            [
                "d.md:4: ```sh",
                "d.md:7: ```console a",
                "d.md:10: ```bash b"
            ]
        );
    }

    #[test]
    fn a_block_that_no_test_names_is_found() {
        let documents = [
            document("d.md", "```sh a\nls\n```\n```sh b\nls\n```\n"),
            document("e.md", "```console a\n$ ls\n```\n"),
            document(
                "f.md",
                "```sh c\nls\n```\n```sh d\nls\n```\n```sh e\nls\n```\n",
            ),
        ];
        let elsewhere = [
            ("f.md", "c", "ci.yml", "run(\"a\")"),
            ("f.md", "d", "ci.yml", "none"),
        ];
        // What a comment names is not run.
        let test = "run(\"a\")\n    // Without \"b\".";
        let found = not_run(&documents, &[("d.md", &["t.rs"])], &elsewhere, &|_| {
            test.to_owned()
        });
        assert_eq!(
            found,
            [
                "d.md:4: ```sh b",
                "e.md:1: ```console a",
                "f.md:4: ```sh d",
                "f.md:7: ```sh e"
            ]
        );
    }

    #[test]
    fn a_command_in_prose_that_no_test_starts_is_found() {
        let text = "`cargo run` `a/b.sh c` `d.sh e`, `cargo run -- LINE`\n| `cargo run -- -x` | `./test.sh --all` | `b.sh` |\n\
                    ```text\n`cargo run -- -y`\n```\n";
        let started_by = [
            ("cargo run", Typed("t.rs")),
            ("cargo run -- -x", Typed("t.rs")),
            ("a/b.sh c", Named("t.sh", "a_runs")),
            ("d.sh e", Named("t.sh", "b_runs")),
        ];
        let found = not_started(&[document("d.md", text)], &started_by, &|path| match path {
            "t.rs" => "    // `\"cargo run -- -x\"` is not run.\ntyped(\"cargo run\")".into(),
            _ => "a_runs\n# b_runs".into(),
        });
        assert_eq!(found, ["d.md: `d.sh e`", "d.md: `cargo run -- -x`"]);
    }

    #[test]
    fn what_is_typed_is_found() {
        let text = "```text\n# as root\nredis-cli -p 1 ping\n```\n```\n$ ls\n```\n```text\ndistlock run KEY [WORD]\n```\n```sh a\n./x\n```\n";
        let found = unmarked(&[document("d.md", text)]);
        assert_eq!(found, ["d.md:1: ```text", "d.md:5: ```"]);
    }
}
