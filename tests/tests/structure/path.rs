//! The path of an uncontended call, as docs/internals/architecture.md lists it, is in the code.

use distlock_tests::documents::document;

use crate::files::rust_files;

/// Upper limit of the lines of all files on the path, as the page states it.
const MAX_LINES: usize = 9_900;

/// Upper limit of the number of files on the path.
const MAX_FILES: usize = 58;

const HEADING: &str = "## The path of an uncontended call\n";

/// Returns the names in a column of the page's table.
fn column(page: &str, n: usize) -> Vec<String> {
    let (_, section) = page.split_once(HEADING).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    // The header is the first row.
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let cells = rows.skip(1).filter_map(|row| row.split('|').nth(n));
    let names = cells.flat_map(|cell| cell.split(','));
    let names = names.map(|name| name.trim_matches([' ', '`']).to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// Returns true if a file defines this type.
fn defines(text: &str, name: &str) -> bool {
    let words: Vec<_> = text.split([' ', '\n', '(', '<', '{', ';']).collect();
    let mut pairs = words.windows(2);
    pairs.any(|pair| ["struct", "enum", "trait"].contains(&pair[0]) && pair[1] == name)
}

/// Returns the number of lines of a file, without blank lines, comments and unit tests.
fn lines(text: &str) -> usize {
    let lines = text.lines().map(str::trim);
    let product = lines.take_while(|line| *line != "mod tests {");
    let code = product.filter(|line| !line.is_empty() && !line.starts_with("//"));
    code.count()
}

#[test]
fn the_path_of_an_uncontended_call_is_that_of_the_page() {
    let page = document("docs/internals/architecture.md");
    let (types, paths) = (column(&page, 2), column(&page, 3));
    let mut files = rust_files("distlock");
    files.retain(|(file, _)| paths.contains(file));
    assert_eq!(files.len(), paths.len(), "every listed file exists");
    assert!(files.len() <= MAX_FILES, "{} files", files.len());
    let is_defined = |name: &String| files.iter().any(|(_, text)| defines(text, name));
    let undefined: Vec<_> = types.iter().filter(|name| !is_defined(name)).collect();
    assert!(undefined.is_empty() && !types.is_empty(), "{undefined:?}");
    let total: usize = files.iter().map(|(_, text)| lines(text)).sum();
    assert!(total <= MAX_LINES, "{total} lines");
}
