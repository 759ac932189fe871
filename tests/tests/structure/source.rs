//! The Rust files of a crate, and the paths that their code names.
//!
//! This reads tokens and no types: an inline module counts as its file, and a path that starts with
//! an imported name counts at its import.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::files::rust_files;

/// A path in the code, such as `crate::store::command`, by segments. Every branch of a `use` tree
/// is one.
pub(crate) type Path = Vec<String>;

/// A Rust file of a crate, relative to its `src`.
pub(crate) struct Source {
    pub(crate) file: String,
    /// The path of the module that the file defines: `store/redis` for `store/redis/mod.rs`, empty
    /// for `lib.rs`.
    module: String,
    /// All paths outside of unit tests, also those of one segment.
    pub(crate) paths: Vec<Path>,
}

/// The Rust files of a crate.
pub(crate) struct Crate {
    pub(crate) sources: Vec<Source>,
    /// The file of every module.
    modules: BTreeMap<String, String>,
}

impl Crate {
    pub(crate) fn read(package: &str) -> Crate {
        Crate::parse(rust_files(package))
    }

    /// Parses files, given by path and text.
    pub(crate) fn parse(files: impl IntoIterator<Item = (String, String)>) -> Crate {
        let mut sources = Vec::new();
        let mut modules = BTreeMap::new();
        for (file, text) in files {
            if file.ends_with("/tests.rs") {
                continue;
            }
            let module = file.trim_end_matches(".rs");
            let module = module.strip_suffix("/mod").unwrap_or(module);
            let module = (if module == "lib" { "" } else { module }).to_owned();
            modules.insert(module.clone(), file.clone());
            let mut paths = Vec::new();
            collect_paths(Path::new(), product_tokens(&text), &mut paths);
            sources.push(Source {
                file,
                module,
                paths,
            });
        }
        Crate { sources, modules }
    }

    /// Returns the file of the innermost module in a path. Returns `None` for a path of another
    /// crate or of a local name, and for a single segment, which is seldom a path.
    pub(crate) fn resolve(&self, source: &Source, path: &Path) -> Option<&str> {
        let [first, _, ..] = &path[..] else {
            return None;
        };
        let is_child = self.modules.contains_key(&join(&source.module, first));
        if !is_child && !["crate", "self", "super"].contains(&first.as_str()) {
            return None;
        }
        let mut item = source.module.clone();
        for name in path {
            match name.as_str() {
                "crate" => item.clear(),
                "self" => {}
                "super" => item.truncate(item.rfind('/').unwrap_or(0)),
                name => item = join(&item, name),
            }
        }
        let mut around = std::path::Path::new(&item).ancestors();
        around.find_map(|module| Some(&**self.modules.get(module.to_str()?)?))
    }
}

fn join(module: &str, name: &str) -> String {
    match module {
        "" => name.to_owned(),
        module => format!("{module}/{name}"),
    }
}

/// Returns the tokens of a file without its items under `#[cfg(test)]`.
pub(crate) fn product_tokens(text: &str) -> TokenStream {
    let tokens: TokenStream = text.parse().expect("Rust code");
    let is_cfg_test = |token: &TokenTree| token.to_string().replace(' ', "") == "[cfg(test)]";
    let ends_item = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => token.to_string() == ";",
    };
    let mut tokens = tokens.into_iter().peekable();
    let mut product = TokenStream::new();
    while let Some(token) = tokens.next() {
        if tokens.peek().is_some_and(is_cfg_test) {
            tokens.by_ref().find(ends_item);
        } else {
            product.extend([token]);
        }
    }
    product
}

/// Collects the paths in some tokens, the first of which continues `path`.
fn collect_paths(
    mut path: Path,
    tokens: impl IntoIterator<Item = TokenTree>,
    paths: &mut Vec<Path>,
) {
    let mut colons = 2;
    for token in tokens {
        match token {
            TokenTree::Punct(sign) if sign.as_char() == ':' => {
                colons += 1;
                continue;
            }
            TokenTree::Ident(name) if colons == 2 => path.push(name.to_string()),
            TokenTree::Ident(name) => {
                paths.push(std::mem::replace(&mut path, vec![name.to_string()]));
            }
            TokenTree::Group(tree) if colons == 2 && tree.delimiter() == Delimiter::Brace => {
                let tokens: Vec<_> = tree.stream().into_iter().collect();
                for branch in tokens.split(|token| token.to_string() == ",") {
                    collect_paths(path.clone(), branch.iter().cloned(), paths);
                }
                path.clear();
            }
            // `pub(in crate::store)` imports nothing.
            TokenTree::Group(_) if path == ["pub"] => path.clear(),
            TokenTree::Group(group) => {
                paths.push(std::mem::take(&mut path));
                collect_paths(Path::new(), group.stream(), paths);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => paths.push(std::mem::take(&mut path)),
        }
        colons = 0;
    }
    paths.push(path);
}
