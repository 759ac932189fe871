//! Commands in documents.

use std::collections::BTreeSet;

use distlock_tests::documents::Block;

use super::{Document, blocks};

/// Which tests run the commands of which document: a test names a block as a text, `"name"`.
pub(super) const RUN_BY: &[(&str, &[&str])] = &[
    (
        "README.md",
        &["examples/tests/inventory/documented.rs", BY_CI],
    ),
    (
        "distlock-cli/README.md",
        &["distlock-cli/tests/cli/documented.rs"],
    ),
    ("docs/first-lock.md", &["tests/tests/book/first_lock.rs"]),
    (
        "docs/operations/command-line.md",
        &["distlock-cli/tests/cli/documented.rs"],
    ),
    (
        "docs/topologies.md",
        &["examples/tests/inventory/documented.rs"],
    ),
];

/// Stands for a file that names what nothing else can run: `./test.sh`, which is what CI runs.
const BY_CI: &str = "./test.sh";

/// The one block of that kind.
const CHECK: (&str, &str) = ("README.md", "check");

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

/// Blocks of commands that no test names which runs those of their document. `read` reads the file of a test.
pub(super) fn not_run(
    documents: &[Document],
    run_by: &[(&str, &[&str])],
    read: &dyn Fn(&str) -> String,
) -> Vec<String> {
    let mut not_run = Vec::new();
    for (path, text) in documents {
        let tests = run_by.iter().find(|(document, _)| document == path);
        let tests = tests.map_or(&[][..], |(_, tests)| tests);
        let names = |test: &&&str, block: &Block| match **test {
            BY_CI => (&**path, &*block.name) == CHECK && block.text.starts_with(BY_CI),
            test => read(test).contains(&format!("\"{}\"", block.name)),
        };
        for block in blocks(text).iter().filter(|block| is_commands(block)) {
            if !tests.iter().any(|test| names(&test, block)) {
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

#[cfg(test)]
mod tests {
    use super::{not_run, unmarked, unnamed};

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
                "README.md",
                "```sh check\n./test.sh\n```\n```sh other\n./test.sh\n```\n",
            ),
        ];
        let run_by: &[(&str, &[&str])] = &[("d.md", &["t.rs"]), ("README.md", &["./test.sh"])];
        let found = not_run(&documents, run_by, &|_| "run(\"a\")".to_owned());
        assert_eq!(
            found,
            [
                "d.md:4: ```sh b",
                "e.md:1: ```console a",
                "README.md:4: ```sh other"
            ]
        );
    }

    #[test]
    fn what_is_typed_is_found() {
        let text = "```text\n# as root\nredis-cli -p 1 ping\n```\n```\n$ ls\n```\n```text\ndistlock run KEY [WORD]\n```\n```sh a\n./x\n```\n";
        let found = unmarked(&[document("d.md", text)]);
        assert_eq!(found, ["d.md:1: ```text", "d.md:5: ```"]);
    }
}
