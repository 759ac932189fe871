//! Links in documents. What mdBook makes of those of the book is followed in `tests/book/build.sh`; those that leave it, and
//! those of other documents, are followed here.

use std::path::{Component, Path, PathBuf};

use super::Document;

/// Where a file of this repository is for who reads documents elsewhere.
const REPOSITORY: &[&str] = &[
    "https://github.com/distlock/distlock/blob/main/",
    "https://github.com/distlock/distlock/tree/main/",
];

/// Links that lead to no file, or to no heading. `read` has the text of a document that is there, and "" for other files.
pub(super) fn broken(documents: &[Document], read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, text) in documents {
        for link in links(text) {
            let Some((file, anchor)) = leads_to(path, link) else {
                continue;
            };
            let is_there = read(&file).is_some_and(|text| {
                anchor.is_empty() || anchors(&text).iter().any(|known| known == anchor)
            });
            if !is_there {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    broken
}

/// What stands in `](...)`, outside of code.
fn links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    for line in prose(text) {
        for (at, _) in line.match_indices("](") {
            let link = &line[at + 2..];
            links.extend(link.split_once(')').map(|(link, _)| link));
        }
    }
    links
}

/// The lines that stand in no block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The file below the workspace, and the anchor in it; nothing for what is elsewhere.
fn leads_to<'a>(document: &str, link: &'a str) -> Option<(String, &'a str)> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    if let Some(file) = REPOSITORY.iter().find_map(|from| file.strip_prefix(from)) {
        return Some((file.trim_end_matches('/').to_owned(), anchor));
    }
    if link.contains("://") {
        return None;
    }
    if file.is_empty() {
        return Some((document.to_owned(), anchor));
    }
    let mut path = PathBuf::from(document);
    path.pop();
    for component in Path::new(file).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            component => path.push(component),
        }
    }
    Some((path.to_string_lossy().into_owned(), anchor))
}

/// What GitHub, and mdBook, make of the headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let mut anchors = Vec::new();
    for heading in headings {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        let anchor: String = heading.chars().filter(kept).collect();
        let anchor = anchor.replace(' ', "-");
        let before = (anchors.iter()).filter(|known| **known == anchor).count();
        anchors.push(match before {
            0 => anchor,
            times => format!("{anchor}-{times}"),
        });
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::broken;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let text = "# A `b`, c\n[](#a-b-c) [](#a-b)\n[](../x.md#one-two) [](../x.md#three)\n[](y.md) ![](z.svg)\n\
             [](https://github.com/distlock/distlock/blob/main/x.md) [](https://github.com/distlock/distlock/blob/main/w.md)\n\
             [](https://docs.rs/nothing)\n```\n[](no/link.md)\n```\n";
        let read = |path: &str| match path {
            "x.md" => Some("## One two".to_owned()),
            "docs/z.svg" => Some(String::new()),
            "docs/d.md" => Some(text.to_owned()),
            _ => None,
        };
        assert_eq!(
            broken(&[("docs/d.md".into(), text.into())], &read),
            [
                "docs/d.md: #a-b",
                "docs/d.md: ../x.md#three",
                "docs/d.md: y.md",
                "docs/d.md: https://github.com/distlock/distlock/blob/main/w.md",
            ]
        );
    }
}
