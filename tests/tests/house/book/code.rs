//! Rust code in the book.

use super::{Document, blocks};

/// Where code of other crates is shown, which nobody here depends on.
const OF_OTHERS: &[&str] = &["docs/comparison.md", "docs/migration.md"];

/// The documents of the book whose Rust code `examples` does not have run, and blocks that are not even compiled.
pub(super) fn untested(documents: &[Document], examples: &str) -> Vec<String> {
    let mut untested = Vec::new();
    for (path, text) in documents {
        let Some(name) = path.strip_prefix("docs/") else {
            continue;
        };
        let mut blocks = blocks(text);
        blocks.retain(|block| block.language.split(',').next() == Some("rust"));
        if !OF_OTHERS.contains(&&**path) {
            let ignored = (blocks.iter()).filter(|block| block.language.contains("ignore"));
            untested.extend(ignored.map(|block| format!("{path}:{}: is ignored", block.line)));
        }
        if !blocks.is_empty() && !examples.contains(&format!(", \"{name}\");")) {
            untested.push(path.clone());
        }
    }
    untested
}

#[cfg(test)]
mod tests {
    use super::untested;

    #[test]
    fn code_that_nothing_runs_is_found() {
        let document = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let documents = [
            document("docs/a.md", "```rust,no_run\n```\n"),
            document("docs/b.md", "```rust\n```\n"),
            document("docs/c.md", "```text\n```\n"),
            document("docs/d.md", "\n```rust,ignore\n```\n"),
            document("README.md", "```rust\n```\n"),
        ];
        let examples = "document!(a, \"a.md\");\ndocument!(d, \"d.md\");\n";
        assert_eq!(
            untested(&documents, examples),
            ["docs/b.md", "docs/d.md:2: is ignored"]
        );
    }
}
